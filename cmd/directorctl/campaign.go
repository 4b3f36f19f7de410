package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *campaignCommands) campaignCommand() *cobra.Command {
	form := formTable
	list := a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		items, err := api.Campaigns(cmd.Context())
		if err != nil {
			return err
		}
		return a.show(form, wire.Campaigns{Items: items}, func() { printCampaigns(a.out, items, time.Now()) })
	})
	cmd := &cobra.Command{
		Use: "campaign", Aliases: []string{"campaigns"}, Short: "Bring one change to many clusters, wave by wave",
		RunE: list, Args: exact(),
		Long: "Bring one change to many clusters, wave by wave. Each cluster gets a frozen plan. Nothing starts " +
			"before a\n" +
			"person has agreed to the wave, and failures stop the campaign.",
	}
	outputFlag(cmd, &form)
	listCmd := &cobra.Command{Use: "list", Short: "List the campaigns with how far they are", RunE: list, Args: exact()}
	outputFlag(listCmd, &form)
	showCmd := &cobra.Command{
		Use: "show ID", Short: "Show a campaign with its waves and clusters", Args: exact("ID"),
		ValidArgsFunction: a.complete(0, campaignIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			c, err := api.Campaign(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(form, c, func() { printCampaign(a.out, c) })
		}),
	}
	outputFlag(showCmd, &form)
	cmd.AddCommand(
		listCmd, showCmd, a.createCampaignCommand(), a.agreeCommand(), a.campaignPauseCommand(),
		a.campaignResumeCommand(), a.campaignSkipCommand(), a.campaignEndCommand(),
	)
	return cmd
}

func campaignIDs(ctx context.Context, c *client.Client, _ []string) []string {
	items, _ := c.Campaigns(ctx) // no completion is better than an error in the middle of a line
	ids := make([]string, len(items))
	for i, v := range items {
		ids[i] = v.ID + "\t" + v.Name + ", " + v.Status
	}
	return ids
}

func (a *campaignCommands) createCampaignCommand() *cobra.Command {
	var n wire.CampaignNew
	var patch, cron, zone string
	var open time.Duration
	var wait, dry bool
	form := formTable
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a campaign, with a frozen plan of each cluster", Args: exact("NAME"),
		Long: "Make a campaign for the clusters that fit every flag of the selector. A frozen plan of each is " +
			"made, and nothing starts.",
		Example: `  directorctl campaign create "1.38 for staging" --release k8s-1.38 --image node-1.38 ` +
			`-l stage=test --canary 1 --wave 10% --wait`,
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			n.Name = args[0]
			if patch != "" {
				if !json.Valid([]byte(patch)) {
					return usage(cmd, "--patch is not JSON")
				}
				n.Target.Patch = json.RawMessage(patch)
			}
			if cron != "" {
				n.Window = &wire.CampaignWindow{Cron: cron, TimeZone: zone, ForSeconds: open.Seconds()}
			}
			if dry {
				return a.previewCampaign(cmd.Context(), api, n, form)
			}
			c, err := api.CreateCampaign(cmd.Context(), n)
			if err != nil {
				return err
			}
			if wait {
				if c, err = a.awaitCampaign(cmd.Context(), api, c.ID, "planning"); err != nil {
					return err
				}
				return a.show(form, c, func() { printCampaign(a.out, c) })
			}
			return a.show(form, c, func() {
				say(
					a.out, "Campaign %s plans %d clusters; see: directorctl campaign show %s\n", c.ID, len(c.Clusters),
					c.ID,
				)
			})
		}),
	}
	campaignFlags(cmd, &n)
	f := cmd.Flags()
	f.StringVar(&patch, "patch", "", "instead of a release: merge patch of spec, as JSON")
	f.StringVar(&cron, "window", "", "when plans may start, as cron: 0 22 * * 1-5")
	f.StringVar(&zone, "window-zone", "", "time zone of --window (default UTC)")
	f.DurationVar(&open, "window-for", 0, "how long the window stays open")
	f.BoolVar(&wait, "wait", false, "wait until the plans are made")
	f.BoolVar(&dry, "dry-run", false, "only show the clusters, and what the first 20 of them would get")
	outputFlag(cmd, &form)
	return cmd
}

// campaignFlags are those that are fields of what is asked for.
func campaignFlags(cmd *cobra.Command, n *wire.CampaignNew) {
	f := cmd.Flags()
	f.StringVar(&n.Target.Release, "release", "", "Release to upgrade to")
	f.StringVar(&n.Target.Image, "image", "", "Image that comes with the release")
	f.StringVar(&n.Target.Operation, "operation", "", "instead of a release: cluster.rotate_pull_password")
	f.StringSliceVar(&n.Selector.Clusters, "cluster", nil, "names of clusters, in their order; all if left out")
	f.StringSliceVarP(&n.Selector.Labels, "selector", "l", nil, "labels: key or key=value")
	f.StringSliceVar(&n.Selector.Statuses, "status", nil, "statuses of clusters, such as ready")
	f.StringSliceVar(&n.Selector.Versions, "running", nil, "Kubernetes versions that run now: v1.36 is each v1.36.x")
	f.IntVar(&n.Canary, "canary", 0, "clusters of the first wave")
	f.StringVar(&n.Wave, "wave", "", "clusters of a wave: 10, or 10% (default 10%)")
	f.StringVar(&n.Pause, "pause", "", "between waves: a time such as 1h, or agreed (default agreed)")
	f.StringVar(&n.Failures, "failures", "", "how many clusters may fail: 2, or 5% (default 0)")
	f.IntVar(&n.AtOnce, "at-once", 0, "plans of a wave that run at the same time (default 10)")
}

func (a *campaignCommands) agreeCommand() *cobra.Command {
	var wave int
	var hash string
	var ok consent
	var wait bool
	cmd := &cobra.Command{
		Use: "agree ID", Short: "Agree to a wave: its plans start", Args: exact("ID"),
		ValidArgsFunction: a.complete(0, campaignIDs),
		Long: "Agree to a wave of a campaign. The clusters of the wave are shown with their plans, and the " +
			"agreement\n" +
			"names the hash of what was shown. With --hash, it is for the plans that were read before.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			c, err := api.Campaign(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if wave == 0 {
				wave = max(c.Wave, 1)
			}
			if wave > len(c.Waves) {
				return director.Errorf(
					director.KindConflict, "directorctl.campaign", "the campaign is %s and has no wave %d",
					c.Status, wave,
				).WithHint("directorctl campaign show %s", c.ID)
			}
			if hash == "" {
				hash = c.Waves[wave-1].Hash
				printWave(a.out, c, wave)
				yes, err := a.agreed(cmd.Context(), ok, fmt.Sprintf("Start wave %d?", wave))
				if err != nil || !yes {
					return err
				}
			}
			if c, err = api.AgreeCampaign(cmd.Context(), c.ID, wave, hash); err != nil {
				return err
			}
			say(a.out, "Wave %d of campaign %s is agreed to.\n", wave, c.ID)
			return a.followCampaign(cmd.Context(), api, c.ID, wait)
		}),
	}
	cmd.Flags().IntVar(&wave, "wave", 0, "number of the wave (default the current one)")
	cmd.Flags().StringVar(&hash, "hash", "", "hash of the wave as it was read")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until a person is needed again, or the campaign is done")
	ok.flag(cmd, "agree without a question")
	return cmd
}

func (a *campaignCommands) campaignPauseCommand() *cobra.Command {
	var reason string
	cmd := a.campaignVerb("pause", "Start no further plan of a campaign", "is paused; running plans continue",
		func(ctx context.Context, api *client.Client, id string) (wire.Campaign, error) {
			return api.PauseCampaign(ctx, id, reason)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who wonder")
	return cmd
}

func (a *campaignCommands) campaignResumeCommand() *cobra.Command {
	var wait bool
	cmd := a.campaignVerb("resume", "Let a campaign continue with the failures that there are", "continues", nil)
	cmd.RunE = a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
		c, err := api.ResumeCampaign(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		say(a.out, "Campaign %s continues.\n", c.ID)
		return a.followCampaign(cmd.Context(), api, c.ID, wait)
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until a person is needed again, or the campaign is done")
	return cmd
}

func (a *campaignCommands) campaignSkipCommand() *cobra.Command {
	var reason, cluster string
	cmd := a.campaignVerb("skip", "Take a cluster out of a campaign", "continues without the cluster",
		func(ctx context.Context, api *client.Client, id string) (wire.Campaign, error) {
			return api.SkipCampaign(ctx, id, cluster, reason)
		})
	cmd.Flags().StringVar(&cluster, "cluster", "", "name of the cluster")
	cmd.Flags().StringVar(&reason, "reason", "", "why it is left out")
	_ = cmd.MarkFlagRequired("cluster")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func (a *campaignCommands) campaignEndCommand() *cobra.Command {
	var reason string
	cmd := a.campaignVerb("end", "End a campaign for good", "has ended; running plans continue",
		func(ctx context.Context, api *client.Client, id string) (wire.Campaign, error) {
			return api.EndCampaign(ctx, id, reason)
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func (a *campaignCommands) campaignVerb(
	name, short, then string, do func(context.Context, *client.Client, string) (wire.Campaign, error),
) *cobra.Command {
	return &cobra.Command{
		Use: name + " ID", Short: short, Args: exact("ID"), ValidArgsFunction: a.complete(0, campaignIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			c, err := do(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			say(a.out, "Campaign %s %s.\n", c.ID, then)
			return nil
		}),
	}
}

// awaitCampaign asks until the campaign has none of the statuses any more.
func (a *campaignCommands) awaitCampaign(
	ctx context.Context, api *client.Client, id string, statuses ...string,
) (wire.Campaign, error) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	told := map[string]string{}
	for {
		c, err := api.Campaign(ctx, id)
		if err != nil || !slices.Contains(statuses, c.Status) {
			return c, err
		}
		for _, m := range c.Clusters { // what keeps the campaign waiting may need a person
			if m.Message != told[m.Name] && slices.Contains([]string{"unplanned", "outdated", "agreed"}, m.State) {
				told[m.Name] = m.Message
				if m.Message != "" {
					say(a.err, "%s: %s\n", m.Name, plain(m.Message))
				}
			}
		}
		select {
		case <-ctx.Done():
			return c, interrupted("the campaign continues; show it with: directorctl campaign show %s", id)
		case <-tick.C:
		}
	}
}

// followCampaign waits until a person is needed, and returns how the campaign is then.
func (a *campaignCommands) followCampaign(ctx context.Context, api *client.Client, id string, wait bool) error {
	if !wait {
		return nil
	}
	c, err := a.awaitCampaign(ctx, api, id, "planning", "running", "resting", "closed")
	if err != nil {
		return err
	}
	see := "directorctl campaign show " + id
	goOn := "see why: " + see + "; then continue: directorctl campaign resume " + id +
		", or give up: directorctl campaign end " + id
	switch c.Status {
	case "waiting":
		say(a.out, "Campaign %s waits for wave %d: directorctl campaign agree %s\n", id, c.Wave, id)
	case "done":
		say(a.out, "Campaign %s is done: %s.\n", id, countsText(c.Counts))
	case "paused":
		e := &taskError{text: "campaign " + id + " is paused: " + c.Reason, hint: goOn, code: codePlanFailed}
		if c.PausedBy != "" {
			e.text, e.code = "campaign "+id+" was paused by "+c.PausedBy+": "+c.Reason, codePlanParked
		}
		return e
	default:
		return &taskError{text: "campaign " + id + " is " + c.Status, hint: see, code: codePlanStopped}
	}
	return nil
}

// campaignStates are the states of clusters in the order in which they are shown.
var campaignStates = []string{
	"unplanned", "outdated", "planned", "agreed", "running", "done", "failed", "skipped", "refused", "nothing",
}

func countsText(counts map[string]int) string {
	var parts []string
	for _, s := range campaignStates {
		if n := counts[s]; n > 0 {
			words := s
			if s == "nothing" {
				words = "with nothing to do"
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, words))
		}
	}
	return strings.Join(parts, ", ")
}

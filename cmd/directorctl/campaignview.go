package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func printCampaigns(w io.Writer, items []wire.Campaign, now time.Time) {
	table(w, "ID NAME STATUS WAVE CLUSTERS AGE", func(row func(...string)) {
		for _, c := range items {
			row(
				c.ID, clip(c.Name, 40), c.Status, fmt.Sprintf("%d/%d", c.Wave, len(c.Waves)), countsText(c.Counts),
				age(now.Sub(c.CreatedAt)),
			)
		}
	})
}

func targetText(t wire.CampaignTarget) string {
	switch {
	case t.Operation != "":
		return t.Operation
	case len(t.Patch) > 0:
		return "patch " + string(t.Patch)
	case t.Image != "":
		return "Release/" + t.Release + " with Image/" + t.Image
	}
	return "Release/" + t.Release
}

func printCampaign(w io.Writer, c wire.Campaign) {
	facts(w, func(line func(name, text string)) {
		line("Campaign", c.ID)
		line("Name", plain(c.Name))
		line("Target", plain(targetText(c.Target)))
		status := c.Status
		if c.Status == "waiting" {
			status += fmt.Sprintf(" for a person to agree to wave %d", c.Wave)
		}
		if c.Until != nil {
			status += " until " + c.Until.UTC().Format("2006-01-02 15:04 MST")
		}
		line("Status", status)
		line("Reason", plain(c.Reason))
		line("Clusters", countsText(c.Counts))
		line("Failures", fmt.Sprintf("%d, and %d may be", c.Failed, c.Allowed))
	})
	if len(c.Waves) > 0 {
		sayLine(w, "\nWaves")
		table(w, "WAVE CLUSTERS HASH", func(row func(...string)) {
			for _, v := range c.Waves {
				row(strconv.Itoa(v.Number), countsText(v.Counts), fmt.Sprintf("%.12s", v.Hash))
			}
		})
	}
	sayLine(w, "\nClusters")
	table(w, "CLUSTER WAVE STATE PLAN MESSAGE", func(row func(...string)) {
		for _, m := range c.Clusters {
			wave := ""
			if m.Wave > 0 {
				wave = strconv.Itoa(m.Wave)
			}
			row(m.Name, wave, m.State, m.Plan, clip(clusterText(m), 100))
		}
	})
}

// clusterText is the most important word on a cluster.
func clusterText(m wire.CampaignCluster) string {
	switch {
	case m.Reason != "":
		return m.Reason + " (" + m.SkippedBy + ")"
	case m.Message != "" && len(m.Path) > 0:
		return m.Message + "; path: " + strings.Join(m.Path, ", ")
	case m.Message != "":
		return m.Message
	case m.Difference != "":
		return "planned again: " + m.Difference
	}
	return m.Summary
}

// printWave shows what a person agrees to.
func printWave(w io.Writer, c wire.Campaign, wave int) {
	facts(w, func(line func(name, text string)) {
		line("Campaign", c.ID)
		line("Target", plain(targetText(c.Target)))
		line("Wave", fmt.Sprintf("%d of %d", wave, len(c.Waves)))
		line("Hash", c.Waves[wave-1].Hash)
	})
	sayLine(w)
	table(w, "CLUSTER STATE PLAN HASH SUMMARY", func(row func(...string)) {
		for _, m := range c.Clusters {
			if m.Wave == wave {
				row(m.Name, m.State, m.Plan, fmt.Sprintf("%.12s", m.Hash), clip(clusterText(m), 100))
			}
		}
	})
}

// mostLooks is how many clusters the director looks at in one preview.
const mostLooks = 20

// previewCampaign shows what a campaign would be for, and fails if it would be refused.
func (a *campaignCommands) previewCampaign(
	ctx context.Context, api *client.Client, n wire.CampaignNew, form string,
) error {
	v, err := api.PreviewCampaign(ctx, n, nil)
	if err != nil {
		return err
	}
	if len(v.Problems) == 0 {
		var names []string
		for _, c := range v.Clusters[:min(len(v.Clusters), mostLooks)] {
			names = append(names, c.Name)
		}
		if v, err = api.PreviewCampaign(ctx, n, names); err != nil {
			return err
		}
	}
	if err := a.show(form, v, func() { printCampaignPreview(a.out, v) }); err != nil || len(v.Problems) == 0 {
		return err
	}
	fields := make([]director.Field, len(v.Problems))
	for i, p := range v.Problems {
		fields[i] = director.Field{Path: p.Field, Msg: p.Message, Hint: p.Hint}
	}
	return director.Invalid("directorctl.campaign", "the campaign would be refused", fields)
}

func printCampaignPreview(w io.Writer, v wire.CampaignPreview) {
	table(w, "CLUSTER WAVE RUNNING WOULD GET", func(row func(...string)) {
		for _, c := range v.Clusters {
			gets := ""
			switch l := c.Look; {
			case l == nil:
			case len(l.Problems) > 0:
				gets = "no plan: " + plain(l.Problems[0].Message)
			case l.Steps == 0:
				gets = "nothing to do"
			default:
				gets = plain(l.Summary)
			}
			row(c.Name, strconv.Itoa(c.Wave), c.Version, gets)
		}
	})
	say(w, "%s in %s; a cluster without a plan would be in none\n", director.Count(len(v.Clusters), "cluster"),
		director.Count(len(v.Waves), "wave"))
}

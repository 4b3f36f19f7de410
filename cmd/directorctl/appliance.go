package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

const opAppliance = "directorctl.appliance"

// applianceCommands upgrade the machine that the director runs on.
type applianceCommands struct{ *providerCommands }

func (a *applianceCommands) applianceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "appliance", Short: "Upgrade the director's appliance, and go back",
		Long: "Upgrade the appliance that the director runs on, see how far that is, and go back to the version " +
			"before.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, Args: exact(),
	}
	cmd.AddCommand(a.statusCommand(), a.upgradeCommand(), a.rollbackCommand())
	return cmd
}

func (a *applianceCommands) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show which directors the appliance has, and the last upgrade", Args: exact(),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.Appliance, error) {
		return api.Appliance(ctx)
	}, func(s wire.Appliance) { printAppliance(a.out, s) })
}

func printAppliance(w io.Writer, s wire.Appliance) {
	table(w, "ROOT VERSION SCHEMA BUILT STATE", func(row func(...string)) {
		line := func(r wire.ApplianceRoot, state string) {
			row(r.Slot, r.Version, r.Schema, r.BuiltAt.Format(time.DateOnly), state)
		}
		line(s.Running, "running")
		if s.Kept != nil {
			line(*s.Kept, "kept")
		}
	})
	if s.Packages != nil {
		printPackages(w, *s.Packages)
	}
	c := s.Change
	if c == nil {
		return
	}
	what := "change"
	if c.Verb != "" {
		what = c.Verb
	}
	if c.To != nil {
		what += " to " + c.To.Version
	}
	say(w, "\nThe last %s: %s", what, stageOf(*c))
	if c.Reason != "" {
		say(w, "\n  %s", c.Reason)
	}
	if c.Hint != "" {
		say(w, "\n  next: %s", c.Hint)
	}
	say(w, "\n")
}

func printPackages(w io.Writer, p wire.AppliancePackages) {
	if p.Of != nil {
		say(w, "\nPackages of Debian of %s\n", p.Of.Format(time.DateOnly))
	}
	if p.List == nil {
		return
	}
	list := p.List.Format(time.DateOnly)
	if p.ListOutdated {
		say(w, "Warning: the list of security updates is of %s, older than the packages. It names no newer updates.\n"+
			"  next: bring a newer list, on the appliance: sudo director setup updates InRelease Packages\n", list)
	}
	if len(p.Missing) == 0 {
		if !p.ListOutdated {
			say(w, "All security updates of %s are there\n", list)
		}
		return
	}
	say(w, "Security updates of %s that are missing, until the appliance is upgraded to a newer image:\n", list)
	table(w, "PACKAGE INSTALLED FIXED", func(row func(...string)) {
		for _, f := range p.Missing {
			row(f.Package, f.Installed, f.Fixed)
		}
	})
}

func stageOf(c wire.ApplianceChange) string {
	if c.Stage == "writing" && c.Total > 0 {
		return fmt.Sprintf("writing, %d%%", c.Done*100/c.Total)
	}
	return c.Stage
}

// waits are the bounds of a change.
type waits struct{ drain, within time.Duration }

func (w *waits) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(
		&w.drain, "drain", 15*time.Minute, "how long running steps of plans have to end; the rest runs again",
	)
	cmd.Flags().DurationVar(
		&w.within, "within", 15*time.Minute, "how long the other version has to become healthy before the VM goes back",
	)
}

func (w waits) wire() wire.ApplianceWaits {
	return wire.ApplianceWaits{Drain: int(w.drain / time.Second), Within: int(w.within / time.Second)}
}

func (w waits) check(cmd *cobra.Command) error {
	if w.drain < time.Second || w.drain > 2*time.Hour {
		return usage(cmd, "--drain is not between 1s and 2h")
	}
	if w.within < time.Minute || w.within > 2*time.Hour {
		return usage(cmd, "--within is not between 1m and 2h")
	}
	return nil
}

func (a *applianceCommands) upgradeCommand() *cobra.Command {
	var options consent
	var w waits
	cmd := &cobra.Command{
		Use: "upgrade FILE", Short: "Upgrade the appliance in place, and wait for the outcome", Args: exact("FILE"),
		Long: "Send director-upgrade.tar to the director, which checks its signature and writes its root to the " +
			"other\n" +
			"root partition. Running steps of plans end, the database is copied, and the VM restarts with the new\n" +
			"version. If that does not become healthy, the former version and its database come back by themselves.\n" +
			"Plans continue afterwards. A downgrade is refused.\n\n" +
			"To continue an interrupted upload, run the same command again. The upgrade does not need this command:\n" +
			"directorctl appliance status shows how far it is.",
		Example: "  directorctl appliance upgrade director-upgrade.tar",
		PreRunE: func(cmd *cobra.Command, _ []string) error { return w.check(cmd) },
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			was, err := api.Appliance(cmd.Context())
			if err != nil {
				return err
			}
			ok, err := a.agreed(cmd.Context(), options, fmt.Sprintf(
				"Upgrade the director, %s, with %s, and restart it?", was.Running.Version, args[0],
			))
			if err != nil || !ok {
				return err
			}
			f, c, sum, err := a.openUpgrade(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			if err := a.sendUpgrade(cmd.Context(), api, f, sum); err != nil {
				return err
			}
			_, err = api.UpgradeAppliance(cmd.Context(), wire.ApplianceUpgrade{Upload: sum, ApplianceWaits: w.wire()})
			if err != nil {
				return err
			}
			return a.followChange(cmd.Context(), api, w)
		}),
	}
	options.flag(cmd, "upgrade without asking")
	w.flags(cmd)
	return cmd
}

// openUpgrade opens the archive, and computes its checksum.
func (a *applianceCommands) openUpgrade(ctx context.Context, path string) (archive, io.Closer, string, error) {
	f, c, err := openArchive(ctx, path)
	if err != nil {
		return f, nil, "", stopped(ctx, err)
	}
	show := a.progress()
	defer show.end()
	sum, err := f.sum(ctx, show)
	if err != nil {
		return f, nil, "", stopped(ctx, errors.Join(err, c.Close()))
	}
	return f, c, sum, nil
}

// sendUpgrade uploads the archive.
func (a *applianceCommands) sendUpgrade(ctx context.Context, api *client.Client, f archive, sum string) error {
	show := a.progress()
	defer show.end()
	return stopped(ctx, show.send(ctx, api, f.upload(sum), f))
}

func (a *applianceCommands) rollbackCommand() *cobra.Command {
	var options consent
	var w waits
	var lose bool
	cmd := &cobra.Command{
		Use: "rollback", Short: "Start the version of before the last upgrade, and wait for the outcome", Args: exact(),
		Long: "Restart the VM with the root that is kept in the other root partition. If that version does not know " +
			"the\n" +
			"database of this one, the database of before the upgrade is restored, and what has changed since is " +
			"lost:\n" +
			"--lose-changes agrees to it. VMs that were made since are found as orphans by the ledger then.",
		PreRunE: func(cmd *cobra.Command, _ []string) error { return w.check(cmd) },
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
			was, err := api.Appliance(cmd.Context())
			if err != nil {
				return err
			}
			if was.Kept == nil {
				return director.Errorf(director.KindConflict, opAppliance, "no former version is kept").
					WithHint("there is one after an upgrade")
			}
			ok, err := a.agreed(cmd.Context(), options, fmt.Sprintf(
				"Go back from %s to %s, and restart the director?", was.Running.Version, was.Kept.Version,
			))
			if err != nil || !ok {
				return err
			}
			q := wire.ApplianceRollback{LoseChanges: lose, ApplianceWaits: w.wire()}
			if _, err := api.RollBackAppliance(cmd.Context(), q); err != nil {
				return err
			}
			return a.followChange(cmd.Context(), api, w)
		}),
	}
	options.flag(cmd, "go back without asking")
	w.flags(cmd)
	cmd.Flags().BoolVar(&lose, "lose-changes", false, "agree that what has changed since the upgrade may be lost")
	return cmd
}

// How often a change is asked for, and how long a VM may take to restart, besides what the person said.
const (
	changeEvery = 2 * time.Second
	restartMost = 30 * time.Minute
)

// followChange waits until the change has ended, through restarts of the director.
func (a *applianceCommands) followChange(ctx context.Context, api *client.Client, w waits) error {
	end := time.Now().Add(w.drain + 2*w.within + restartMost)
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	shown := ""
	for {
		s, err := api.Appliance(ctx)
		switch {
		case err == nil && s.Change != nil:
			if stage := stageOf(*s.Change); stage != shown {
				shown = stage
				say(a.out, "%s\n", stage)
			}
			if s.Change.Stage == "done" {
				say(a.out, "The director is version %s (root %s).\n", s.Running.Version, s.Running.Slot)
				return nil
			}
			if s.Change.Stage == "failed" {
				return director.Errorf(
					director.KindConflict, opAppliance, "version %s runs: %s", s.Running.Version, s.Change.Reason,
				).WithHint("%s", s.Change.Hint)
			}
		case err != nil && director.KindOf(err) != director.KindUnavailable:
			return err
		}
		if time.Now().After(end) {
			return director.Errorf(
				director.KindUnavailable, opAppliance, "the upgrade has not ended after %s minutes",
				strconv.Itoa(int((w.drain+2*w.within+restartMost)/time.Minute)),
			).WithHint("look at the console of the VM")
		}
		select {
		case <-ctx.Done():
			return stopped(ctx, ctx.Err())
		case <-tick.C:
		}
	}
}

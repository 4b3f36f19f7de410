package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) againCommand() *cobra.Command {
	var options makeOptions
	form := formTable
	cmd := &cobra.Command{
		Use:   "again PLAN",
		Short: "Make a plan again that is out of date, and show what differs",
		Long: "Make the plan again from what it was asked for, for the world as it is now, and show how the new plan " +
			"differs from the\nolder one, which is discarded. A plan that was started is not made again.",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return options.check(cmd, form) },
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			p, err := api.PlanAgain(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if form != formTable {
				return a.encode(form, p)
			}
			if len(p.Steps) == 0 {
				a.nothingToDo(p.Cluster)
				return nil
			}
			c, err := api.ComparePlans(cmd.Context(), p.ID, args[0])
			if err != nil {
				return err
			}
			printPlan(a.out, p)
			sayLine(a.out)
			a.printComparison(c)
			if !options.start {
				say(a.out, "\nnext: directorctl start %s --wait\n", p.ID)
				return nil
			}
			return a.startAndFollow(cmd.Context(), api, p, options.startOptions)
		}),
	}
	options.flags(cmd)
	outputFlag(cmd, &form)
	return cmd
}

func (a *planCommands) compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "compare PLAN OLDER",
		Short:             "Show how a plan differs from an older one of its cluster",
		Args:              exact("PLAN", "OLDER"),
		ValidArgsFunction: a.complete(0, planIDs),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.PlanComparison, error) {
		return api.ComparePlans(ctx, args[0], args[1])
	}, a.printComparison)
}

func (a *planCommands) drainsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drains PLAN",
		Short: "Show what the drains of a plan would move away now, and what would block them",
		Long: "Ask the cluster, as a dry run, for every eviction of the drains that have not ended. Nothing is " +
			"changed. Pods move until\na drain itself runs: a plan freezes which nodes it drains, not what runs there.",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.PlanDrains, error) {
		return api.RehearsePlan(ctx, args[0])
	}, a.printDrains)
}

func (a *planCommands) printDrains(d wire.PlanDrains) {
	if len(d.Items) == 0 {
		sayLine(a.out, "No drain of this plan is left.")
	}
	for _, n := range d.Items {
		if n.Unseen != "" {
			say(a.out, "%s: not known, %s\n", n.Node, n.Unseen)
			continue
		}
		a.printEvictions(n.Node, n.Pods)
	}
	if d.Rest > 0 {
		say(a.out, "%d more nodes were not asked: ask again when these are done\n", d.Rest)
	}
}

func (a *planCommands) printComparison(c wire.PlanComparison) {
	if c.Same {
		say(a.out, "Plans %s and %s do the same.\n", c.Plan, c.Older)
		return
	}
	say(a.out, "Plan %s differs from %s:\n", c.Plan, c.Older)
	for _, r := range c.Reasons {
		say(a.out, "  %s\n", r)
	}
	line := func(sign, what, text string) { say(a.out, "  %s %s: %s\n", sign, what, text) }
	for _, t := range c.ApprovalsGone {
		line("-", "to agree to", t)
	}
	for _, t := range c.ApprovalsNew {
		line("+", "to agree to", t)
	}
	effect := func(sign string, e wire.Effect) {
		text := e.Object + " " + e.Name
		if e.Detail != "" {
			text += " (" + e.Detail + ")"
		}
		line(sign, e.Verb, text)
	}
	for _, e := range c.EffectsGone {
		effect("-", e)
	}
	for _, e := range c.EffectsNew {
		effect("+", e)
	}
	for _, s := range c.StepsGone {
		line("-", "step", s.Title)
	}
	for _, s := range c.StepsNew {
		line("+", "step", s.Title)
	}
}

package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/whole"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) planCommand() *cobra.Command {
	var remove, data bool
	var options makeOptions
	var adopt []string
	form := formTable
	cmd := &cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Freeze a plan for a cluster and show it",
		Long: "Freeze the plan that brings a cluster to its document, or that deletes it, and show it: what it " +
			"makes, changes and deletes, its\n" +
			"steps with what each needs first, the estimated time, and its hash. Nothing has happened yet.",
		Example:           "  directorctl plan demo\n  directorctl plan demo --delete",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		PreRunE:           func(cmd *cobra.Command, _ []string) error { return options.check(cmd, form) },
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r := plan.Request{DeleteData: data}
			if remove {
				r.Operation = plan.ClusterDelete
			}
			var err error
			if r.AdoptDisks, err = adoptedDisks(cmd.Context(), cmd, api, adopt); err != nil {
				return err
			}
			p, err := api.MakePlan(cmd.Context(), args[0], r)
			if err != nil {
				return err
			}
			if form != formTable {
				return a.encode(form, p)
			}
			if len(p.Steps) == 0 {
				a.nothingToDo(args[0])
				return nil
			}
			printPlan(a.out, p)
			if !options.start {
				say(a.out, "\nnext: directorctl start %s --wait\n", p.ID)
				return nil
			}
			return a.startAndFollow(cmd.Context(), api, p, options.startOptions)
		}),
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "plan the deletion of the cluster")
	deleteDataFlag(cmd, &data)
	adoptDiskFlag(cmd, &adopt)
	options.flags(cmd)
	outputFlag(cmd, &form)
	return cmd
}

func (a *app) nothingToDo(cluster string) {
	say(a.out, "Cluster/%s is as it should be: nothing to do\n", cluster)
}

// startPlan starts a plan that was shown, after a confirmation. It returns false if the person said no.
func (a *app) startPlan(ctx context.Context, api *client.Client, p wire.Plan, c consent) (bool, error) {
	if !c.yes {
		sayLine(a.out)
		ok, err := a.confirm(ctx, "Start this plan?")
		if err != nil {
			return false, err
		}
		if !ok {
			say(a.out, "Not started. It can be later: directorctl start %s\n", p.ID)
			return false, nil
		}
	}
	_, err := api.StartPlan(ctx, p.ID, p.Hash)
	if err != nil && ctx.Err() != nil {
		return false, goesOn(p.ID) // whether it was started in time, the commands of the hint tell
	}
	if err != nil {
		return false, err
	}
	say(a.out, "Plan %s is started.\n", p.ID)
	return true, nil
}

func (a *app) startAndFollow(ctx context.Context, api *client.Client, p wire.Plan, options startOptions) error {
	ok, err := a.startPlan(ctx, api, p, options.consent)
	if err != nil || !ok {
		return err
	}
	return a.followIf(ctx, options, api, p)
}

// followIf follows a plan that was started to its end, or, without --wait, says how to follow it. The plan may be as it
// was before its start: what has happened since is told from there on.
func (a *app) followIf(ctx context.Context, options startOptions, api *client.Client, p wire.Plan) error {
	if !options.wait {
		say(a.out, "follow it: directorctl follow %s\n", p.ID)
		return nil
	}
	return a.follow(ctx, api, p)
}

func (a *planCommands) startCommand() *cobra.Command {
	var options startOptions
	cmd := &cobra.Command{
		Use:               "start PLAN",
		Short:             "Start a plan",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			p, err := api.Plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !options.yes {
				printPlan(a.out, p)
			}
			return a.startAndFollow(cmd.Context(), api, p, options)
		}),
	}
	options.flags(cmd)
	return cmd
}

func (a *planCommands) plansCommand() *cobra.Command {
	var cluster string
	var statuses []string
	var limit int
	var archived bool
	form := formTable
	check := func(cmd *cobra.Command, _ []string) error {
		if limit < 0 {
			return usage(cmd, "--limit is a number from 1, or 0 for all")
		}
		return nil
	}
	list := a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		f := client.PlanFilter{Cluster: cluster, Limit: limit, Archived: archived}
		for _, p := range statuses {
			f.Statuses = append(f.Statuses, plan.Status(p))
		}
		plans, err := api.Plans(cmd.Context(), f)
		if err != nil {
			return err
		}
		return a.show(form, wire.Plans{Items: plans}, func() { printPlans(a.out, plans, time.Now()) })
	})
	flags := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&cluster, "cluster", "", "only plans of this cluster")
		cmd.Flags().StringSliceVar(
			&statuses, "status", nil, "only plans with this status, such as failed; may be repeated",
		)
		cmd.Flags().IntVar(&limit, "limit", 50, "at most so many; 0 for all")
		cmd.Flags().BoolVar(&archived, "archived", false, "only plans that have left the database for archives")
		_ = cmd.RegisterFlagCompletionFunc(
			"status", cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp),
		)
		_ = cmd.RegisterFlagCompletionFunc("cluster", a.complete(0, clusterNames))
		outputFlag(cmd, &form)
	}
	cmd := &cobra.Command{
		Use: "plans", Short: "List plans, the newest first, or show one", PreRunE: check, RunE: list, Args: exact(),
	}
	flags(cmd)
	listCmd := &cobra.Command{
		Use: "list", Short: "List plans, the newest first", PreRunE: check, RunE: list, Args: exact(),
	}
	flags(listCmd)
	showCmd := &cobra.Command{
		Use: "show PLAN", Short: "Show a plan with the state of its run", Args: exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.showPlan(cmd, api, args[0], form)
		}),
	}
	outputFlag(showCmd, &form)
	cmd.AddCommand(listCmd, showCmd, a.againCommand(), a.compareCommand(), a.drainsCommand(),
		a.archiveCommand())
	return cmd
}

func (a *planCommands) archiveCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "archive PLAN",
		Short: "Save all that is known of a plan, for support",
		Long: "Save the plan, its events, the logs of all attempts, the inventory, the versions of all parts and " +
			"the director's configuration as a\n" +
			"tar.gz. Secrets are left out. Only the director that is asked has the logs of what it ran.",
		Example: "  directorctl plans archive 1121-063203-ad81a1\n  directorctl plans archive " +
			"1121-063203-ad81a1 -o - | tar tz",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.connect()
			if err != nil {
				return err
			}
			defer api.Close()
			body, err := api.Archive(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { _ = body.Close() }()
			if out == "-" {
				_, err := io.Copy(a.out, body)
				return broken("the archive", err)
			}
			if out == "" {
				out = "plan-" + args[0] + ".tar.gz"
			}
			if err := save(out, "the archive", body); err != nil {
				return err
			}
			say(a.err, "written: %s\n", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write; - prints it (default plan-PLAN.tar.gz)")
	return cmd
}

// save writes a file that only the user can read, and none at all if what it gets is not whole.
func save(path, what string, from io.Reader) error {
	var cut error
	err := whole.Fill(path, 0o600, func(f *os.File) error {
		_, cut = io.Copy(f, from)
		return cut
	})
	if cut != nil {
		return broken(what, cut)
	}
	if err != nil {
		return fileError("directorctl.save", err)
	}
	return nil
}

func broken(what string, err error) error {
	if err == nil {
		return nil
	}
	return director.Errorf(director.KindUnavailable, "directorctl.save", "%s is not whole: %w", what, err).
		WithHint("try again; the director's log says what it could not read")
}

func statusNames() []string {
	var names []string
	for _, p := range plan.Statuses() {
		names = append(names, string(p))
	}
	return names
}

func (a *app) showPlan(cmd *cobra.Command, api *client.Client, id, form string) error {
	p, err := api.Plan(cmd.Context(), id)
	if err != nil {
		return err
	}
	return a.show(form, p, func() { printPlan(a.out, p) })
}

func printPlans(w io.Writer, plans []wire.PlanSummary, now time.Time) {
	table(w, "ID OPERATION CLUSTER STATUS STEPS TIME AGE BY", func(row func(...string)) {
		for _, p := range plans {
			took := ""
			if p.StartedAt != nil {
				end := now
				if p.FinishedAt != nil {
					end = *p.FinishedAt
				}
				took = span(end.Sub(*p.StartedAt))
			}
			steps := strconv.Itoa(p.StepsDone) + "/" + strconv.Itoa(p.StepsTotal)
			row(p.ID, p.Operation, p.Cluster, p.Status, steps, took, age(now.Sub(p.CreatedAt)), p.CreatedBy)
		}
	})
}

// verbCommand is a command that does one thing to a plan.
func (a *planCommands) verbCommand(
	use, short, done string, do func(context.Context, *client.Client, string) (wire.Plan, error), wait *bool,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " PLAN", Short: short, Args: exact("PLAN"), ValidArgsFunction: a.complete(0, planIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			var before wire.Plan // the answer of a verb has no steps, and what follows the verb is to be told
			if wait != nil && *wait {
				var err error
				if before, err = api.Plan(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			p, err := do(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			if plan.Status(p.Status) == plan.StatusDone {
				done = "was done already"
			}
			say(a.out, "Plan %s %s; it is %s.\n", p.ID, done, p.Status)
			if wait == nil || !*wait {
				return nil
			}
			p.Steps, p.Machines, p.LastEvent = before.Steps, before.Machines, before.LastEvent
			return a.follow(cmd.Context(), api, p)
		}),
	}
}

func (a *planCommands) cancelCommand() *cobra.Command {
	var now bool
	cmd := a.verbCommand("cancel", "Stop a plan between steps", "is told to stop",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.CancelPlan(ctx, id, now)
		}, nil)
	cmd.Long = "Stop a plan between steps: those that run come to their end, none starts any more. A cancelled plan " +
		"can be taken up again by\n" +
		"retry, or given up by discard."
	cmd.Flags().BoolVar(&now, "now", false, "end the running steps too")
	return cmd
}

func (a *planCommands) retryCommand() *cobra.Command {
	var wait bool
	var step string
	cmd := a.verbCommand("retry", "Continue a stopped plan: run what failed, waits for a person or was paused",
		"continues",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.RetryPlan(ctx, id, step)
		}, &wait)
	cmd.Aliases = []string{"resume"}
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the plan to its end")
	cmd.Flags().StringVar(&step, "step", "", "run only this step again")
	return cmd
}

func (a *planCommands) approveCommand() *cobra.Command {
	return a.verbCommand("approve", "Agree to the start of a plan that destroys something", "is approved",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			p, err := api.Plan(ctx, id)
			if err != nil {
				return p, err
			}
			printPlan(a.out, p)
			sayLine(a.out)
			return api.ApprovePlan(ctx, id, p.Hash)
		}, nil)
}

func (a *planCommands) pauseCommand() *cobra.Command {
	var reason string
	cmd := a.verbCommand("pause", "Start no further steps of a plan", "is paused",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.PausePlan(ctx, id, reason)
		}, nil)
	cmd.Long = "Start no further steps of a plan. Running steps end, and the plan keeps its cluster. To continue " +
		"it, use resume."
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who wonder")
	return cmd
}

func (a *planCommands) skipCommand() *cobra.Command {
	var step, reason string
	cmd := a.verbCommand("skip", "Leave a step out of a plan", "continues without the step",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.SkipStep(ctx, id, step, reason)
		}, nil)
	cmd.Example = `  directorctl skip 1121-063203-ad81a1 --step verify/demo --reason "our policy blocks the check pods"`
	cmd.Flags().StringVar(&step, "step", "", "id of the step, as plans show has it")
	cmd.Flags().StringVar(&reason, "reason", "", "why it is not needed; kept in the journal")
	_ = cmd.MarkFlagRequired("step")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func (a *planCommands) undoCommand() *cobra.Command {
	var wait bool
	cmd := a.verbCommand("undo", "Undo what a stopped plan did", "is being undone",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.UndoPlan(ctx, id)
		}, &wait)
	cmd.Long = "Undo what the steps of a failed, parked or cancelled plan did, the last first, as far as they can " +
		"be undone."
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the plan to its end")
	return cmd
}

func (a *planCommands) discardCommand() *cobra.Command {
	return a.verbCommand("discard", "Give up a plan that does not run", "is given up",
		func(ctx context.Context, api *client.Client, id string) (wire.Plan, error) {
			return api.DiscardPlan(ctx, id)
		}, nil)
}

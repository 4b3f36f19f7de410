package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *planCommands) phaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "phase",
		Short: "Tell what an outer plan is about to do with a hypervisor host, or has done",
		Long: "Phases are for a program that upgrades hypervisor hosts one by one: cluster before everything, " +
			"pre-node-lock before each host, post-node-unlock\n" +
			"after it, post-cluster after everything, and director to upgrade the director itself. Each is a task " +
			"with an id of the caller's own; the same\n" +
			"command again returns the same task and its outcome. With --wait, the exit code is 0 only if the task " +
			"is done; without it, 0 means that the\n" +
			"task is taken. See directorctl help exit-codes.",
		Example: "  directorctl phase cluster --cluster demo --task-id up7-begin --wait\n" +
			"  directorctl phase pre-node-lock --host hv1 --task-id up7-hv1-lock --wait --timeout 1h\n" +
			"  directorctl phase post-node-unlock --host hv1 --task-id up7-hv1-unlock --wait\n" +
			"  directorctl phase post-cluster --cluster demo --task-id up7-end --wait",
		Args: exact(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.phaseVerb("cluster", director.PhaseCluster, "Before everything: is the cluster well, and held by no plan"),
		a.phaseVerb(
			"pre-node-lock", director.PhasePreNodeLock,
			"Before a host is worked on: take its nodes out of their clusters, and keep their VMs",
		),
		a.phaseVerb(
			"post-node-unlock", director.PhasePostNodeUnlock, "After a host was worked on: bring its nodes back",
		),
		a.phaseVerb(
			"post-cluster", director.PhasePostCluster, "After everything: is the cluster well, and held by no plan",
		),
		a.phaseDirectorCommand(),
		a.phaseShowCommand(),
	)
	return cmd
}

func (a *planCommands) phaseShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show TASK", Short: "Show a task", Args: exact("TASK"),
		Long: "Show a task and its outcome. A waiting task continues if it can. The exit code tells whether the " +
			"task exists.",
	}
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, args []string) (wire.PhaseTask, error) {
		return api.Phase(ctx, args[0])
	}, a.printPhase)
}

func (a *planCommands) printPhase(t wire.PhaseTask) {
	facts(a.out, func(line func(name, text string)) {
		line("Task", t.TaskID)
		line("Phase", t.Phase)
		host := ""
		if t.Progress != nil {
			host = t.Progress.Host
		}
		for _, f := range [][2]string{
			{"Cluster", t.Cluster},
			{"Host", t.Host},
			{"Node", t.Node},
			{"Provider", t.Provider},
			{"Director", host},
		} {
			if f[1] != "" {
				line(f[0], f[1])
			}
		}
		line("State", t.State)
		line("Message", t.Message)
		if t.Hint != "" {
			line("Hint", t.Hint)
		}
	})
	if len(t.Clusters) == 0 {
		return
	}
	sayLine(a.out)
	table(a.out, "CLUSTER NODE STEPS PLAN STATE", func(row func(...string)) {
		for _, c := range t.Clusters {
			newest := ""
			if len(c.Plans) > 0 {
				newest = c.Plans[len(c.Plans)-1].ID
			}
			row(c.Cluster, "", "", newest, c.State)
			for _, n := range c.Nodes {
				row(c.Cluster, n.Name, fmt.Sprintf("%d/%d", n.StepsDone, n.StepsTotal), newest, n.Status)
			}
		}
	})
}

func (a *planCommands) phaseVerb(use string, name director.PhaseName, short string) *cobra.Command {
	o := phaseOptions{request: director.PhaseRequest{Phase: name}}
	run := a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		return a.phase(cmd.Context(), api, o.id, o.request, o.wait, o.timeout)
	})
	cmd := &cobra.Command{
		Use: use, Short: short, Args: exact(), PreRunE: o.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		},
	}
	o.flags(cmd)
	return cmd
}

// phaseOptions are the flags of one of the phases' commands.
type phaseOptions struct {
	request director.PhaseRequest
	drain   plan.Drain
	keys    []string
	id      string
	wait    bool
	timeout time.Duration
}

func (o *phaseOptions) flags(cmd *cobra.Command) {
	f, r := cmd.Flags(), &o.request
	f.StringVar(&o.id, "task-id", "", "the caller's own id of the task, 1 to 128 letters, digits and . _ : @ = + ~ -")
	f.BoolVar(&o.wait, "wait", false, "wait until the task is done, or cannot continue by itself")
	f.DurationVar(&o.timeout, "timeout", 0, "how long to wait (default: as long as it takes)")
	if r.Phase == director.PhaseDirector {
		f.StringVar(&r.Director, "director", "", "host name of the director to upgrade, if there are several")
		f.StringVar(&r.Upload, "upload", "", "SHA-256 of an archive that was sent before")
		return
	}
	if !r.Phase.OnNodes() {
		f.StringVar(&r.Cluster, "cluster", "", "the cluster")
		if r.Phase == director.PhaseCluster {
			f.BoolVar(&r.Install, "install", false, "create the cluster from its document if it is not installed")
		}
		return
	}
	f.StringVar(&r.Host, "host", "", "the hypervisor host, as the provider's document calls it")
	f.StringVar(&r.Node, "node", "", "this node alone")
	f.StringVar(&r.Provider, "provider", "", "whose host it is, if several providers have one of the name")
	drainFlags(cmd, &o.drain)
	if r.Phase == director.PhasePreNodeLock {
		f.BoolVar(&r.Undrained, "undrained", false, "take nodes out without a drain: what runs there ends at once")
	} else {
		f.StringArrayVar(
			&o.keys, "host-key", nil,
			"file with the public SSH host key of a VM that another program created again: NODE=FILE; may be repeated",
		)
	}
}

func (o *phaseOptions) check(cmd *cobra.Command, _ []string) error {
	r := o.request
	switch {
	case o.id == "":
		return usage(cmd, "--task-id is missing: it makes the command happen once, however often it is given")
	case r.Phase.OnNodes() && (r.Host == "") == (r.Node == ""):
		return usage(cmd, "name exactly one of --host and --node")
	case !r.Phase.OnNodes() && r.Phase != director.PhaseDirector && r.Cluster == "":
		return usage(cmd, "--cluster is missing")
	case o.timeout != 0 && !o.wait:
		return usage(cmd, "--timeout is for --wait")
	}
	return nil
}

// complete sets what the request of a phase on nodes takes from other flags, and reads the host keys.
func (o *phaseOptions) complete(cmd *cobra.Command) error {
	r := &o.request
	if !r.Phase.OnNodes() {
		return nil
	}
	r.DrainTimeout, r.Unmanaged, r.DeleteEmptyDir = o.drain.Timeout, o.drain.Unmanaged, o.drain.DeleteEmptyDir
	var nodes []string
	if r.Node != "" {
		nodes = []string{r.Node}
	}
	read, err := hostKeys(cmd, o.keys, nodes)
	if err != nil {
		return err
	}
	r.SetHostKeys(read)
	return nil
}

// phase asks for the task and, with wait, until it does not move any more.
func (a *planCommands) phase(
	ctx context.Context, api *client.Client, id string, r director.PhaseRequest, wait bool, timeout time.Duration,
) error {
	t, err := api.AskPhase(ctx, id, r)
	if err != nil {
		return err
	}
	shown := map[string]string{}
	a.showPhase(t, shown)
	if !wait && (t.State == string(director.PhaseWaiting) || t.State == string(director.PhaseRunning)) {
		say(a.out, "Task %s is taken; see how it ends by the same command with --wait\n", id)
		return nil
	}
	over := make(<-chan time.Time)
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		over = timer.C
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for t.State == string(director.PhaseWaiting) || t.State == string(director.PhaseRunning) {
		select {
		case <-ctx.Done():
			return interrupted("task %s continues; follow it with the same command", id)
		case <-over:
			return &taskError{
				text: "task " + id + " is still " + t.State + " after " + timeout.String() + ": " + t.Message,
				code: codeTimeout,
				hint: joinHints(t.Hint, "the task continues; follow it with the same command"),
			}
		case <-tick.C:
		}
		fresh, err := api.Phase(ctx, id)
		switch {
		case err == nil:
			t = fresh
			a.showPhase(t, shown)
		case director.KindOf(err) == director.KindUnavailable &&
			ctx.Err() == nil: // a director that restarts continues the task
			a.phaseLine(shown, "director", err.Error())
		case ctx.Err() == nil:
			return err
		}
	}
	return a.phaseOutcome(t)
}

// showPhase prints what is new.
func (a *planCommands) showPhase(t wire.PhaseTask, shown map[string]string) {
	for _, c := range t.Clusters {
		for _, n := range c.Nodes {
			switch {
			case n.StepsTotal == 0:
			case n.StepsDone == n.StepsTotal:
				a.phaseLine(shown, n.Name, "done, "+director.Count(n.StepsTotal, "step"))
			default:
				a.phaseLine(shown, n.Name, fmt.Sprintf("%d/%d %s (%s)", n.StepsDone, n.StepsTotal, n.Step, n.Status))
			}
		}
	}
	if p := t.Progress; p != nil && p.Stage == "writing" && p.Total > 0 {
		a.phaseLine(shown, p.Host, fmt.Sprintf("%d%% of version %s are written", p.Done*100/p.Total, p.To))
	}
	a.phaseLine(shown, "task "+t.TaskID, t.State+": "+t.Message)
}

func (a *planCommands) phaseLine(shown map[string]string, about, text string) {
	if shown[about] != text {
		shown[about] = text
		say(a.out, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), about, plain(text))
	}
}

// phaseOutcome says how the task ended.
func (a *planCommands) phaseOutcome(t wire.PhaseTask) error {
	if t.State == string(director.PhaseDone) {
		say(a.out, "Task %s is done.\n", t.TaskID)
		return nil
	}
	e := &taskError{text: "task " + t.TaskID + " is " + t.State + ": " + t.Message, hint: t.Hint, code: codePlanFailed}
	if t.State == string(director.PhaseParked) {
		e.code = codePlanParked
		return e
	}
	for _, c := range t.Clusters {
		if c.State != t.State || len(c.Plans) == 0 {
			continue
		}
		switch plan.Status(c.Plans[len(c.Plans)-1].Status) {
		case plan.StatusCancelled, plan.StatusDiscarded, plan.StatusUndone:
			e.code = codePlanStopped
		}
	}
	return e
}

package main

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *clusterCommands) nodesCommand() *cobra.Command {
	form := formTable
	var f client.NodeFilter
	cmd := &cobra.Command{
		Use: "nodes [TEXT]", Short: "List the nodes of all clusters as they were seen last",
		Long: "List the nodes of all clusters as the director saw them last; it looks at every cluster about once a " +
			"minute. With a text, only nodes whose name,\ncluster, address, host or pool contains it. To ask a " +
			"cluster now: directorctl node list CLUSTER",
		Example: "  directorctl nodes --problem\n  directorctl nodes --condition unseen,cordoned --sort -seen_at",
		Args:    between(0, "TEXT"),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			if len(args) > 0 {
				f.Text = args[0]
			}
			v, err := api.AllNodes(cmd.Context(), f)
			if err != nil {
				return err
			}
			return a.show(form, v, func() { printFleet(a.out, v) })
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.Clusters, "cluster", nil, "only nodes of these clusters")
	flags.StringSliceVar(&f.Roles, "role", nil, "master or worker")
	flags.StringSliceVar(&f.Conditions, "condition", nil, "ready, cordoned, pending, problem or unseen")
	flags.StringVar(&f.Host, "host", "", "only nodes on this hypervisor host")
	flags.StringVar(&f.Version, "version", "", "only nodes whose kubelet reports this version")
	flags.BoolVar(&f.Problem, "problem", false, "only nodes with a problem")
	flags.StringVar(&f.Sort, "sort", "", "name, cluster, role, host, address, condition, version, seen_at or ends_at; "+
		"with a minus before it, the greatest first")
	flags.IntVar(&f.Limit, "limit", 0, "at most so many nodes")
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.complete(0, clusterNames))
	outputFlag(cmd, &form)
	return cmd
}

func printFleet(w io.Writer, v wire.FleetNodes) {
	const header = "NODE CLUSTER ROLE ADDRESS HOST CONDITION VERSION CERTIFICATES SEEN PROBLEM"
	table(w, header, func(row func(...string)) {
		for _, n := range v.Items {
			problem := n.Problem
			if problem == "" && n.Condition == "unseen" {
				problem = n.Unseen
			}
			row(
				n.Name, n.Cluster, n.Role, n.Address, n.Host, n.Condition, n.Kubelet, soonestEnd(n.Node),
				since(n.SeenAt), problem,
			)
		}
	})
	if len(v.Items) < v.Total {
		say(w, "\n%d of %d nodes\n", len(v.Items), v.Total)
	}
}

// since is how long ago the time was.
func since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return age(time.Since(*t))
}

func (a *planCommands) waitsCommand() *cobra.Command {
	var owner, cluster string
	cmd := &cobra.Command{
		Use: "waits", Short: "List what plans wait for, and who ends each wait",
		Long: "List why plans do not continue: what each waits for, who ends the wait, since when, and until when at " +
			"most. The longest wait is first.",
		Example: "  directorctl waits --owner person", Args: exact(),
	}
	cmd.Flags().StringVar(&owner, "owner", "", "only waits that these end: person, director or plan")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only waits of plans of this cluster")
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.complete(0, clusterNames))
	_ = cmd.RegisterFlagCompletionFunc("owner", cobra.FixedCompletions(
		[]string{"person", "director", "plan"}, cobra.ShellCompDirectiveNoFileComp,
	))
	return shown(a.app, cmd, func(ctx context.Context, api *client.Client, _ []string) (wire.PlanWaits, error) {
		return api.Waits(ctx, owner, cluster)
	}, func(v wire.PlanWaits) { printWaitList(a.out, v) })
}

func printWaitList(w io.Writer, v wire.PlanWaits) {
	if len(v.Items) == 0 {
		say(w, "nothing waits\n")
		return
	}
	table(w, "PLAN CLUSTER STATUS OWNER SINCE UNTIL STEPS REASON", func(row func(...string)) {
		for _, w := range v.Items {
			owner, steps, until := w.Owner, "", ""
			if w.Who != "" {
				owner = w.Who
			}
			if w.Steps > 0 {
				steps = strconv.Itoa(w.Steps)
			}
			if w.Until != nil {
				until = w.Until.Format(time.DateTime)
			}
			row(w.Plan, w.Cluster, w.Status, owner, since(w.Since), until, steps, w.Reason)
		}
	})
	if len(v.Items) < v.Total {
		say(w, "\n%d of %d waits\n", len(v.Items), v.Total)
	}
}

package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *clusterCommands) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Look at nodes, and work on them: drain, delete, rejoin, replace, repair",
		Args:  exact(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.nodeListCommand(), a.nodeConsoleCommand(), a.nodeRepairCommand(), a.nodeDrainCommand(),
		a.nodeVerb(nodeVerb{op: plan.NodeCordon, use: "cordon", short: "Keep new pods from nodes"}),
		a.nodeVerb(nodeVerb{op: plan.NodeUncordon, use: "uncordon", short: "Let new pods onto nodes again"}),
		a.nodeVerb(nodeVerb{
			op: plan.NodeDelete, use: "delete",
			short: "Take nodes out of the cluster, and destroy their VMs unless told otherwise", drains: true,
			deletes: true,
			long: "Drain nodes, take them out of the cluster and destroy their VMs, or keep those with --keep-vm. " +
				"Data disks are kept and listed, unless --delete-data\n" +
				"is given: then the plan names each of them. The cluster's document stays as it is: rejoin, or\n" +
				"the next plan for the cluster, brings as many nodes back as it asks for. To have fewer for good: " +
				"directorctl scale.",
		}),
		a.nodeVerb(nodeVerb{
			op: plan.NodeRejoin, use: "rejoin",
			short: "Join nodes to the cluster again, also if their VMs are gone or off",
			long: "Join nodes to the cluster again. A VM that is gone is created again, and a VM that is off is " +
				"switched on. What an earlier membership left is\ncleared, and the node joins under its name and " +
				"address. A healthy member stays as it is.\nWith --host-key, the director takes over a VM that " +
				"another program created under the node's name and address. Its public SSH host key proves\nthat it " +
				"is the right VM.",
		}),
		a.nodeVerb(nodeVerb{
			op: plan.NodeReplace, use: "replace",
			short: "Create the VMs of nodes again and join them under the same names", drains: true, deletes: true,
			long: "Remove nodes from the cluster, one after the other, create their VMs again with the same names " +
				"and addresses, and join them. Data disks stay.\nA node that does not answer is not drained.\nWith " +
				"--host, the VMs are created on another hypervisor host; data disks remain on the old host and are " +
				"kept. If the nodes' own host does not\nanswer, it is unknown whether their VMs run. With " +
				"--lost-host you declare that it is off, or disconnected for good. The VMs are given up then.\nThe " +
				"director powers them off when the host returns, and the nodes get other addresses.",
		}),
	)
	return cmd
}

// nodeVerb is a command that plans one operation for some nodes of a cluster, and starts it.
type nodeVerb struct {
	op               plan.Operation
	use, short, long string
	drains, deletes  bool // whether it takes the flags of drains, and of what a deletion may do
}

func (a *clusterCommands) nodeVerb(v nodeVerb) *cobra.Command {
	r := plan.Request{Operation: v.op}
	var options requestOptions
	var keys []string
	cmd := &cobra.Command{
		Use: v.use + " CLUSTER NODE...", Short: v.short, Long: v.long, Args: several("CLUSTER", "NODE"),
		ValidArgsFunction: a.complete(0, clusterNames),
		Example:           "  directorctl node " + v.use + " demo demo-worker-1 --wait",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r.Nodes = args[1:]
			var err error
			if r.HostKeys, err = hostKeys(cmd, keys, r.Nodes); err != nil {
				return err
			}
			return a.request(cmd.Context(), api, args[0], r, options)
		}),
	}
	if v.drains {
		drainFlags(cmd, &r.Drain)
	}
	if v.deletes {
		cmd.Flags().BoolVar(
			&r.Undrained, "undrained", false, "remove nodes without a drain: what runs there ends at once",
		)
	}
	if v.op == plan.NodeDelete {
		cmd.Flags().BoolVar(&r.KeepVM, "keep-vm", false, "keep the VMs, outside of the cluster")
		deleteDataFlag(cmd, &r.DeleteData)
	}
	if v.op == plan.NodeReplace {
		moveFlags(cmd, &r)
	}
	if v.op == plan.NodeRejoin {
		cmd.Flags().StringArrayVar(
			&keys, "host-key", nil,
			"file with the public SSH host key of a VM that another program created: NODE=FILE, or FILE with one "+
				"node; may be repeated",
		)
	}
	options.flags(cmd)
	return cmd
}

// hostKeys reads the files that the flags name, by node. A flag without a node is for the only one of nodes.
func hostKeys(cmd *cobra.Command, flags, nodes []string) (map[string]string, error) {
	var keys map[string]string
	for _, f := range flags {
		node, file, named := strings.Cut(f, "=")
		if !named {
			if len(nodes) != 1 {
				return nil, usage(cmd, "--host-key %s does not say which node it is for: NODE=FILE", f)
			}
			node, file = nodes[0], f
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, director.Errorf(
				director.KindInvalid, "directorctl.host_key", "the host key of %s cannot be read: %w", node, err,
			).
				WithHint(
					"name the file with the public key, such as a copy of /etc/ssh/ssh_host_ed25519_key.pub of the VM",
				)
		}
		if keys == nil {
			keys = map[string]string{}
		}
		if keys[node] != "" {
			return nil, usage(cmd, "--host-key names %s twice", node)
		}
		keys[node] = strings.TrimSpace(string(text))
	}
	return keys, nil
}

func drainFlags(cmd *cobra.Command, d *plan.Drain) {
	cmd.Flags().DurationVar(
		&d.Timeout, "drain-timeout", 0,
		"how long the eviction of pods may take (default: spec.maintenance.drainTimeout of the cluster)",
	)
	cmd.Flags().BoolVar(&d.Unmanaged, "unmanaged", false, "also evict pods without a controller, which nothing "+
		"creates again")
	cmd.Flags().BoolVar(
		&d.DeleteEmptyDir, "delete-emptydir-data", false, "also evict pods whose local data is lost with them",
	)
}

// request has a plan made, shows it, and starts it after a confirmation.
func (a *app) request(
	ctx context.Context, api *client.Client, cluster string, r plan.Request, options requestOptions,
) error {
	p, err := api.MakePlan(ctx, cluster, r)
	if err != nil {
		return err
	}
	if len(p.Steps) == 0 {
		sayLine(a.out, p.Summary)
		return nil
	}
	printPlan(a.out, p)
	if options.planOnly {
		say(a.out, "\nnext: directorctl start %s --wait\n", p.ID)
		return nil
	}
	return a.startAndFollow(ctx, api, p, options.startOptions)
}

func (a *clusterCommands) nodeDrainCommand() *cobra.Command {
	cmd := a.nodeVerb(nodeVerb{
		op: plan.NodeDrain, use: "drain", short: "Evict the pods of nodes, as their disruption budgets allow",
		drains: true,
		long: "Cordon nodes and evict their pods, one node after the other. If a drain is blocked, the message " +
			"names what " +
			"blocks it, the node is uncordoned,\n" +
			"and the plan waits for a person. With --dry-run, only ask the cluster what would be evicted and what " +
			"would " +
			"block.",
	})
	drain := cmd.RunE
	var dryRun bool
	form := formTable
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show which pods would be evicted, and what would block")
	cmd.Flags().BoolVar(&dryRun, "rehearse", false, "the former name of --dry-run")
	cmd.Flags().Lookup("rehearse").Hidden = true
	outputFlag(cmd, &form)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !dryRun {
			if form != formTable {
				return usage(cmd, "--output is for --dry-run")
			}
			return drain(cmd, args)
		}
		return a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			var may plan.Drain
			may.Unmanaged, _ = cmd.Flags().GetBool("unmanaged")
			may.DeleteEmptyDir, _ = cmd.Flags().GetBool("delete-emptydir-data")
			return a.dryRunDrain(cmd.Context(), api, args[0], args[1:], may, form)
		})(cmd, args)
	}
	return cmd
}

func (a *clusterCommands) dryRunDrain(
	ctx context.Context, api *client.Client, cluster string, nodes []string, may plan.Drain, form string,
) error {
	all := map[string][]wire.Eviction{}
	for _, n := range nodes {
		list, err := api.Rehearse(ctx, cluster, n, may.Unmanaged, may.DeleteEmptyDir)
		if err != nil {
			return err
		}
		all[n] = list
	}
	return a.show(form, all, func() {
		for _, n := range nodes {
			a.printEvictions(n, all[n])
		}
	})
}

// printEvictions says what a drain of the node would move away.
func (a *app) printEvictions(node string, pods []wire.Eviction) {
	blocked := 0
	for _, e := range pods {
		if e.Blocked != "" {
			blocked++
		}
	}
	say(a.out, "%s: %s would be evicted, %d would block\n", node, director.Count(len(pods)-blocked, "pod"), blocked)
	if len(pods) == 0 {
		return
	}
	table(a.out, "POD OWNER BLOCKED_BY", func(row func(...string)) {
		for _, e := range pods {
			row(e.Namespace+"/"+e.Pod, e.Owner, e.Why)
		}
	})
}

func (a *clusterCommands) nodeListCommand() *cobra.Command {
	form := formTable
	cmd := &cobra.Command{
		Use: "list CLUSTER", Short: "Show the nodes of a cluster as director, hypervisor and cluster see them",
		Args:              exact("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			v, err := api.Nodes(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(form, v, func() { a.printNodes(args[0], v) })
		}),
	}
	outputFlag(cmd, &form)
	return cmd
}

func (a *clusterCommands) printNodes(cluster string, v wire.Nodes) {
	table(a.out, "NODE ROLE ADDRESS HOST VM VERSION WANTED STATUS CERTIFICATES PROBLEM", func(row func(...string)) {
		for _, n := range v.Items {
			row(
				n.Name, n.Role, n.Address, n.Host, n.Power, n.Version, n.Wanted, nodeStatus(n, v.Unseen == ""),
				soonestEnd(n), n.Problem,
			)
		}
	})
	if v.Unseen != "" {
		say(a.out, "\nThe cluster did not answer: %s\n", v.Unseen)
	}
	if v.AutoRepair != "" {
		say(a.out, "\nAutomatic repair: %s\n", v.AutoRepair)
	}
	if v.Plan != "" {
		say(a.out, "\nPlan %s holds the cluster: directorctl follow %s\n", v.Plan, v.Plan)
		return
	}
	for _, n := range v.Items {
		if n.Repair != "" {
			say(a.out, "\nnext: directorctl node repair %s --wait\n", cluster)
			return
		}
	}
	for _, n := range v.Items {
		if n.Hint != "" {
			say(a.out, "\nnext: %s\n", n.Hint)
			return
		}
	}
}

// soonestEnd renders the date on which the first verified certificate of the node ends.
func soonestEnd(n wire.Node) string {
	for _, c := range n.Certificates {
		if !c.Unchecked {
			return c.EndsAt.Format(time.DateOnly)
		}
	}
	return ""
}

// nodeStatus renders what the cluster says of a node.
func nodeStatus(n wire.Node, seen bool) string {
	if !seen {
		return "unknown"
	}
	s := "not ready"
	switch {
	case n.Ready:
		s = "ready"
	case n.Version == "":
		s = n.State
	}
	if n.Cordoned {
		s += ", cordoned"
	}
	if n.Role == "master" && n.Ready && !n.Etcd {
		s += ", no etcd"
	}
	return s
}

func (a *clusterCommands) nodeRepairCommand() *cobra.Command {
	var options requestOptions
	var move plan.Request
	cmd := &cobra.Command{
		Use:   "repair CLUSTER [NODE...]",
		Short: "Repair unhealthy nodes: switch on, rejoin or replace",
		Long: "Find unhealthy nodes, or check only the named ones, and plan their repair: a VM that is off is " +
			"switched on and rejoined, one that is gone or\ndoes not come back is created again. One plan repairs " +
			"all problems of one kind; the others are shown afterwards.\nWith --lost-host, nodes on a host that " +
			"does not answer are created on other hosts: see directorctl node replace --help.",
		Example:           "  directorctl node repair demo --wait",
		Args:              several("CLUSTER"),
		ValidArgsFunction: a.complete(0, clusterNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			return a.repairNodes(cmd.Context(), api, args[0], args[1:], move, options)
		}),
	}
	moveFlags(cmd, &move)
	options.flags(cmd)
	return cmd
}

// repairNodes plans the repair of the unhealthy nodes, or of the named ones, and says what is left for another plan.
func (a *clusterCommands) repairNodes(
	ctx context.Context, api *client.Client, cluster string, names []string, move plan.Request, options requestOptions,
) error {
	v, err := api.Nodes(ctx, cluster)
	if err != nil {
		return err
	}
	r, rest, err := repairOf(v, names, move.LostHost)
	if err != nil {
		return err
	}
	if r.Operation == plan.NodeReplace {
		r.Host, r.LostHost = move.Host, move.LostHost
	}
	if len(r.Nodes) == 0 {
		if err := unclear(v, cluster, move.LostHost); err != nil {
			return err
		}
		a.sayUnrepaired(cluster, v, names)
		return nil
	}
	if err := a.request(ctx, api, cluster, r, options); err != nil {
		return err
	}
	if rest > 0 {
		say(a.out, "%s left that need something else; then again: directorctl node repair %s\n",
			director.Count(rest, "node"), cluster)
	}
	return nil
}

// sayUnrepaired says that no node, or none of the named ones, needs a repair, and what else those need that have a
// problem.
func (a *clusterCommands) sayUnrepaired(cluster string, v wire.Nodes, names []string) {
	healthy := true
	for _, n := range v.Items {
		if n.Hint != "" && (len(names) == 0 || slices.Contains(names, n.Name)) {
			healthy = false
			say(a.out, "%s: %s\nnext: %s\n", n.Name, n.Problem, n.Hint)
		}
	}
	if healthy {
		say(a.out, "The nodes of Cluster/%s are healthy: nothing to do\n", cluster)
	}
}

// unclear is why nodes that have no known trouble cannot be called well: a host or the cluster does not answer.
func unclear(v wire.Nodes, cluster, lost string) error {
	if down := downHosts(v, lost); len(down) > 0 {
		return director.Errorf(
			director.KindConflict, "directorctl.repair",
			"host %s does not answer, so it is unknown whether its VMs run", down[0],
		).
			WithHint(
				"bring it back; or, if it is off or disconnected for good, create its nodes on other hosts: "+
					"directorctl node repair %s --lost-host %s",
				cluster, down[0],
			)
	}
	if v.Unseen != "" {
		return director.Errorf(
			director.KindConflict, "directorctl.repair",
			"no VM has a known problem, and the cluster did not answer: %s", v.Unseen,
		).
			WithHint("name what to do: directorctl node rejoin %s NODE, or replace", cluster)
	}
	return nil
}

func moveFlags(cmd *cobra.Command, r *plan.Request) {
	cmd.Flags().StringVar(
		&r.Host, "host", "",
		"hypervisor host on which the VMs are created (default: their current host, or a free one if that host is "+
			"lost)",
	)
	cmd.Flags().StringVar(
		&r.LostHost, "lost-host", "",
		"declare that this host of the nodes is off, or disconnected for good: its VMs are given up",
	)
}

// downHosts are the hosts of nodes that do not answer, without the one that was declared lost.
func downHosts(v wire.Nodes, lost string) []string {
	var out []string
	for _, n := range v.Items {
		if n.HostDown != "" && n.Host != lost && !slices.Contains(out, n.Host) {
			out = append(out, n.Host)
		}
	}
	return out
}

// repairOf returns the request that repairs the first problem of the nodes, with all nodes that need the same, and how
// many need something else. If a host was declared lost, only its nodes are repaired. Nodes on other hosts that do not
// answer are left out.
func repairOf(v wire.Nodes, names []string, lost string) (r plan.Request, rest int, err error) {
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	for _, n := range v.Items {
		if len(names) > 0 && !wanted[n.Name] {
			continue
		}
		delete(wanted, n.Name)
		switch op := plan.Operation(n.Repair); {
		case op == "":
		case n.Host != lost && (lost != "" || n.HostDown != ""):
			rest++
		case r.Operation == "" || r.Operation == op:
			r.Operation = op
			r.Nodes = append(r.Nodes, n.Name)
		default:
			rest++
		}
	}
	for n := range wanted {
		return r, rest, director.Errorf(director.KindNotFound, "directorctl.repair", "there is no node %q", n).
			WithHint("see: directorctl node list CLUSTER")
	}
	return r, rest, nil
}

func (a *clusterCommands) scaleCommand() *cobra.Command {
	var pools map[string]int
	var masters int
	var remove, adopt []string
	var keep, data bool
	var options requestOptions
	var drain plan.Drain
	cmd := &cobra.Command{
		Use:   "scale CLUSTER",
		Short: "Change how many nodes a cluster has",
		Long: "Write new numbers of nodes into the document of a cluster, and plan the change. With --remove, you " +
			"name the nodes that are deleted;\nwithout it, those with the highest numbers are deleted. Their data " +
			"disks are kept and listed, unless --delete-data is given. With\n--adopt-disk, a new node takes over a " +
			"disk that was kept.",
		Example: "  directorctl scale demo --pool worker=3 --wait\n  directorctl scale demo --pool worker=1 " +
			"--remove demo-worker-1\n  directorctl scale demo --masters 3",
		Args: exact("CLUSTER"), ValidArgsFunction: a.complete(0, clusterNames),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if len(pools) == 0 && !cmd.Flags().Changed("masters") {
				return usage(cmd, "name what is to change: --pool NAME=COUNT or --masters COUNT")
			}
			return nil
		},
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			adopted, err := adoptedDisks(cmd.Context(), cmd, api, adopt)
			if err != nil {
				return err
			}
			count := 0
			if cmd.Flags().Changed("masters") {
				count = masters
			}
			if err := a.setCounts(cmd.Context(), api, args[0], count, pools); err != nil {
				return err
			}
			r := plan.Request{
				Operation: plan.ClusterScale, Nodes: remove, KeepVM: keep, DeleteData: data, AdoptDisks: adopted,
				Drain: drain,
			}
			return a.request(cmd.Context(), api, args[0], r, options)
		}),
	}
	cmd.Flags().StringToIntVar(&pools, "pool", nil, "number of workers of a pool, such as worker=3; may be repeated")
	cmd.Flags().IntVar(&masters, "masters", 0, "number of masters: 1, 3 or 5")
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "the nodes that go first; may be repeated")
	cmd.Flags().BoolVar(&keep, "keep-vm", false, "leave the VMs of nodes that go")
	deleteDataFlag(cmd, &data)
	adoptDiskFlag(cmd, &adopt)
	drainFlags(cmd, &drain)
	options.flags(cmd)
	return cmd
}

// setCounts writes numbers of nodes into the document of the cluster, unless someone else has changed it meanwhile.
// masters 0 leaves theirs.
func (a *clusterCommands) setCounts(
	ctx context.Context, api *client.Client, cluster string, masters int, pools map[string]int,
) error {
	stored, err := api.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return err
	}
	docs, err := model.Parse(stored.Document, "")
	if err != nil {
		return err
	}
	c := docs[0].Cluster
	if masters > 0 {
		c.Masters.Count = masters
	}
	var names []string
	for i := range c.Workers {
		names = append(names, c.Workers[i].Name)
		if n, ok := pools[c.Workers[i].Name]; ok {
			c.Workers[i].Count = n
			delete(pools, c.Workers[i].Name)
		}
	}
	for name := range pools {
		return director.Errorf(director.KindNotFound, "directorctl.scale", "cluster %s has no pool %q", cluster, name).
			WithHint("its pools are %s; a new one is written into the document", strings.Join(names, ", "))
	}
	text, err := model.Encode(docs[0])
	if err != nil {
		return err
	}
	applied, err := api.ApplyIf(ctx, text, streamName, false, stored.ETag)
	if err != nil {
		return err
	}
	a.printChanges(applied)
	return nil
}

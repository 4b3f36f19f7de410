package operations

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// phaseTime bounds how long plans are made for one question. That goes on without the asker: what was begun is of use
// to the next one.
const phaseTime = 45 * time.Second

// AskPhase takes a task of an outer plan (requirement D5). It is written down before anything is planned, and every
// plan in the transaction that stores it, so that a director which dies anywhere in between goes on where it was when
// somebody asks again.
func (o *Operations) AskPhase(ctx context.Context, actor, id string, r director.PhaseRequest) (api.PhaseView, error) {
	if err := checkPhase(r); err != nil {
		return api.PhaseView{}, err
	}
	t, err := o.Store.PhaseTask(ctx, id)
	if director.KindOf(err) == director.KindNotFound {
		t = director.PhaseTask{
			ID: id, Request: r, By: actor, State: director.PhaseWaiting, Message: "nothing was begun yet",
			Started: o.instant(),
		}
		if err = o.acceptPhase(ctx, &t); err == nil {
			t, err = o.addPhase(ctx, t)
		}
	}
	if err != nil {
		return api.PhaseView{}, err
	}
	if t.Request != r {
		return api.PhaseView{}, director.Errorf(
			director.KindConflict, "operations.phase", "task %s was given for %s, and is now asked for %s", id,
			phaseText(t.Request), phaseText(r),
		).
			WithHint("use an id of its own for each task; look at this one: GET /phases/%s", id)
	}
	return o.movePhase(ctx, t)
}

// Phase returns the task, moved on as far as it goes now.
func (o *Operations) Phase(ctx context.Context, id string) (api.PhaseView, error) {
	t, err := o.Store.PhaseTask(ctx, id)
	if err != nil {
		return api.PhaseView{}, err
	}
	return o.movePhase(ctx, t)
}

// checkPhase refuses requests that name the wrong things for their phase.
func checkPhase(r director.PhaseRequest) error {
	var problems []director.Field
	bad := func(path, msg, hint string) {
		problems = append(problems, director.Field{Path: path, Msg: msg, Hint: hint})
	}
	switch {
	case r.Phase.OnNodes():
		if (r.Host == "") == (r.Node == "") {
			bad("host", string(r.Phase)+" is for a host or for a node", "name exactly one of host and node")
		}
		if r.Cluster != "" {
			bad("cluster", string(r.Phase)+" concerns every cluster that has nodes there", "leave it out")
		}
	default:
		if r.Cluster == "" {
			bad("cluster", string(r.Phase)+" is for a cluster", "name it")
		}
		if r.Host != "" || r.Node != "" || r.Provider != "" {
			bad("host", string(r.Phase)+" is for a cluster as a whole", "leave host, node and provider out")
		}
	}
	if r.HostKeys != "" && r.Phase != director.PhasePostNodeUnlock {
		bad("host_keys", "host keys are for "+string(director.PhasePostNodeUnlock), "leave them out")
	}
	return director.Invalid("operations.phase", "the task does not fit its phase", problems)
}

// phaseText tells what a request asks for, with all that makes it differ from another one.
func phaseText(r director.PhaseRequest) string {
	text := string(r.Phase) + " of"
	for _, part := range [][2]string{{"cluster", r.Cluster}, {"host", r.Host}, {"node", r.Node}} {
		if part[1] != "" {
			text += " " + part[0] + " " + part[1]
		}
	}
	if r.Provider != "" {
		text += " of provider " + r.Provider
	}
	var how []string
	if r.DrainTimeout != 0 {
		how = append(how, "drain timeout "+r.DrainTimeout.String())
	}
	for word, set := range map[string]bool{
		"unmanaged": r.Unmanaged, "delete emptydir": r.DeleteEmptyDir, "undrained": r.Undrained,
		"host keys of " + strings.Join(slices.Sorted(maps.Keys(r.KeysOfHosts())), ", "): r.HostKeys != "",
	} {
		if set {
			how = append(how, word)
		}
	}
	if slices.Sort(how); len(how) > 0 {
		text += " (" + strings.Join(how, ", ") + ")"
	}
	return text
}

// acceptPhase finds what a new task is about, and refuses it for what stands in its way beside other plans: those it
// waits for.
func (o *Operations) acceptPhase(ctx context.Context, t *director.PhaseTask) error {
	parts, err := o.phaseParts(ctx, t.Request)
	if err != nil {
		return err
	}
	t.Parts = parts
	for node := range t.Request.KeysOfHosts() {
		if !slices.ContainsFunc(parts, func(p director.PhasePart) bool { return slices.Contains(p.Nodes, node) }) {
			return director.Errorf(
				director.KindConflict, "operations.phase",
				"there is a host key for %s, which is not out of its cluster there", node,
			).
				WithHint(
					"lock its host before its VM is made anew, or rejoin it: directorctl node rejoin CLUSTER %s "+
						"--host-key FILE",
					node,
				)
		}
	}
	keys := t.Request.KeysOfHosts()
	if _, err := planner.CheckHostKeys(plan.Request{
		Operation: plan.NodeRejoin, Nodes: slices.Collect(maps.Keys(keys)), HostKeys: keys,
	}); err != nil {
		return err
	}
	if len(parts) == 0 {
		t.State, t.Message, t.Finished = director.PhaseDone, nothingToDo(t.Request), t.Started
		return nil
	}
	// Side by side: a cluster that does not answer takes its time, and the caller waits.
	refusals := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { refusals[i] = o.acceptPart(ctx, t.Request, p) })
	}
	all.Wait()
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

// acceptPart makes the plan that the part would have, to see what is in its way, and forgets it.
func (o *Operations) acceptPart(ctx context.Context, r director.PhaseRequest, p director.PhasePart) error {
	if err := o.mayBegin(ctx, r, p.Cluster, p.Nodes); err != nil || !r.Phase.OnNodes() {
		return err
	}
	holder, err := o.Store.Holder(ctx, p.Cluster)
	if err != nil || holder != "" {
		return err
	}
	request, err := o.phasePlan(ctx, r, p)
	if err != nil {
		return err
	}
	w, err := o.seen(ctx, p.Cluster, request)
	if err == nil {
		_, err = o.content(ctx, w, request)
	}
	return err
}

func nothingToDo(r director.PhaseRequest) string {
	what := "host " + r.Host + " has no node of a cluster"
	if r.Node != "" {
		what = "node " + r.Node + " is out of its cluster already"
	}
	if r.Phase == director.PhasePostNodeUnlock {
		what = "host " + r.Host + " has no node that is out of its cluster"
		if r.Node != "" {
			what = "node " + r.Node + " is in its cluster"
		}
	}
	return what + ": nothing is to be done"
}

// addPhase stores the task, and returns the one that is stored then: another try may have been quicker.
func (o *Operations) addPhase(ctx context.Context, t director.PhaseTask) (director.PhaseTask, error) {
	err := o.Store.Update(ctx, func(tx *store.Tx) error {
		added, err := tx.AddPhaseTask(t)
		if err != nil || !added {
			return err
		}
		for _, p := range t.Parts {
			if err := tx.Audit(o.Now(), t.By, string(t.Request.Phase)+" "+t.ID, "Cluster/"+p.Cluster); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	return o.Store.PhaseTask(ctx, t.ID)
}

// phaseParts finds the clusters that the request concerns now, and their nodes in the order in which they are worked
// on. A cluster that a plan holds and that has machines there is one of them whatever their state is, because the plan
// may change that.
func (o *Operations) phaseParts(ctx context.Context, r director.PhaseRequest) ([]director.PhasePart, error) {
	if !r.Phase.OnNodes() {
		if _, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: r.Cluster}); err != nil {
			return nil, err
		}
		return []director.PhasePart{{Cluster: r.Cluster, State: director.PhaseWaiting}}, nil
	}
	machines, err := o.machinesAt(ctx, r)
	if err != nil {
		return nil, err
	}
	// Workers leave first and masters come back first: the control plane is whole for as long as it can be.
	slices.SortStableFunc(machines, func(a, b director.Machine) int {
		first := director.RoleWorker
		if r.Phase == director.PhasePostNodeUnlock {
			first = director.RoleMaster
		}
		if a.Role == b.Role {
			return strings.Compare(a.Name, b.Name)
		}
		if a.Role == first {
			return -1
		}
		return 1
	})
	clusters := map[string][]string{}
	for _, m := range machines {
		nodes := clusters[m.Cluster]
		if concerned(r.Phase, m) {
			nodes = append(nodes, m.Name)
		}
		clusters[m.Cluster] = nodes
	}
	if r.Phase == director.PhasePostNodeUnlock {
		if err := o.leaveSpare(ctx, clusters); err != nil {
			return nil, err
		}
	}
	var parts []director.PhasePart
	for cluster, nodes := range clusters {
		holder, err := o.Store.Holder(ctx, cluster)
		if err != nil {
			return nil, err
		}
		// machines of a creation that stopped half way have no cluster to come back to
		if r.Phase == director.PhasePostNodeUnlock && len(nodes) > 0 {
			if _, installed, err := o.Store.Installed(ctx, cluster); err != nil {
				return nil, err
			} else if !installed {
				nodes = nil
			}
		}
		if len(nodes) > 0 || holder != "" {
			parts = append(parts, director.PhasePart{Cluster: cluster, Nodes: nodes, State: director.PhaseWaiting})
		}
	}
	slices.SortFunc(parts, func(a, b director.PhasePart) int { return strings.Compare(a.Cluster, b.Cluster) })
	return parts, nil
}

// leaveSpare takes the nodes off the lists, by cluster, whose VMs are kept and that no document asks for: they do not
// come back.
func (o *Operations) leaveSpare(ctx context.Context, clusters map[string][]string) error {
	for cluster, nodes := range clusters {
		if len(nodes) == 0 {
			continue
		}
		w, err := o.world(ctx, cluster)
		if director.KindOf(err) == director.KindNotFound {
			continue
		}
		if err != nil {
			return err
		}
		spare := w.Spare()
		clusters[cluster] = slices.DeleteFunc(nodes, func(n string) bool { return spare[n] })
	}
	return nil
}

// concerned reports whether the phase has work on the machine.
func concerned(p director.PhaseName, m director.Machine) bool {
	if p == director.PhasePostNodeUnlock {
		return planner.Out(m)
	}
	return m.Kubernetes != ""
}

// machinesAt lists the machines on the host, or the one that is the node. A host that no provider knows is an error: to
// say that it is free of nodes would be a guess.
func (o *Operations) machinesAt(ctx context.Context, r director.PhaseRequest) ([]director.Machine, error) {
	const op = "operations.phase"
	docs, err := o.Store.Documents(ctx, model.KindProvider)
	if err != nil {
		return nil, err
	}
	all, err := o.Store.Machines(ctx, store.MachineFilter{Provider: r.Provider})
	if err != nil {
		return nil, err
	}
	var here []director.Machine
	for _, m := range all {
		if m.Name == r.Node || (r.Host != "" && m.Host == r.Host) {
			here = append(here, m)
		}
	}
	if r.Node != "" {
		switch len(here) {
		case 0:
			return nil, director.Errorf(director.KindNotFound, op, "no cluster has a node %q", r.Node).
				WithHint("see: directorctl node list CLUSTER")
		case 1:
			return here, nil
		}
		return nil, director.Errorf(
			director.KindConflict, op, "clusters %s and %s both have a node %s", here[0].Cluster, here[1].Cluster,
			r.Node,
		).
			WithHint("name the provider, or the host")
	}
	var owners, hosts []string
	known := false
	for _, d := range docs {
		if r.Provider != "" && d.Metadata.Name != r.Provider {
			continue
		}
		known = true
		hosts = append(hosts, d.Provider.HostNames()...)
		if slices.Contains(d.Provider.HostNames(), r.Host) ||
			slices.ContainsFunc(here, func(m director.Machine) bool { return m.Provider == d.Metadata.Name }) {
			owners = append(owners, d.Metadata.Name)
		}
	}
	switch {
	case r.Provider != "" && !known:
		return nil, director.Errorf(director.KindNotFound, op, "there is no Provider/%s", r.Provider).
			WithHint("see: directorctl get providers")
	case len(owners) == 0:
		return nil, director.Errorf(director.KindNotFound, op, "no provider has a host %q", r.Host).
			WithHint("the hosts are %s", strings.Join(hosts, ", "))
	case len(owners) > 1:
		return nil, director.Invalid(op, "several providers have a host "+r.Host, []director.Field{
			{Path: "provider", Msg: "is needed here", Hint: "one of " + strings.Join(owners, ", ")},
		})
	}
	return here, nil
}

// mayBegin checks what the phase asks of a cluster beside that no plan holds it.
func (o *Operations) mayBegin(ctx context.Context, r director.PhaseRequest, cluster string, nodes []string) error {
	switch r.Phase {
	case director.PhasePreNodeLock:
		w, err := o.world(ctx, cluster)
		if err != nil {
			return err
		}
		leaving, err := o.leaving(ctx, cluster)
		if err != nil {
			return err
		}
		host := r.Host
		for _, m := range w.Machines {
			if m.Name == r.Node && m.Deleted.IsZero() {
				host = m.Host
			}
		}
		return planner.TakeOut(w, host, nodes, leaving)
	case director.PhaseCluster, director.PhasePostCluster:
		holder, err := o.Store.Holder(ctx, cluster)
		if err != nil || holder != "" {
			return err // what a plan is at is judged after it
		}
		return o.allWell(ctx, cluster)
	}
	return nil
}

// leaving returns the nodes that the plan which holds the cluster takes out for good or for a time.
func (o *Operations) leaving(ctx context.Context, cluster string) ([]string, error) {
	holder, err := o.Store.Holder(ctx, cluster)
	if err != nil || holder == "" {
		return nil, err
	}
	p, _, err := o.Store.Plan(ctx, holder)
	if err != nil || (p.Operation != plan.NodeDelete && p.Operation != plan.NodeReplace) {
		return nil, err
	}
	return p.Request.Nodes, nil
}

// allWell returns nil if the cluster is installed and every node of it is well, and otherwise a conflict that names
// those that are not.
func (o *Operations) allWell(ctx context.Context, cluster string) error {
	const op = "operations.phase"
	v, err := o.Nodes(ctx, cluster)
	if err != nil {
		return err
	}
	if _, installed, err := o.Store.Installed(ctx, cluster); err != nil {
		return err
	} else if !installed {
		return director.Errorf(director.KindConflict, op, "cluster %s is not installed", cluster).
			WithHint("finish its creation first: directorctl plan %s", cluster)
	}
	if v.Unseen != "" && v.Unseen != pretends {
		return director.Errorf(
			director.KindConflict, op, "nobody knows how the nodes of cluster %s are: %s", cluster, v.Unseen,
		).
			WithHint("bring its Kubernetes API back first; see: directorctl node list %s", cluster)
	}
	var ill []string
	for _, n := range v.Nodes {
		switch soon, ended := endingCertificates(n.Certificates, o.Now()); {
		case n.Problem != "" &&
			(n.Problem != soon || ended): // certificates that only end soon do not stand in the way of a host
			ill = append(ill, n.Name+": "+n.Problem)
		case n.Version == "" && !n.Spare:
			ill = append(ill, n.Name+": it is not in the cluster yet")
		}
	}
	if len(ill) > 0 {
		return director.Errorf(
			director.KindConflict, op, "nodes of cluster %s are not well: %s", cluster, strings.Join(ill, "; "),
		).
			WithHint("mend them first: directorctl node repair %s --wait", cluster)
	}
	return nil
}

// phasePlan returns the plan that the part needs next. Nodes cannot join while the document asks for a release that the
// masters do not run yet: then the members are upgraded first, and the nodes come back at that release.
func (o *Operations) phasePlan(
	ctx context.Context, r director.PhaseRequest, p director.PhasePart,
) (plan.Request, error) {
	drain := plan.Drain{Timeout: r.DrainTimeout, Unmanaged: r.Unmanaged, DeleteEmptyDir: r.DeleteEmptyDir}
	if r.Phase == director.PhasePreNodeLock {
		return plan.Request{
			Operation: plan.NodeDelete, Nodes: p.Nodes, KeepVM: true, Undrained: r.Undrained, Drain: drain,
		}, nil
	}
	w, err := o.world(ctx, p.Cluster)
	if err != nil {
		return plan.Request{}, err
	}
	if runs, _ := w.Behind(); runs != "" {
		return plan.Request{Operation: plan.ClusterUpgrade, Drain: drain}, nil
	}
	request := plan.Request{Operation: plan.NodeRejoin, Nodes: p.Nodes}
	for node, key := range r.KeysOfHosts() {
		if slices.Contains(p.Nodes, node) {
			if request.HostKeys == nil {
				request.HostKeys = map[string]string{}
			}
			request.HostKeys[node] = key
		}
	}
	return request, nil
}

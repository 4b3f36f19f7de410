// Package apitest is an in-memory director behind the real API, for tests of the API, the client and the command line
// that need what a director that simulates does not give: plans that fail, ask or hold at a known step, and answers
// that break off. Whatever else the command line does is tested with a director that simulates.
// Documents are parsed and compared by the real model, plans move by the real life cycle; only the world is missing.
// Labels on a Cluster choose what its plans run into: fail, ask, hold (until the test releases or cancels it).
package apitest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
)

// LabelRuns is the label of a Cluster that says what its plans run into: "fail", "ask" or "hold". It happens once for
// each plan: a retry goes through.
const LabelRuns = "runs"

// Operations implements the ports of the API that Ports sets.
type Operations struct {
	// Async lets plans run after the answer to who started them, as a director does. It must be set before the first
	// use.
	Async bool

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	docs    map[model.Ref]model.Stored
	plans   []*run
	up      map[string]bool // clusters whose VMs exist
	tasks   map[string]director.PhaseTask
	stream  []director.StreamEvent
	pruned  int64 // of the stream
	now     func() time.Time
}

type run struct {
	plan   plan.Plan
	state  plan.State
	events []plan.Event
	logs   map[string][]byte
	runs   string // what it still runs into
	held   bool
}

// Ports are the ports with this director behind them. The others are types of their own.
func (o *Operations) Ports() api.Ports {
	return api.Ports{
		Documents: o, Clusters: Clusters{o}, Nodes: Nodes{o}, Planning: o, Archives: o, Journal: o, Phases: o,
		Access: Access{o},
	}
}

// Clusters shows the clusters of the operations.
type Clusters struct{ *Operations }

// Nodes shows the nodes of the operations.
type Nodes struct{ *Operations }

// Access gives access to the clusters of the operations.
type Access struct{ *Operations }

// New returns a director without documents. Its clock is now, or time.Now for nil.
func New(now func() time.Time) *Operations {
	if now == nil {
		now = time.Now
	}
	return &Operations{
		changed: make(chan struct{}), docs: map[model.Ref]model.Stored{}, up: map[string]bool{}, now: now,
	}
}

func (o *Operations) wake() {
	close(o.changed)
	o.changed = make(chan struct{})
}

func notFound(format string, args ...any) error {
	return director.Errorf(director.KindNotFound, "apitest.get", format, args...)
}

// CountClusters counts nothing.
func (o Clusters) CountClusters(context.Context, clusters.Query) (clusters.Facets, error) {
	return clusters.Facets{}, nil
}

// CountedClusters lists clusters, and counts nothing.
func (o Clusters) CountedClusters(
	ctx context.Context, q clusters.Query,
) ([]clusters.View, *director.Place, clusters.Facets, error) {
	views, next, err := o.ListClusters(ctx, q)
	return views, next, clusters.Facets{}, err
}

// ClusterView is the state of a cluster.
func (o Clusters) ClusterView(_ context.Context, name string) (clusters.View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, ok := o.docs[model.Ref{Kind: model.KindCluster, Name: name}]
	if !ok {
		return clusters.View{}, notFound("there is no Cluster/%s", name)
	}
	return o.cluster(d), nil
}

func (o *Operations) cluster(d model.Stored) clusters.View {
	name := d.Metadata.Name
	v := clusters.View{Name: name, Generation: d.Generation, Status: "absent", Release: d.Cluster.Release}
	if o.up[name] {
		v.Status, v.Endpoint = "ready", "https://10.88.0.10:6443"
		for _, m := range machines(name) {
			v.Machines = append(v.Machines, clusters.Machine{
				Name: m.Name, Role: m.Role, Pool: m.Pool, Address: m.Address, Host: "host1", State: "present", CPUs: 2,
				Memory: 4 * model.GiB,
			})
		}
		v.Nodes = len(v.Machines)
	}
	if r := o.holder(name); r != nil {
		v.Plan, v.PlanStatus = r.plan.ID, r.state.Status
	}
	return v
}

func (o *Operations) holder(cluster string) *run {
	for _, r := range o.plans {
		if r.plan.Cluster == cluster && r.state.Status.Active() {
			return r
		}
	}
	return nil
}

func machines(cluster string) []plan.Machine {
	return []plan.Machine{
		{
			ID: "m1", Name: cluster + "-master-1", Role: "master", Pool: "master", Address: "10.88.0.10",
			MAC: "52:54:00:00:00:0a",
		},
		{
			ID: "m2", Name: cluster + "-worker-1", Role: "worker", Pool: "worker", Address: "10.88.0.11",
			MAC: "52:54:00:00:00:0b",
		},
	}
}

// MakePlan freezes a plan of four steps.
func (o *Operations) MakePlan(_ context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, ok := o.docs[model.Ref{Kind: model.KindCluster, Name: cluster}]
	if !ok {
		return plan.View{}, notFound("there is no Cluster/%s", cluster)
	}
	if h := o.holder(cluster); h != nil {
		e := director.Errorf(director.KindConflict, "apitest.plan", "plan %s holds cluster %s", h.plan.ID, cluster).
			WithHint("follow it with: directorctl follow %s", h.plan.ID)
		e.Holder = &director.Holder{Plan: h.plan.ID, Cluster: cluster, By: h.plan.CreatedBy, Since: h.state.StartedAt}
		return plan.View{}, e
	}
	op := cmp.Or(r.Operation, plan.ClusterCreate)
	c := plan.Content{
		Operation: op, Request: r, Cluster: cluster, Playbooks: "0123abcd", Machines: machines(cluster),
		Models: []plan.ModelRef{{Kind: "Cluster", Name: cluster, Generation: d.Generation}},
	}
	switch {
	case op == plan.ClusterCreate && !o.up[cluster]:
		c.Summary = "create cluster " + cluster + " of 1 master and 1 worker"
		c.Warnings = []string{"emulated hosts are slow"}
		c.Steps = createSteps(cluster)
	case op == plan.ClusterDelete && o.up[cluster]:
		c.Summary = "delete cluster " + cluster
		c.Steps = []plan.Step{
			step("vm.delete/"+cluster+"-worker-1", cluster+"-worker-1", "Delete VM", nil, "delete"),
			step("vm.delete/"+cluster+"-master-1", cluster+"-master-1", "Delete VM", nil, "delete"),
		}
	case op.OnNodes() && o.up[cluster]:
		c.Summary = string(op) + " " + strings.Join(r.Nodes, ", ")
		for _, n := range r.Nodes {
			c.Steps = append(c.Steps, step(string(op)+"/"+n, n, c.Summary, nil, "change"))
		}
	default:
		c.Machines = nil
	}
	c.Estimate = plan.CriticalPath(c.Steps)
	made := &run{
		plan: plan.Plan{
			ID: fmt.Sprintf("p%04d", len(o.plans)+1), CreatedAt: o.now().UTC(), CreatedBy: actor, Content: c,
			Hash: plan.HashOf(c),
		},
		logs: map[string][]byte{}, runs: d.Metadata.Labels[LabelRuns],
	}
	made.state = plan.NewState(&made.plan)
	if len(c.Steps) > 0 {
		o.plans = append(o.plans, made)
	}
	return made.view(), nil
}

// Check finds nothing to say against any cluster that exists.
func (o *Operations) Check(ctx context.Context, cluster string, _ plan.Request) (planning.CheckView, error) {
	_, err := o.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	return planning.CheckView{Cluster: cluster, Operation: plan.ClusterCreate, Steps: 9}, err
}

// Nodes shows the two nodes of a cluster that is up.
func (o Nodes) Nodes(_ context.Context, cluster string) (nodes.View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.docs[model.Ref{Kind: model.KindCluster, Name: cluster}]; !ok {
		return nodes.View{}, notFound("there is no Cluster/%s", cluster)
	}
	if !o.up[cluster] {
		return nodes.View{Unseen: "cluster " + cluster + " is not installed"}, nil
	}
	return nodes.View{Nodes: []nodes.Node{
		{
			Name: cluster + "-master-1", Role: "master", Pool: "master", Address: "10.88.0.10", State: "present",
			Power: "on", Version: "v1.37.1", Wanted: "v1.37.1", Ready: true, Etcd: true, Certificates: certificates(),
		},
		{
			Name: cluster +
				"-worker-1", Role: "worker", Pool: "worker", Address: "10.88.0.11", State: "present", Power: "off",
			Version: "v1.37.1", Wanted: "v1.37.1",
			Reason: "NodeStatusUnknown: Kubelet stopped posting node status.", Problem: "its VM is switched off",
			Repair: plan.NodeRejoin,
		},
	}}, nil
}

// certificates are of a master: the kubelet's own end first, and nothing relies on them.
func certificates() []nodes.Certificate {
	seen := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return []nodes.Certificate{
		{Name: "kubelet", Ends: seen.AddDate(0, 1, 0), Seen: seen, Unchecked: true},
		{Name: "apiserver", Ends: seen.AddDate(0, 10, 0), Seen: seen},
		{Name: "etcd", Ends: seen.AddDate(0, 11, 0), Seen: seen},
	}
}

// Console shows one line.
func (o Nodes) Console(_ context.Context, cluster, node string, _ int) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.up[cluster] {
		return "", notFound("there is no node %s", node)
	}
	return node + " login:", nil
}

// Rehearse shows one pod that would go and one that a budget holds.
func (o Nodes) Rehearse(_ context.Context, cluster, node string, _ kube.DrainLimits) ([]kube.Eviction, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.up[cluster] {
		return nil, notFound("there is no node %s", node)
	}
	return []kube.Eviction{
		{Namespace: "shop", Pod: "cart-1", Owner: "ReplicaSet/cart"},
		{
			Namespace: "shop", Pod: "db-0", Owner: "StatefulSet/db", Blocked: "budget",
			Why: "disruption budget db allows no disruption: 1 of its pods are healthy and 1 have to be",
		},
	}, nil
}

// RehearseDrains shows no drain.
func (o Nodes) RehearseDrains(ctx context.Context, _ string) (nodes.Drains, error) {
	return nodes.Drains{}, ctx.Err()
}

func createSteps(cluster string) []plan.Step {
	master, worker := cluster+"-master-1", cluster+"-worker-1"
	return []plan.Step{
		step("network.ensure/"+cluster, "", "Make the network", nil, "create"),
		step("vm.ensure/"+master, master, "Make VM", []string{"network.ensure/" + cluster}, "create"),
		step("vm.ensure/"+worker, worker, "Make VM", []string{"network.ensure/" + cluster}, "create"),
		step(
			"ansible.play/verify", "", "Check the cluster", []string{"vm.ensure/" + master, "vm.ensure/" + worker}, "",
		),
	}
}

func step(id, node, title string, needs []string, verb string) plan.Step {
	kind, subject, _ := strings.Cut(id, "/")
	s := plan.Step{
		ID: id, Kind: kind, Title: title + " " + subject, Node: node, Needs: needs, Attempts: 3, Timeout: time.Minute,
		Estimate: 30 * time.Second,
		Safety:   "the cluster does not exist yet; nothing runs on it",
	}
	if verb != "" {
		object, _, _ := strings.Cut(kind, ".")
		s.Effects = []plan.Effect{{Verb: verb, Object: object, Name: subject}}
	}
	return s
}

func (r *run) view() plan.View {
	s := r.state
	s.Steps = slices.Clone(s.Steps)
	return plan.View{Plan: r.plan, State: s}
}

func (o *Operations) find(id string) (*run, error) {
	for _, r := range o.plans {
		if r.plan.ID == id {
			return r, nil
		}
	}
	return nil, notFound("there is no plan %s", id)
}

// emit appends an event; what the life cycle does not allow is a conflict.
func (o *Operations) emit(r *run, e plan.Event) error {
	e.Plan, e.Seq, e.At = r.plan.ID, int64(len(r.events)+1), o.now().UTC()
	if err := r.state.Apply(e); err != nil {
		return &director.Error{
			Kind: director.KindConflict, Op: "apitest.emit", Msg: "plan " + r.plan.ID + " is " + string(r.state.Status),
			Err: err,
		}
	}
	r.events = append(r.events, e)
	o.announce(director.StreamEvent{
		Source: director.SourcePlan, Kind: "Plan", Name: e.Plan, Cluster: r.plan.Cluster, What: string(e.Kind),
		By:   e.By,
		Step: e.Step, Attempt: e.Attempt, Seq: e.Seq, Message: e.Message, Hint: e.Hint,
	})
	return nil
}

// advance runs steps until the plan has ended or is held.
func (o *Operations) advance(r *run) {
	if !o.Async {
		o.work(r)
		return
	}
	go func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.work(r)
	}()
}

func (o *Operations) work(r *run) {
	for {
		ready := plan.Ready(&r.plan, &r.state, o.now())
		if len(ready) == 0 {
			break
		}
		if r.runs == "hold" && r.state.Step(ready[0]).ID != r.plan.Steps[0].ID {
			r.held = true
			return
		}
		id := ready[0]
		attempt := r.state.Step(id).Attempt + 1
		_ = o.emit(r, plan.Event{Kind: plan.Started, Step: id, Attempt: attempt})
		r.logs[id] = fmt.Appendf(
			r.logs[id], `{"time":%q,"level":"INFO","msg":"acting","attempt":%d}`+"\n",
			o.now().UTC().Format(time.RFC3339), attempt,
		)
		e := plan.Event{Kind: plan.Succeeded, Step: id, Attempt: attempt}
		if id == r.plan.Steps[len(r.plan.Steps)-1].ID {
			switch r.runs {
			case "fail":
				r.logs[id] = append(
					r.logs[id],
					`{"type":"host","host":"demo-master-1","status":"failed","msg":"no route to host"}`+"\n"...,
				)
				e.Kind, e.Message, e.Hint = plan.Aborted,
					"the task Check nodes failed on demo-master-1: no route to host", "look at the VM's console"
			case "ask":
				e.Kind, e.Message, e.Hint = plan.NeedsHuman, "is the rack powered?", "power it"
			}
			r.runs = ""
		}
		_ = o.emit(r, e)
	}
	o.settle(r)
}

func (o *Operations) settle(r *run) {
	e, ok := plan.Settle(&r.plan, &r.state)
	if !ok {
		return
	}
	if e.Kind == plan.PlanDone { // before anybody can see the plan's end
		o.up[r.plan.Cluster] = r.plan.Operation != plan.ClusterDelete
		if r.plan.Operation == plan.ClusterDelete {
			delete(o.docs, model.Ref{Kind: model.KindCluster, Name: r.plan.Cluster})
		}
	}
	_ = o.emit(r, e)
}

// Release lets every held plan go on.
func (o *Operations) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.plans {
		if r.runs == "hold" {
			r.held, r.runs = false, ""
			o.advance(r)
		}
	}
}

func (o *Operations) change(id string, do func(*run) error) (plan.View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(id)
	if err == nil {
		err = do(r)
	}
	if err != nil {
		return plan.View{}, err
	}
	return r.view(), nil
}

// PlanAgain makes the plan once more.
func (o *Operations) PlanAgain(ctx context.Context, actor, id string) (plan.View, error) {
	o.mu.Lock()
	r, err := o.find(id)
	o.mu.Unlock()
	if err != nil {
		return plan.View{}, err
	}
	return o.MakePlan(ctx, actor, r.plan.Cluster, r.plan.Request)
}

// StartPlan starts a plan and runs it as far as it goes.
func (o *Operations) StartPlan(_ context.Context, actor, id, hash string) (plan.View, error) {
	return o.change(id, func(r *run) error {
		if r.plan.Hash != hash {
			return director.Errorf(director.KindConflict, "apitest.start", "plan %s has another hash", id)
		}
		err := o.emit(r, plan.Event{Kind: plan.PlanStarted, By: actor})
		if err == nil {
			o.advance(r)
		}
		return err
	})
}

// MovePlan does what the verb says, as far as tests of the API and the command line need it.
func (o *Operations) MovePlan(_ context.Context, actor, id string, m planning.Move) (plan.View, error) {
	return o.change(id, func(r *run) error {
		ev := func(kind plan.EventKind) error {
			return o.emit(r, plan.Event{Kind: kind, By: actor, Message: m.Reason})
		}
		switch m.Verb {
		case planning.VerbApprove:
			return ev(plan.PlanApproved)
		case planning.VerbPause:
			return ev(plan.PlanPaused)
		case planning.VerbDiscard:
			return ev(plan.PlanDiscarded)
		case planning.VerbUndo:
			err := ev(plan.PlanUndo)
			o.settle(r)
			return err
		case planning.VerbCancel:
			if r.state.Status.Ended() {
				return nil
			}
			err := ev(plan.PlanCancel)
			o.settle(r)
			return err
		case planning.VerbSkip:
			if err := o.emit(r, plan.Event{
				Kind: plan.SkipAsked, Step: m.Step, By: actor, Message: m.Reason,
			}); err != nil {
				return err
			}
		case planning.VerbRetry:
		}
		return o.goOn(r, actor)
	})
}

// goOn resumes a stopped plan.
func (o *Operations) goOn(r *run, actor string) error {
	if err := o.emit(r, plan.Event{Kind: plan.PlanResumed, By: actor}); err != nil {
		return err
	}
	for _, s := range slices.Clone(r.state.Steps) {
		if s.Status == plan.Failed || s.Status == plan.Parked {
			_ = o.emit(r, plan.Event{Kind: plan.Retried, Step: s.ID, By: actor})
		}
	}
	r.runs = ""
	o.advance(r)
	return nil
}

// Plan returns a plan.
func (o *Operations) Plan(_ context.Context, id string) (plan.View, error) {
	return o.change(id, func(*run) error { return nil })
}

// Events returns events, and waits for the first.
func (o *Operations) Events(ctx context.Context, id string, after int64, wait time.Duration) ([]plan.Event, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		o.mu.Lock()
		r, err := o.find(id)
		changed := o.changed
		var events []plan.Event
		if err == nil && after < int64(len(r.events)) {
			events = slices.Clone(r.events[after:])
		}
		o.mu.Unlock()
		if err != nil || len(events) > 0 || wait == 0 {
			return events, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Progress returns how far the plan is.
func (o *Operations) Progress(ctx context.Context, id string) (plan.Status, int64, error) {
	v, err := o.Plan(ctx, id)
	return v.State.Status, v.State.Seq, err
}

// StepLog opens a log.
func (o *Operations) StepLog(_ context.Context, id, step string, _ int, offset int64) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(id)
	if err != nil {
		return nil, err
	}
	log, ok := r.logs[step]
	if !ok || offset > int64(len(log)) {
		return nil, notFound("there is no log of step %s", step)
	}
	return io.NopCloser(bytes.NewReader(slices.Clone(log[offset:]))), nil
}

// Archive writes a text instead of an archive. It breaks off in the middle for a failed plan.
func (o *Operations) Archive(_ context.Context, actor, id string) (func(io.Writer) error, error) {
	v, err := o.change(id, func(*run) error { return nil })
	return func(w io.Writer) error {
		if _, err := fmt.Fprintf(
			w, "archive of %s for %s\n", id, actor,
		); err != nil || v.State.Status != plan.StatusFailed {
			return err
		}
		return director.Errorf(director.KindInternal, "apitest.archive", "a log cannot be read")
	}, err
}

// Inventory returns two files.
func (o Access) Inventory(_ context.Context, cluster string) (map[string][]byte, error) {
	return map[string][]byte{
		"hosts.ini":          []byte("[master]\n" + cluster + "-master-1 ansible_host=10.88.0.10\n"),
		"group_vars/all.yml": []byte("cluster_name: " + cluster + "\n"),
	}, nil
}

// ExportInventory returns a file of secrets too.
func (o Access) ExportInventory(ctx context.Context, _, cluster string, _ time.Duration) (map[string][]byte, error) {
	files, err := o.Inventory(ctx, cluster)
	files["secrets.json"] = []byte("{}\n")
	return files, err
}

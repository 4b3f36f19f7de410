// Package apitest is an in-memory director behind the real API, for tests of the API and of its client in one process.
// It has what a director that simulates cannot give them: plans that fail, ask or wait at a known step and make the
// same events each time, a stream of events that is cut, and an archive that breaks off. Whole directors are tested
// with the one that simulates, and users with the real database.
//
// Documents are parsed and compared by the real model, plans move by the real life cycle; only the world is missing.
// Labels on a Cluster choose what its plans run into: fail, ask, hold (until the test releases or cancels it).
package apitest

import (
	"bytes"
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
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
)

// LabelRuns is the label of a Cluster that says what its plans run into: "fail", "ask" or "hold". It happens once for
// each plan.
const LabelRuns = "runs"

// Operations implements the ports of the API that Ports sets.
type Operations struct {
	api.Planning // nil: no test asks for what is not here

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	docs    map[model.Ref]model.Stored
	plans   []*run
	stream  []director.StreamEvent
	pruned  int64 // of the stream
}

type run struct {
	plan   plan.Plan
	state  plan.State
	events []plan.Event
	logs   map[string][]byte
	runs   string // what it still runs into
}

// Ports are the ports with this director behind them. The others are nil.
func (o *Operations) Ports() api.Ports {
	return api.Ports{
		Documents: o, Clusters: Clusters{o}, Planning: o, Archives: o, Journal: o, Access: Access{},
	}
}

// Clusters shows the clusters of the operations, none of which is ever made.
type Clusters struct{ *Operations }

// Access has inventories.
type Access struct {
	api.Access // nil: no test asks for what is not here
}

// New returns a director without documents.
func New() *Operations {
	return &Operations{changed: make(chan struct{}), docs: map[model.Ref]model.Stored{}}
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
	v := clusters.View{
		Name: d.Metadata.Name, Generation: d.Generation, Status: "absent", Release: d.Cluster.Release,
	}
	if r := o.holder(v.Name); r != nil {
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
	c := plan.Content{
		Operation: plan.ClusterCreate, Request: r, Cluster: cluster, Summary: "create cluster " + cluster,
		Models: []plan.ModelRef{{Kind: "Cluster", Name: cluster, Generation: d.Generation}}, Steps: steps(cluster),
	}
	made := &run{
		plan: plan.Plan{
			ID: fmt.Sprintf("p%04d", len(o.plans)+1), CreatedAt: time.Now().UTC(), CreatedBy: actor, Content: c,
			Hash: plan.HashOf(c),
		},
		logs: map[string][]byte{}, runs: d.Metadata.Labels[LabelRuns],
	}
	made.state = plan.NewState(&made.plan)
	o.plans = append(o.plans, made)
	return made.view(), nil
}

// steps are those of every plan: a network, two VMs that need it, and a check that needs both.
func steps(cluster string) []plan.Step {
	network := "network.ensure/" + cluster
	master, worker := "vm.ensure/"+cluster+"-master-1", "vm.ensure/"+cluster+"-worker-1"
	var out []plan.Step
	for _, s := range []plan.Step{
		{ID: network},
		{ID: master, Needs: []string{network}},
		{ID: worker, Needs: []string{network}},
		{ID: lastStep, Needs: []string{master, worker}},
	} {
		s.Kind, _, _ = strings.Cut(s.ID, "/")
		s.Title, s.Attempts, s.Timeout = "Do "+s.ID, 3, time.Minute
		out = append(out, s)
	}
	return out
}

// lastStep is the step at which plans fail and ask.
const lastStep = "ansible.play/verify"

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
	e.Plan, e.Seq, e.At = r.plan.ID, int64(len(r.events)+1), time.Now().UTC()
	if err := r.state.Apply(e); err != nil {
		return &director.Error{
			Kind: director.KindConflict, Op: "apitest.emit", Msg: "plan " + r.plan.ID + " is " + string(r.state.Status),
			Err: err,
		}
	}
	r.events = append(r.events, e)
	o.announce(director.StreamEvent{
		Source: director.SourcePlan, Kind: "Plan", Name: e.Plan, Cluster: r.plan.Cluster, What: string(e.Kind),
		By: e.By, Step: e.Step, Attempt: e.Attempt, Seq: e.Seq, Message: e.Message, Hint: e.Hint,
	})
	return nil
}

// work runs steps until the plan has ended or waits for Release.
func (o *Operations) work(r *run) {
	for {
		ready := plan.Ready(&r.plan, &r.state, time.Now())
		if len(ready) == 0 {
			break
		}
		if r.runs == "hold" && r.state.Step(ready[0]).ID != r.plan.Steps[0].ID {
			return
		}
		id := ready[0]
		attempt := r.state.Step(id).Attempt + 1
		_ = o.emit(r, plan.Event{Kind: plan.Started, Step: id, Attempt: attempt})
		r.logs[id] = fmt.Appendf(
			r.logs[id], `{"time":%q,"level":"INFO","msg":"acting","attempt":%d}`+"\n",
			time.Now().UTC().Format(time.RFC3339), attempt,
		)
		e := plan.Event{Kind: plan.Succeeded, Step: id, Attempt: attempt}
		if id == lastStep {
			switch r.runs {
			case "fail":
				e.Kind, e.Message = plan.Aborted, "no route to host"
			case "ask":
				e.Kind, e.Message, e.Hint = plan.NeedsHuman, "is the rack powered?", "power it"
			}
		}
		_ = o.emit(r, e)
	}
	o.settle(r)
}

func (o *Operations) settle(r *run) {
	if e, ok := plan.Settle(&r.plan, &r.state); ok {
		_ = o.emit(r, e)
	}
}

// Release lets every plan go on that waits.
func (o *Operations) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.plans {
		if r.runs == "hold" {
			r.runs = ""
			o.work(r)
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

// StartPlan starts a plan and runs it as far as it goes.
func (o *Operations) StartPlan(_ context.Context, actor, id, hash string) (plan.View, error) {
	return o.change(id, func(r *run) error {
		if r.plan.Hash != hash {
			return director.Errorf(director.KindConflict, "apitest.start", "plan %s has another hash", id)
		}
		err := o.emit(r, plan.Event{Kind: plan.PlanStarted, By: actor})
		if err == nil {
			o.work(r)
		}
		return err
	})
}

// MovePlan cancels a plan.
func (o *Operations) MovePlan(_ context.Context, actor, id string, m planning.Move) (plan.View, error) {
	return o.change(id, func(r *run) error {
		if m.Verb != planning.VerbCancel {
			return director.Errorf(director.KindInvalid, "apitest.move", "plans are not moved by %s here", m.Verb)
		}
		if r.state.Status.Ended() {
			return nil
		}
		err := o.emit(r, plan.Event{Kind: plan.PlanCancel, By: actor, Message: m.Reason})
		o.settle(r)
		return err
	})
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
func (Access) Inventory(_ context.Context, cluster string) (map[string][]byte, error) {
	return map[string][]byte{
		"hosts.ini":          []byte("[master]\n" + cluster + "-master-1 ansible_host=10.88.0.10\n"),
		"group_vars/all.yml": []byte("cluster_name: " + cluster + "\n"),
	}, nil
}

// ExportInventory returns a file of secrets too.
func (a Access) ExportInventory(ctx context.Context, _, cluster string, _ time.Duration) (map[string][]byte, error) {
	files, err := a.Inventory(ctx, cluster)
	files["secrets.json"] = []byte("{}\n")
	return files, err
}

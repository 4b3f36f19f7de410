package operations

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Plan returns the plan with its state, or not_found.
func (o *Operations) Plan(ctx context.Context, id string) (api.PlanView, error) {
	p, s, err := o.Store.Plan(ctx, id)
	v := api.PlanView{Plan: p, State: s}
	if err != nil {
		return v, err
	}
	return v, o.waits(ctx, &v)
}

// Plans lists the newest plans first; cluster "" means all.
func (o *Operations) Plans(ctx context.Context, cluster string, limit int) ([]api.PlanView, error) {
	ids, err := o.Store.Plans(ctx, store.PlanFilter{Cluster: cluster, Limit: limit})
	if err != nil {
		return nil, err
	}
	out := make([]api.PlanView, 0, len(ids))
	for _, id := range ids {
		p, s, err := o.Store.Plan(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, api.PlanView{Plan: p, State: s})
	}
	return out, nil
}

// ClusterView returns what is known of the cluster without asking it.
func (o *Operations) ClusterView(ctx context.Context, name string) (api.ClusterView, error) {
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: name})
	if err != nil {
		return api.ClusterView{}, err
	}
	v := api.ClusterView{Name: name, Generation: doc.Generation, Status: "absent", Release: doc.Cluster.Release}
	machines, err := o.Store.Machines(ctx, store.MachineFilter{ClusterUID: doc.UID})
	if err != nil {
		return v, err
	}
	for _, m := range machines {
		v.Machines = append(v.Machines, api.MachineView{
			Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, Host: m.Host, VMID: m.VMID, State: string(m.State),
			CPUs: m.CPUs, Memory: model.Size(m.Memory),
		})
	}
	inst, installed, err := o.Store.Installed(ctx, name)
	if err != nil {
		return v, err
	}
	if installed && inst.UID == doc.UID {
		v.Status, v.Endpoint = "ready", inst.Endpoint
	} else if len(machines) > 0 {
		v.Status = "unfinished"
	}
	return v, o.addPlan(ctx, &v)
}

// addPlan says what the newest plan of the cluster does to it.
func (o *Operations) addPlan(ctx context.Context, v *api.ClusterView) error {
	plans, err := o.Plans(ctx, v.Name, 1)
	if err != nil || len(plans) == 0 {
		return err
	}
	p := plans[0]
	if v.Status == "absent" && !p.State.Phase.Active() {
		return nil // an older cluster of the name
	}
	switch p.State.Phase {
	case plan.PhaseRunning, plan.PhasePaused, plan.PhaseCancelling, plan.PhaseParked, plan.PhaseUndoing:
		v.Plan, v.PlanPhase = p.Plan.ID, p.State.Phase
		v.Status = map[plan.Operation]string{plan.ClusterCreate: "creating", plan.ClusterDelete: "deleting"}[p.Plan.Operation]
	case plan.PhaseFailed, plan.PhaseCancelled:
		v.Plan, v.PlanPhase = p.Plan.ID, p.State.Phase
		v.Status = "failed"
	}
	return nil
}

// StepLog opens the log of the step's attempt from a byte offset; attempt 0 is the latest. It ends where the file ends now.
func (o *Operations) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	v, err := o.Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	st := v.State.Step(step)
	if st == nil {
		return nil, director.Errorf(director.KindNotFound, "operations.log", "plan %s has no step %q", id, step).
			WithHint("list its steps: directorctl describe plan %s", id)
	}
	if attempt == 0 {
		attempt = st.Attempt
	}
	f, err := os.Open(o.Env.LogPath(id, step, attempt))
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(emptyReader{}), nil // it has written nothing yet, or is not a kind that does
	}
	if err != nil {
		return nil, &director.Error{Kind: director.KindInternal, Op: "operations.log", Msg: "the log cannot be opened", Err: err}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

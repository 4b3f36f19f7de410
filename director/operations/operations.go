// Package operations is what people and programs can ask of the director: apply documents, plan, start, follow, fetch a
// kubeconfig. The API, and later the hooks and the schedules, offer it; it works with the store, the engine and the
// planner.
package operations

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Config is what operations work with.
type Config struct {
	Store    *store.Store
	Engine   *engine.Engine
	Plans    Plans // with their states
	Reader   *snapshot.Reader
	Env      steps.Env
	Director planner.Director
	NewID    func() string    // ids of plans
	PlanLife time.Duration    // how long a plan can be started after it was made
	Approval Approval         // who has to agree to plans that destroy
	Now      func() time.Time //
	Log      *slog.Logger
	// CreationsPerHour is how many VMs the director may make in an hour on all providers; zero is without bound.
	CreationsPerHour int
	// ProviderTypes are the types of providers that this director takes; any if nil.
	ProviderTypes []string
	Confine       confine.Rules // what documents may name
}

// Plans shows plans with their states.
type Plans interface {
	Plan(ctx context.Context, id string) (plan.View, error)
}

// Operations is behind most ports of the API. It is safe for concurrent use.
type Operations struct {
	Config
	sums *checksums
}

var (
	_ api.Planning = (*Operations)(nil)
)

// New returns the operations.
func New(c Config) *Operations {
	return &Operations{
		Config: c, sums: &checksums{known: map[fileKey]string{}},
	}
}

// MakePlan freezes a plan for the cluster, after every pre-check; all problems come back at once. Planned plans of the
// cluster that never ran are discarded.
func (o *Operations) MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	return o.MakePlanWith(ctx, actor, cluster, r, func(*store.Tx, string) error { return nil })
}

// MakePlanWith is MakePlan; with, called with the plan's id, belongs to the transaction that stores the plan.
func (o *Operations) MakePlanWith(
	ctx context.Context, actor, cluster string, r plan.Request, with func(tx *store.Tx, id string) error,
) (plan.View, error) {
	w, err := o.seen(ctx, cluster, r)
	if err != nil {
		return plan.View{}, err
	}
	if holder, err := o.Store.Holder(ctx, cluster); err != nil {
		return plan.View{}, err
	} else if holder != "" {
		return plan.View{}, o.Store.HeldBy(ctx, "operations.plan", holder, cluster)
	}
	content, err := o.content(ctx, w, r)
	if err != nil {
		return plan.View{}, err
	}
	if err := content.Check(); err != nil {
		return plan.View{}, &director.Error{
			Kind: director.KindInternal, Op: "operations.plan", Msg: "the planner wrote a plan that cannot run",
			Err: err,
		}
	}
	p := plan.Plan{ID: o.NewID(), CreatedAt: o.Now().UTC(), CreatedBy: actor, Content: content}
	p.Hash = plan.HashOf(content)
	if len(p.Steps) == 0 {
		return plan.View{Plan: p, State: plan.NewState(&p)}, nil // nothing to run, nothing to keep
	}
	if err := o.supersede(ctx, actor, cluster, p.ID); err != nil {
		return plan.View{}, err
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddPlan(p); err != nil {
			return err
		}
		if err := tx.Witnessed(ctx, p.ID); err != nil {
			return err
		}
		if err := with(tx, p.ID); err != nil {
			return err
		}
		return tx.Audit(o.Now(), actor, "plan "+string(p.Operation), "Cluster/"+cluster)
	})
	return plan.View{Plan: p, State: plan.NewState(&p), Expires: p.CreatedAt.Add(o.PlanLife)}, err
}

// content plans what the request asks for.
func (o *Operations) content(ctx context.Context, w *snapshot.Snapshot, r plan.Request) (plan.Content, error) {
	content, err := o.draft(w.World, r)
	if err == nil {
		_, err = o.check(ctx, w, &content)
	}
	return content, err
}

// Try says what a plan for the request would be refused for. Nothing is stored.
func (o *Operations) Try(ctx context.Context, cluster string, r plan.Request) error {
	w, err := o.seen(ctx, cluster, r)
	if err == nil {
		_, err = o.content(ctx, w, r)
	}
	return err
}

// check makes the pre-check of a plan that makes VMs, and adds its warnings. What makes no VM needs no room, no image
// and no quota.
func (o *Operations) check(ctx context.Context, w *snapshot.Snapshot, c *plan.Content) ([]api.AddressCheck, error) {
	unsigned, problems := o.trusted(w.World, *c)
	c.Warnings = append(c.Warnings, unsigned...)
	if !slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.Kind == step.VMEnsure && !s.Back() }) {
		return nil, director.Invalid(opPrecheck, "the plan for cluster "+c.Cluster+" cannot work", problems)
	}
	warnings, looked, err := o.precheck(ctx, w, *c, problems)
	c.Warnings = append(c.Warnings, warnings...)
	return looked, err
}

// draft has the request planned, without a look at the provider.
func (o *Operations) draft(w planner.World, r plan.Request) (plan.Content, error) {
	var content plan.Content
	var err error
	w.Take = r.AdoptDisks
	switch {
	case r.Operation == plan.ClusterDelete:
		return planner.Delete(w, r)
	case r.Operation == plan.ClusterRotatePull:
		return planner.RotatePullPassword(w, r)
	case r.Operation.OnNodes():
		content, err = planner.Node(w, r)
	case r.Operation == plan.ClusterCreate && w.Installed != nil:
		return planner.Create(w)
	case r.Operation == "" || slices.Contains(plan.Operations(), r.Operation):
		if content, err = planner.Apply(
			w, r,
		); err == nil && r.Operation != "" && content.Operation != r.Operation && len(content.Steps) > 0 {
			return plan.Content{}, director.Errorf(
				director.KindConflict, "operations.plan", "cluster %s needs %s, and not %s", content.Cluster,
				content.Operation, r.Operation,
			).
				WithHint("leave the operation out, and the director chooses it")
		}
	default:
		return plan.Content{}, director.Errorf(
			director.KindInvalid, "operations.plan", "there is no operation %q", r.Operation,
		).
			WithHint("one of %s", joined(plan.Operations()))
	}
	return content, err
}

func joined(ops []plan.Operation) string {
	var names []string
	for _, o := range ops {
		names = append(names, string(o))
	}
	return strings.Join(names, ", ")
}

type fileKey struct {
	path     string
	size     int64
	modified time.Time
}

// checksums remembers the SHA-256 of files that have not changed since.
type checksums struct {
	mu    sync.Mutex
	known map[fileKey]string
}

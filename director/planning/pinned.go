package planning

import (
	"context"
	"fmt"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// pinned is what a plan was compared with before its start. The comparison looks at hypervisors and takes its time, so
// the transaction of the start looks once more whether the database still holds the same.
type pinned struct {
	cluster  string
	lane     store.Lane                  // of the plan
	versions map[model.Ref]store.Version // of the documents that the plan is made from
	newest   string                      // plan of the cluster that was started last
	document model.Stored                // of the cluster as the plan was made for
	command  string                      // that plans again
}

// pin reads the versions of all documents and the newest started plan. It must be called before the world is read.
func pin(ctx context.Context, s *store.Store, p plan.Plan) (pinned, error) {
	out := pinned{cluster: p.Cluster, lane: store.LaneOf(p.Operation), command: p.Command()}
	var err error
	if out.versions, err = s.Versions(ctx); err != nil {
		return out, err
	}
	out.newest, err = s.NewestStarted(ctx, p.Cluster, out.lane)
	return out, err
}

// keep forgets the versions of documents that the plan is not made from.
func (b *pinned) keep(p plan.Plan, w planner.World) {
	used := map[model.Ref]bool{}
	for _, m := range p.Models {
		used[model.Ref{Kind: model.Kind(m.Kind), Name: m.Name}] = true
	}
	for _, r := range w.Releases {
		used[model.Ref{Kind: model.KindRelease, Name: r.Name}] = true
	}
	for _, i := range w.Images {
		used[model.Ref{Kind: model.KindImage, Name: i.Document}] = true
	}
	for ref := range b.versions {
		if !used[ref] {
			delete(b.versions, ref)
		}
	}
}

// check is a conflict if a document has changed, or a plan of the cluster was started, since pin.
func (b *pinned) check(tx *store.Tx, id string) error {
	now, err := tx.Versions()
	if err != nil {
		return err
	}
	var changed []string
	for ref, was := range b.versions {
		switch is, there := now[ref]; {
		case !there:
			changed = append(changed, ref.String()+" was deleted")
		case is != was:
			changed = append(changed, fmt.Sprintf("%s has changed (now generation %d)", ref, is.Generation))
		}
	}
	newest, err := tx.NewestStarted(b.cluster, b.lane)
	if err != nil {
		return err
	}
	if newest != b.newest {
		changed = append(changed, "plan "+newest+" was started")
	}
	if len(changed) == 0 {
		return nil
	}
	return director.Errorf(
		director.KindConflict, "planning.start", "plan %s is out of date: while it was checked, %s", id,
		strings.Join(changed, "; "),
	).
		WithHint("plan again: %s", b.command)
}

// Current refuses to move on a plan that was made for a cluster as it was once: a plan was started after it, or the
// cluster's document is gone, or is another one by now. Going on would make machines again that the newer plan took
// away, for a cluster without a document.
func Current(etx engine.Tx, p *plan.Plan, s *plan.State) error {
	const op = "planning.move"
	tx, ok := etx.(*store.Tx)
	if !ok {
		return director.Errorf(director.KindInternal, op, "the engine works on another store")
	}
	if s.StartedAt.IsZero() {
		return nil // its start compares more than this
	}
	kind, what := model.KindCluster, "cluster"
	if p.Operation.OnDirector() {
		kind, what = model.KindDirector, "director"
	}
	uid, err := tx.DocumentUID(model.Ref{Kind: kind, Name: p.Cluster})
	if err != nil {
		return err
	}
	if made := step.ClusterUID(p.Content); made != "" && uid != made {
		return director.Errorf(
			director.KindConflict, op, "plan %s cannot continue: the %s %s that it was made for was deleted", p.ID,
			what, p.Cluster,
		).
			WithHint("give it up: directorctl discard %s", p.ID)
	}
	newest, err := tx.NewestStarted(p.Cluster, store.LaneOf(p.Operation))
	if err != nil {
		return err
	}
	if newest != p.ID {
		return director.Errorf(
			director.KindConflict, op, "plan %s cannot continue: plan %s of %s %s was started after it", p.ID,
			newest, what, p.Cluster,
		).
			WithHint(
				"give it up (directorctl discard %s), and plan from where the %s is: %s", p.ID, what, p.Command(),
			)
	}
	return nil
}

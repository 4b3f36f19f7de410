package planning

import (
	"encoding/json"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DocumentChange is a document that a plan puts into force, with the one that was in force when the plan was made.
type DocumentChange struct {
	Is         model.Document
	Generation int64
	// Was is nil for the first document of a cluster, and in a plan of an older director.
	Was *model.Document
	// Former is the generation of Was.
	Former int64
}

// DocumentChangeOf returns what the plan makes of its cluster's document, and nil for a plan that puts none into force.
func DocumentChangeOf(p plan.Plan) (*DocumentChange, error) {
	at := slices.IndexFunc(p.Steps, func(s plan.Step) bool { return s.Kind == step.ClusterReady })
	if at < 0 {
		return nil, nil
	}
	fail := func(err error) (*DocumentChange, error) {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "planning.documents",
			Msg: "the document of plan " + p.ID + " cannot be read", Err: err,
		}
	}
	var is step.ClusterParams
	if err := json.Unmarshal(p.Steps[at].Params, &is); err != nil {
		return fail(err)
	}
	document := func(labels map[string]string, c *model.Cluster) model.Document {
		return model.Document{
			Kind: model.KindCluster, Metadata: model.Metadata{Name: p.Cluster, Labels: labels}, Cluster: c,
		}
	}
	out := &DocumentChange{Is: document(is.Labels, &is.Document), Generation: is.Generation}
	if p.Before == nil {
		return out, nil
	}
	var was model.Cluster
	if err := json.Unmarshal(p.Before.Spec, &was); err != nil {
		return fail(err)
	}
	d := document(p.Before.Labels, &was)
	out.Was, out.Former = &d, p.Before.Generation
	return out, nil
}

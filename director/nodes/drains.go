package nodes

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
)

const (
	// MostDrains is how many drains of a plan are rehearsed at once. Each reads the pods of its node and asks for the
	// eviction of each of them.
	MostDrains = 20
	// drainsAtOnce leaves the API server of a small cluster most of its time.
	drainsAtOnce = 4
	// drainPatience is how long a cluster may take for the drains of one plan.
	drainPatience = 20 * time.Second
)

// Drains are the drains of a plan that have not ended, in the plan's order, as they would go now.
type Drains struct {
	At    time.Time // when the cluster was asked
	Items []Drain
	Rest  int // drains after these, of which nothing was asked
}

// Drain is what one drain of a plan would move away.
type Drain struct {
	Step, Node string
	Evictions  []kube.Eviction
	Unseen     string // why the cluster could not be asked; empty if it answered
}

// Rehearse tells what a drain of the node would move away, and what would block it (requirement B4).
func (s *Service) Rehearse(ctx context.Context, cluster, node string, may kube.DrainLimits) ([]kube.Eviction, error) {
	if _, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster}); err != nil {
		return nil, err
	}
	client, err := s.installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Rehearse(ctx, node, may)
}

// RehearseDrains tells what the drains of the plan would move away if they ran now, without those that have ended, at
// most MostDrains of them. Nothing is changed. A cluster that does not answer is no error: each drain says so. Pods
// move until the drain itself runs: the plan freezes which nodes it drains, and how far, not what runs there.
func (s *Service) RehearseDrains(ctx context.Context, id string) (Drains, error) {
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return Drains{}, err
	}
	out := Drains{At: s.instant()}
	limits, err := drainsOf(p, state, &out)
	if err != nil || len(out.Items) == 0 {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	client, err := s.installed(ctx, p.Cluster)
	if err != nil {
		for i := range out.Items {
			out.Items[i].Unseen = director.MessageOf(err)
		}
		return out, nil
	}
	defer client.Close()
	var asking errgroup.Group
	asking.SetLimit(drainsAtOnce)
	for i := range out.Items {
		asking.Go(func() error {
			d := &out.Items[i]
			list, err := client.Rehearse(ctx, d.Node, limits[i])
			d.Evictions = list
			if err != nil {
				d.Evictions, d.Unseen = nil, director.MessageOf(err)
			}
			return nil
		})
	}
	return out, asking.Wait()
}

// drainsOf adds the drains of p that have not ended to out, and returns how far each of them may go.
func drainsOf(p plan.Plan, state plan.State, out *Drains) (limits []kube.DrainLimits, err error) {
	for _, s := range p.Steps {
		node := drained(s)
		if state := state.Step(s.ID); node == "" || state == nil || state.Status.Satisfied() {
			continue
		}
		if len(out.Items) == MostDrains {
			out.Rest++
			continue
		}
		var params step.PlayParams
		if err := json.Unmarshal(s.Params, &params); err != nil {
			return nil, director.Errorf(director.KindInternal, "nodes.drains", "step %s cannot be read: %w", s.ID, err)
		}
		unmanaged, _ := params.Vars[step.DrainUnmanaged].(bool)
		local, _ := params.Vars[step.DrainLocalData].(bool)
		out.Items = append(out.Items, Drain{Step: s.ID, Node: node})
		limits = append(limits, kube.DrainLimits{Unmanaged: unmanaged, LocalData: local})
	}
	return limits, nil
}

// drained returns the node that the step drains, or "".
func drained(s plan.Step) string {
	for _, e := range s.Effects {
		if s.Kind == step.Play && e.Verb == plan.VerbEvict {
			return e.Name
		}
	}
	return ""
}

// installed connects to the cluster. It fails with conflict where it is not installed.
func (s *Service) installed(ctx context.Context, cluster string) (steps.API, error) {
	inst, ok, err := s.Store.Installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, director.Errorf(director.KindConflict, "nodes.installed", "cluster %s is not installed", cluster).
			WithHint("see what runs with: directorctl describe cluster %s", cluster)
	}
	return s.Clusters.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
}

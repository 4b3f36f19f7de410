package clusters

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// DirectorView is what is known of another director without asking it.
type DirectorView struct {
	Name        string
	Created     time.Time // its document
	Generation  int64
	Provider    string
	Status      string // absent, creating, ready, deleting
	Host        string
	Address     string
	Endpoint    string // of its pages; empty before it was ready
	Certificate string // that its VM was given, in PEM; empty before it was made
	Outdated    bool   // its document asks for another VM than the one that it has
	Plan        string // id of its newest plan; empty if it never had one
	PlanStatus  plan.Status
}

// Directors lists other directors whose VMs this one makes. It is safe for concurrent use.
type Directors struct {
	Store *store.Store
	// Certificate returns what the VM on the machine was given, in PEM.
	Certificate func(ctx context.Context, machine string) (string, error)
}

// ListDirectors lists all of them by name. None is asked.
func (s Directors) ListDirectors(ctx context.Context) ([]DirectorView, error) {
	docs, err := s.Store.Documents(ctx, model.KindDirector)
	if err != nil {
		return nil, err
	}
	out := []DirectorView{}
	for _, d := range docs {
		v, err := s.view(ctx, d)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (s Directors) view(ctx context.Context, d model.Stored) (DirectorView, error) {
	v := DirectorView{
		Name: d.Metadata.Name, Created: d.Created, Generation: d.Generation, Provider: d.Director.Provider,
		Status: "absent",
	}
	installed, known, err := s.Store.Installed(ctx, v.Name)
	if err != nil {
		return v, err
	}
	known = known && installed.UID == d.UID
	machines, err := s.Store.Machines(ctx, store.MachineFilter{ClusterUID: d.UID})
	if err != nil {
		return v, err
	}
	for _, m := range machines {
		v.Host, v.Address = m.Host, m.Address
		switch {
		case m.State == director.MachineDeleting:
			v.Status = "deleting"
		case known:
			v.Status, v.Endpoint = "ready", installed.Endpoint
			v.Outdated = installed.Document.Director != nil && !d.Director.SameVM(installed.Document.Director)
		default:
			v.Status = "creating"
		}
		if v.Certificate, err = s.Certificate(ctx, m.ID); err != nil {
			return v, err
		}
	}
	plans, _, err := s.Store.PlanPage(ctx, store.PlanQuery{
		Cluster:    v.Name,
		Operations: []plan.Operation{plan.DirectorCreate, plan.DirectorUpgrade, plan.DirectorDelete},
	}, director.Page{Limit: 1, Desc: true})
	if err == nil && len(plans) == 1 && !plans[0].Plan.CreatedAt.Before(v.Created) {
		v.Plan, v.PlanStatus = plans[0].Plan.ID, plans[0].State.Status
	}
	return v, err
}

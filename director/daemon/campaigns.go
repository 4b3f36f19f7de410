package daemon

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/store"
)

// candidates lists clusters for campaigns.
type candidates struct{ clusters *clusters.Service }

var _ campaigns.Clusters = candidates{}

// Select returns the clusters with the labels and one of the statuses, by name.
func (c candidates) Select(
	ctx context.Context, labels, statuses []string, visible *director.Visible,
) ([]campaigns.Candidate, error) {
	views, _, err := c.clusters.ListClusters(ctx, clusters.Query{
		Labels: labels, Statuses: statuses, Visible: visible, NoMachines: true,
		Page: director.Page{Limit: 1 << 20},
	})
	out := make([]campaigns.Candidate, len(views))
	for i, v := range views {
		out[i] = campaigns.Candidate{Name: v.Name, Project: v.Project}
	}
	return out, err
}

// mayNow reports what people may do by now, whatever they may have been allowed to when they agreed.
func mayNow(db *store.Store) func(context.Context, string, director.Action, director.Object) (bool, error) {
	return func(ctx context.Context, name string, action director.Action, o director.Object) (bool, error) {
		u, err := db.GetUser(ctx, name)
		if director.KindOf(err) == director.KindNotFound {
			return false, nil
		}
		if err != nil || !u.Disabled.IsZero() {
			return false, err
		}
		grants, err := db.GrantsOf(ctx, u)
		a := director.Actor{User: u.Name, Role: u.Role, Scope: director.ScopeAll, Grants: grants}
		return err == nil && auth.Can(a, action, o), err
	}
}

// lookWith computes what a cluster would get from a campaign.
func lookWith(p *planning.Service) func(context.Context, string, plan.Request) (campaigns.Look, error) {
	return func(ctx context.Context, cluster string, r plan.Request) (campaigns.Look, error) {
		v, err := p.Check(ctx, cluster, r)
		return campaigns.Look{
			Operation: v.Operation, Summary: v.Summary, Steps: v.Steps, Problems: v.Problems,
		}, err
	}
}

// startCampaigns begins to move campaigns on.
func (d background) startCampaigns(ctx context.Context, db *store.Store) error {
	d.campaigns = campaigns.New(campaigns.Config{
		Store: db, Planning: d.services.planning, Clusters: candidates{d.services.clusters}, Documents: d.docs,
		Difference: planning.Difference, Changed: planning.Changed, May: mayNow(db),
		Look: lookWith(d.services.planning), Log: d.log,
	})
	if err := d.campaigns.Start(ctx); err != nil {
		return err
	}
	d.onStop(d.campaigns.Stop)
	return nil
}

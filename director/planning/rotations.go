package planning

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// CertificateEnds returns when the first certificate of a node ends, by installed cluster; the zero time if nothing was
// seen of it yet.
func (s *Service) CertificateEnds(ctx context.Context) (map[string]time.Time, error) {
	clusters, _, err := s.Store.ClusterPage(ctx, "", nil, director.Page{})
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, c := range clusters {
		if !c.Installed {
			continue
		}
		ends, err := s.Store.CertificateEnds(ctx, c.UID)
		if err != nil {
			return nil, err
		}
		first := time.Time{}
		for _, end := range ends {
			if first.IsZero() || end.Before(first) {
				first = end
			}
		}
		out[c.Name] = first
	}
	return out, nil
}

// authorityOperations are what changes the authorities of clusters, by the names of their certificates.
var authorityOperations = map[string]plan.Operation{
	"ca": plan.ClusterCA, "etcd-ca": plan.ClusterEtcdCA, "front-proxy-ca": plan.ClusterFrontProxyCA,
}

// AuthorityEnds returns when the first certificate of an authority ends, by installed cluster and by the operation that
// changes the authority.
func (s *Service) AuthorityEnds(ctx context.Context) (map[string]map[plan.Operation]time.Time, error) {
	clusters, _, err := s.Store.ClusterPage(ctx, "", nil, director.Page{})
	if err != nil {
		return nil, err
	}
	out := map[string]map[plan.Operation]time.Time{}
	for _, c := range clusters {
		if !c.Installed {
			continue
		}
		list, _, err := s.Store.Certificates(ctx, director.CertificateQuery{
			Cluster: c.Name, Source: director.CertificateDatabase,
		}, director.Page{})
		if err != nil {
			return nil, err
		}
		ends := map[plan.Operation]time.Time{}
		for _, one := range list {
			op, known := authorityOperations[one.Name]
			if first, seen := ends[op]; known && one.ClusterUID == c.UID && (!seen || one.Ends.Before(first)) {
				ends[op] = one.Ends
			}
		}
		out[c.Name] = ends
	}
	return out, nil
}

// MakePlanOf freezes a plan of the operation that needs no more than its name. It returns "" if nothing is to be done.
func (s *Service) MakePlanOf(ctx context.Context, actor, cluster string, op plan.Operation) (string, error) {
	v, err := s.MakePlan(ctx, actor, cluster, plan.Request{Operation: op})
	if err != nil || len(v.Plan.Steps) == 0 {
		return "", err
	}
	return v.Plan.ID, nil
}

// WaitingPlan returns the plan of the cluster that was made and has not started, with its operation; "" if there is
// none.
func (s *Service) WaitingPlan(ctx context.Context, cluster string) (string, plan.Operation, error) {
	items, _, err := s.Store.PlanPage(ctx, store.PlanQuery{
		Cluster: cluster, Statuses: []plan.Status{plan.StatusPlanned, plan.StatusApproved},
	}, director.Page{Limit: 1, Desc: true})
	if err != nil || len(items) == 0 {
		return "", "", err
	}
	if p := items[0].Plan; s.PlanLife == 0 || s.Now().Before(p.CreatedAt.Add(s.PlanLife)) {
		return p.ID, p.Operation, nil
	}
	return "", "", nil // it can no longer be started
}

// MakeRotation freezes a plan that renews what ends before the time. It returns "" if nothing is to be done.
func (s *Service) MakeRotation(ctx context.Context, actor, cluster string, before time.Time) (string, error) {
	v, err := s.MakePlan(ctx, actor, cluster, plan.Request{
		Operation: plan.ClusterRotateCerts, Certificates: plan.Certificates{EndBefore: before},
	})
	if err != nil || len(v.Plan.Steps) == 0 {
		return "", err
	}
	return v.Plan.ID, nil
}

// RunPlan starts the plan and returns when it has come to an end or waits for a person, with its status.
func (s *Service) RunPlan(ctx context.Context, actor, id string) (plan.Status, error) {
	v, err := s.Plans.Plan(ctx, id)
	if err != nil {
		return "", err
	}
	if _, err := s.StartPlan(ctx, actor, id, v.Plan.Hash); err != nil {
		return "", err
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		status, _, err := s.Store.Progress(ctx, id)
		if err != nil || status.Ended() || status == plan.StatusParked || status == plan.StatusPaused {
			return status, err
		}
		select {
		case <-ctx.Done():
			return status, ctx.Err()
		case <-tick.C:
		}
	}
}

// Package clusters lists clusters with what the database knows of each: their machines, what is installed, and the plan
// that works on them. No cluster and no hypervisor is asked.
package clusters

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Query narrows ListClusters.
type Query struct {
	director.Page
	NamePrefix   string
	Text         string // in the name, project, release or endpoint, or in a label, in any case
	Labels       model.Selector
	Statuses     []string
	Versions     []string      // of Kubernetes that are installed: v1.36 is each v1.36.x
	PlanStatuses []plan.Status // of the plan that holds the cluster or failed on it
	Project      string
	Visible      *director.Visible // nil for all
	NoMachines   bool              // count them alone: reading those of a fleet takes longer than all else
}

// View is what is known of a cluster without asking it.
type View struct {
	uid        string
	Name       string
	Project    string
	Created    time.Time // its document
	Generation int64
	Status     string // absent, creating, ready, deleting, failed, changing
	Release    string
	Version    string // of Kubernetes that is installed; empty for none, or if its release is gone
	Newer      *Newer // the newest release that it can be upgraded to at once
	Endpoint   string
	Nodes      int       // how many machines it has
	Machines   []Machine // empty in a list without machines
	Plan       string    // id of the plan that holds it; empty if none
	PlanStatus plan.Status
}

// Newer is a release of a newer version of Kubernetes.
type Newer struct{ Release, Version string }

// Machine is one VM of a cluster.
type Machine struct {
	Name, Role, Pool, Address, Host, VMID, State string
	CPUs                                         int
	Memory                                       model.Size
	NICs                                         []director.NIC // all but the first
}

// Service lists clusters. It is safe for concurrent use.
type Service struct{ store *store.Store }

// New returns the service.
func New(s *store.Store) *Service { return &Service{s} }

// ListClusters lists clusters in one of the Orders with what is known of each.
func (s *Service) ListClusters(ctx context.Context, q Query) ([]View, *director.Place, error) {
	if order, ok := orders[q.Sort]; ok {
		return s.sorted(ctx, q, order)
	}
	var out []View
	read := func(p director.Page) ([]store.ClusterItem, *director.Place, error) {
		return s.store.ClusterPage(ctx, q.NamePrefix, q.Visible, p)
	}
	next, err := director.Scan(q.Page, read, store.ClusterItem.Place, func(items []store.ClusterItem) ([]bool, error) {
		views, err := s.views(ctx, items, !q.NoMachines)
		keep := make([]bool, len(views))
		for i, v := range views {
			keep[i] = q.fits(items[i], v)
			if keep[i] {
				out = append(out, v)
			}
		}
		return keep, err
	})
	return out[:min(len(out), q.Limit)], next, err
}

// fits reports whether the query leaves the cluster in.
func (q Query) fits(c store.ClusterItem, v View) bool {
	return q.Labels.Match(c.Labels) && (q.Project == "" || v.Project == q.Project) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, v.Status)) &&
		(len(q.Versions) == 0 || v.Version != "" && model.FitsVersion(q.Versions, v.Version)) &&
		(len(q.PlanStatuses) == 0 || slices.Contains(q.PlanStatuses, v.PlanStatus)) && q.names(c, v)
}

// names reports whether the text of the query is in what the cluster is found by.
func (q Query) names(c store.ClusterItem, v View) bool {
	if q.Text == "" {
		return true
	}
	text := strings.ToLower(q.Text)
	for _, in := range []string{v.Name, v.Project, v.Release, v.Endpoint} {
		if strings.Contains(strings.ToLower(in), text) {
			return true
		}
	}
	for k, value := range c.Labels {
		if strings.Contains(strings.ToLower(k+"="+value), text) {
			return true
		}
	}
	return false
}

// Facets count the clusters that a query leaves, by what they can be narrowed by further.
type Facets struct {
	Total, Nodes                                         int
	Statuses, PlanStatuses, Releases, Projects, Versions map[string]int
}

// CountClusters counts the clusters that the query leaves. Its page does not narrow.
func (s *Service) CountClusters(ctx context.Context, q Query) (Facets, error) {
	views, err := s.all(ctx, q)
	return count(views), err
}

// CountedClusters is ListClusters and CountClusters in one: the clusters are read once.
func (s *Service) CountedClusters(ctx context.Context, q Query) ([]View, *director.Place, Facets, error) {
	all, err := s.all(ctx, q)
	if err != nil {
		return nil, nil, Facets{}, err
	}
	by, ok := orders[q.Sort]
	if !ok {
		by = byName
	}
	f := count(all)
	views, next, err := s.part(ctx, all, q, by)
	return views, next, f, err
}

func count(views []View) Facets {
	f := Facets{
		Statuses: map[string]int{}, PlanStatuses: map[string]int{}, Releases: map[string]int{},
		Projects: map[string]int{}, Versions: map[string]int{},
	}
	for _, v := range views {
		f.Total++
		f.Nodes += v.Nodes
		f.Statuses[v.Status]++
		f.Releases[v.Release]++
		if v.Version != "" {
			f.Versions[v.Version]++
		}
		if v.PlanStatus != "" {
			f.PlanStatuses[string(v.PlanStatus)]++
		}
		if v.Project != "" {
			f.Projects[v.Project]++
		}
	}
	return f
}

// all returns the clusters that the query leaves, without their machines. Its page does not narrow.
func (s *Service) all(ctx context.Context, q Query) ([]View, error) {
	items, _, err := s.store.ClusterPage(ctx, q.NamePrefix, q.Visible, director.Page{})
	if err != nil {
		return nil, err
	}
	views, err := s.views(ctx, items, false)
	var out []View
	for i, v := range views {
		if q.fits(items[i], v) {
			out = append(out, v)
		}
	}
	return out, err
}

// ClusterView returns what is known of the cluster without asking it.
func (s *Service) ClusterView(ctx context.Context, name string) (View, error) {
	item, err := s.store.Cluster(ctx, name)
	if err != nil {
		return View{}, err
	}
	views, err := s.views(ctx, []store.ClusterItem{item}, true)
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// views says what is known of the clusters, with or without their machines.
func (s *Service) views(ctx context.Context, items []store.ClusterItem, withMachines bool) ([]View, error) {
	var machines map[string][]director.Machine
	if withMachines {
		uids := make([]string, len(items))
		for i, c := range items {
			uids[i] = c.UID
		}
		var err error
		if machines, err = s.store.MachinesOf(ctx, uids); err != nil {
			return nil, err
		}
	}
	releases, err := s.store.Documents(ctx, model.KindRelease)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(items))
	for i, c := range items {
		v := &views[i]
		*v = View{
			uid: c.UID, Name: c.Name, Project: c.Project, Created: c.Created, Generation: c.Generation,
			Status:  "absent",
			Release: c.Release, Version: c.Version, Newer: newer(c.Version, releases), Endpoint: c.Endpoint,
			Nodes: c.Nodes,
		}
		for _, m := range machines[c.UID] {
			v.Machines = append(v.Machines, machineOf(m))
		}
		switch {
		case c.Installed:
			v.Status = "ready"
		case c.Nodes > 0:
			v.Status = "unfinished"
		}
		addPlan(v, c)
	}
	return views, nil
}

func machineOf(m director.Machine) Machine {
	return Machine{
		Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, Host: m.Host, VMID: m.VMID,
		State: string(m.State),
		CPUs:  m.CPUs, Memory: model.Size(m.Memory), NICs: m.NICs,
	}
}

// addPlan says what the newest plan of the cluster does to it, or where it stopped.
func addPlan(v *View, c store.ClusterItem) {
	if v.Status == "absent" && !c.Status.Active() {
		return // an older cluster of the name
	}
	lost := c.Status == plan.StatusFailed || c.Status == plan.StatusCancelled
	if !lost && !c.Status.Active() {
		return
	}
	v.Plan, v.PlanStatus = c.Plan, c.Status
	switch {
	case c.Operation == plan.ClusterDelete && !lost:
		v.Status = "deleting"
	case c.Operation == plan.ClusterCreate && !lost:
		v.Status = "creating"
	case c.Operation == plan.ClusterDelete, !c.Installed:
		v.Status = "failed"
	case !lost: // a cluster serves on when work on one of its nodes has failed
		v.Status = "changing"
	}
}

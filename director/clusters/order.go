package clusters

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
)

// order is what a list is sorted by in place of the name: the value of a cluster as a text, and how two are compared.
type order struct {
	value   func(View) string
	compare func(a, b string) int
}

var orders = map[string]order{
	"status":  {func(v View) string { return v.Status }, strings.Compare},
	"version": {func(v View) string { return v.Version }, semver.Compare},
	"nodes":   {func(v View) string { return strconv.Itoa(v.Nodes) }, numbers},
	"created_at": {
		func(v View) string { return v.Created.Format("2006-01-02T15:04:05.000000Z") }, strings.Compare,
	},
}

// byName is the order of a list that is read whole. The database has it of a list that is read in parts.
var byName = order{func(v View) string { return v.Name }, strings.Compare}

// Orders are what a list can be sorted by.
func Orders() []string { return []string{"name", "status", "version", "nodes", "created_at"} }

func numbers(a, b string) int {
	x, _ := strconv.Atoi(a) // a broken place begins at the front
	y, _ := strconv.Atoi(b)
	return cmp.Compare(x, y)
}

// sorted lists by what is only known of all clusters together: a status is computed, and the database does not compare
// versions.
func (s *Service) sorted(ctx context.Context, q Query, by order) ([]View, *director.Place, error) {
	views, err := s.all(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	return s.part(ctx, views, q, by)
}

// part is the page of the query out of all clusters that it leaves.
func (s *Service) part(ctx context.Context, views []View, q Query, by order) ([]View, *director.Place, error) {
	compare := func(a, b director.Place) int {
		d := by.compare(a.Value, b.Value)
		if q.Desc {
			d = -d
		}
		return cmp.Or(d, strings.Compare(a.Name, b.Name))
	}
	place := func(v View) director.Place { return director.Place{Value: by.value(v), Name: v.Name} }
	slices.SortFunc(views, func(a, b View) int { return compare(place(a), place(b)) })
	if q.After != nil {
		views = slices.DeleteFunc(views, func(v View) bool { return compare(place(v), *q.After) <= 0 })
	}
	var next *director.Place
	if q.Limit > 0 && len(views) > q.Limit {
		views = views[:q.Limit]
		last := place(views[q.Limit-1])
		next = &last
	}
	if q.NoMachines {
		return views, next, nil
	}
	return views, next, s.addMachines(ctx, views)
}

// addMachines reads the machines of the clusters alone that are shown.
func (s *Service) addMachines(ctx context.Context, views []View) error {
	uids := make([]string, len(views))
	for i, v := range views {
		uids[i] = v.uid
	}
	machines, err := s.store.MachinesOf(ctx, uids)
	for i := range views {
		for _, m := range machines[views[i].uid] {
			views[i].Machines = append(views[i].Machines, machineOf(m))
		}
	}
	return err
}

// newer returns the newest of the releases that a cluster of the version can be upgraded to at once; nil for none.
func newer(version string, releases []model.Stored) *Newer {
	var best *Newer
	for _, r := range releases {
		to := Newer{Release: r.Metadata.Name, Version: r.Release.Kubernetes}
		if version == "" || !planner.Upgrades(version, to.Version) {
			continue
		}
		if best == nil || semver.Compare(to.Version, best.Version) > 0 {
			best = &to
		}
	}
	return best
}

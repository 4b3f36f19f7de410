package discovery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
)

// watch finds out what agents have registered, of the director and of clusters.
func (s *Service) watch(ctx context.Context, h host, consul string, w *World, have Catalog) error {
	return errors.Join(h.watch(ctx, s.Director, consul, w, have), h.watchSelf(ctx, s, consul, w, have))
}

// watch finds out which API servers are registered by the agents of their masters, and which virtual addresses by that
// of any master. An agent has taken over when its entry passes, and keeps it while other members see the agent: until
// then, and from then on, the director has an entry of its own, so that no server is without one. So it has once a
// document asks for no agents any more, before a plan takes them.
func (h host) watch(ctx context.Context, id, consul string, w *World, have Catalog) error {
	own := make(map[[2]string]bool, len(have.Entries))
	for _, a := range have.Entries {
		own[[2]string{a.Node, a.ID}] = true
	}
	var with []*Cluster
	for i := range w.Clusters {
		if c := &w.Clusters[i]; c.agentsIn(consul) && c.Consul == consul && c.WantsAgents {
			with = append(with, c)
		}
	}
	return each(readers, with, func(c *Cluster) error {
		list, meta, err := h.api.Health().Service(service(c.Name), "", false, options(ctx, id))
		switch {
		case err != nil:
			return explain(h.name, err)
		case meta.ResultsFilteredByACLs:
			return errHidden()
		}
		c.Watched = map[string]bool{}
		for _, e := range list {
			instead, ours := c.replaces(e)
			if !ours {
				continue
			}
			passes := e.Checks.AggregatedStatus() == api.HealthPassing
			if passes || seen(e.Checks) && !own[[2]string{Node(c.UID), instead}] {
				c.Watched[instead] = true
			}
		}
		return nil
	})
}

// replaces returns the id of the director's entry that the agent of a master has this one instead of. It is false for
// an entry that is none of the cluster's agents, or has another address.
func (c Cluster) replaces(e *api.ServiceEntry) (id string, ours bool) {
	m, there := c.machine(e.Node.Meta[MetaNode])
	if !there || m.Role != director.RoleMaster || e.Node.Node != Node(m.Name) || e.Node.Meta[MetaCluster] != c.UID {
		return "", false
	}
	switch e.Service.ID {
	case director.ConsulAPIEntry(m.Name):
		return e.Service.ID, e.Service.Address == m.Address
	case director.ConsulVIPEntry(c.UID, m.Name):
		return entryVIP, e.Service.Address == c.VIP && c.VIP != ""
	}
	return "", false
}

// seen tells whether other members see the agent of the node.
func seen(checks api.HealthChecks) bool {
	return slices.ContainsFunc(checks, func(c *api.HealthCheck) bool {
		return c.CheckID == serfHealth && c.Status == api.HealthPassing
	})
}

// byAgents returns what the agents have registered on their nodes.
func (h host) byAgents(ctx context.Context, w World, nodes []CatalogNode) ([]Registered, error) {
	names := map[string]string{}
	for _, c := range w.Clusters {
		names[c.UID] = c.Name
	}
	var mu sync.Mutex
	var out []Registered
	err := each(readers, nodes, func(n CatalogNode) error {
		list, _, err := h.api.Catalog().NodeServiceList(n.Name, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return explain(h.name, err)
		}
		if list == nil || len(list.Services) == 0 {
			return nil
		}
		checks, _, err := h.api.Health().Node(n.Name, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return explain(h.name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range list.Services {
			r := Registered{
				Entry: Entry{
					Node: n.Name, Cluster: n.Meta[MetaCluster], ID: s.ID, Service: s.Service,
					Address: cmp.Or(s.Address, n.Address), Port: s.Port, Tags: s.Tags, Meta: s.Meta, Passing: true,
				},
				ClusterName: names[n.Meta[MetaCluster]], Agent: true,
			}
			for _, c := range checks {
				if c.ServiceID == s.ID || c.ServiceID == "" {
					r.Passing = r.Passing && c.Status == api.HealthPassing
					r.Output = cmp.Or(r.Output, clean(c.Output))
				}
			}
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

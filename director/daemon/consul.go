package daemon

import (
	"context"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
	"github.com/director-kaas/kaas/director/discovery"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// consulEvery is how often the director looks whether a Consul is to be compared with what is wanted there.
const consulEvery = 3 * time.Second

// ownAgentEvery is how often the director looks what the agent of Consul next to it is to be told.
const ownAgentEvery = 5 * time.Second

// consulGossip is the port at which that agent takes gossip.
const consulGossip = 8301

// consulStore is the store as discovery wants it.
type consulStore struct{ *store.Store }

// Machines returns the machines of all clusters.
func (s consulStore) Machines(ctx context.Context) ([]director.Machine, error) {
	return s.Store.Machines(ctx, store.MachineFilter{Nodes: true})
}

// aliveIn asks for the ids of the directors that give signs of life.
func aliveIn(db *store.Store) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		all, err := db.Instances(ctx)
		ids := make([]string, len(all))
		for i, one := range all {
			ids[i] = one.ID
		}
		return ids, err
	}
}

// makeDiscovery returns what registers clusters in Consuls. Clusters that only pretend are not registered.
func (d background) makeDiscovery(
	db *store.Store, box *seal.Box, reached steps.Clusters, instance string,
) *discovery.Service {
	c := discovery.Config{
		Store: consulStore{db}, Accounts: d.vault(db, box), Tokens: reached.Keys, Director: db.DirectorID(),
		URL:      d.cfg.publicURL(),
		Networks: d.cfg.ProviderNetworks, Now: time.Now, Log: d.log,
	}
	if d.cfg.ConsulDir != "" {
		c.OwnAgent = discovery.OwnAgent{
			Dir: consulagent.At(d.cfg.ConsulDir), Instance: instance, Gossip: consulGossip, Ready: d.readyAt,
			Instances: aliveIn(db),
		}
	}
	if reached.Connect == nil {
		c.Connect = func(ctx context.Context, uid, name, endpoint string) (discovery.API, error) {
			api, err := reached.Cluster(ctx, uid, name, endpoint)
			if err != nil {
				return nil, err
			}
			if h, ok := api.(discovery.API); ok {
				return h, nil
			}
			api.Close()
			return nil, director.Errorf(director.KindInternal, "daemon.consul", "the cluster cannot be asked")
		}
	}
	s := discovery.New(c)
	d.onStop(func(context.Context) error {
		s.Close()
		return nil
	})
	return s
}

// startDiscovery keeps what is registered in Consuls true.
func (d background) startDiscovery(ctx context.Context) {
	d.every(ctx, consulEvery, "compare Consuls with what is wanted there", d.discovery.Tick)
	d.every(ctx, ownAgentEvery, "tell the director's agent of Consul what it runs with", d.discovery.KeepOwnAgent)
}

// readyAt returns where programs on this machine may ask whether the director is ready; an invalid address before its
// API listens.
func (d background) readyAt() netip.AddrPort {
	a := d.apiAddr.Load()
	switch {
	case a == nil:
		return netip.AddrPort{}
	case a.Addr().IsUnspecified():
		return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), a.Port())
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// consulCounts returns how the last comparisons went.
func consulCounts(ctx context.Context, s *discovery.Service) ([]director.ConsulState, error) {
	list, err := s.List(ctx)
	out := make([]director.ConsulState, len(list))
	for i, c := range list {
		out[i] = c.State
		out[i].Consul = c.Name
	}
	return out, err
}

// registrar is what plans register clusters with; nothing for a director that simulates.
func registrar(s *discovery.Service) steps.Registrar {
	if s.Connect == nil {
		return nil
	}
	return s
}

// Package discovery registers the director and its clusters in Consul, and keeps what is registered true: it compares
// what is wanted with the catalog again and again, and repairs what differs. What is wanted is computed from documents
// and machines each time, so that a Consul that is away delays nothing, and nothing is lost.
package discovery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
)

// Store keeps documents, machines, and how comparisons went. All methods are safe for concurrent use and return
// *director.Error.
type Store interface {
	Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error)
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
	Machines(ctx context.Context) ([]director.Machine, error)
	ClaimConsul(ctx context.Context, name string, since, now time.Time) (bool, error)
	SaveConsul(ctx context.Context, state director.ConsulState) error
	ConfirmConsul(ctx context.Context, name, id string) error
	ConfirmedConsul(ctx context.Context, name string) (string, error)
	ConsulStates(ctx context.Context) (map[string]director.ConsulState, error)
}

// Accounts opens the token of a Consul, and its gossip key.
type Accounts interface {
	OpenConsul(ctx context.Context, consul, name string, c model.Consul) (director.Credentials, error)
}

// Tokens opens what the sync of a cluster and the agents on its nodes are known by in Consul, and says whether it has
// them. Under the id of the director, it keeps what the agents next to directors are known by.
type Tokens interface {
	ConsulToken(ctx context.Context, uid string) (director.ConsulToken, bool, error)
	ConsulAgents(ctx context.Context, uid string) (director.ConsulAgents, bool, error)
	// SetConsulAgents keeps what agents are known by; nil for none.
	SetConsulAgents(ctx context.Context, uid string, agents *director.ConsulAgents) error
}

// API is an API server of a cluster.
type API interface {
	Healthz(ctx context.Context) error
	Close()
}

// Config is what New needs. All fields but OwnAgent and Connect must be set.
type Config struct {
	Store    Store
	Accounts Accounts
	Tokens   Tokens
	Director string           // id, which marks its entries
	URL      string           // of the director, which is registered
	Networks confine.Networks // where a Consul may be
	OwnAgent OwnAgent         // the agent on this machine; zero for none
	// Connect connects to an API server at an endpoint. A cluster that has no authorities yet is not_found. Nil where
	// clusters only pretend: then nothing is registered.
	Connect func(ctx context.Context, uid, name, endpoint string) (API, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Service tests Consuls and keeps what is registered there. It is safe for concurrent use.
type Service struct {
	Config
	health *health

	mu      sync.Mutex
	clients map[string]*client // by the name of the Consul

	ownProblem error // of the agent next to this director
}

// New returns the service.
func New(c Config) *Service {
	return &Service{Config: c, health: newHealth(c.Connect, c.Now), clients: map[string]*client{}}
}

// Close ends the connections that are kept.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.close()
	}
	s.clients = map[string]*client{}
	s.health.close()
}

// consul returns the document of that name.
func (s *Service) consul(ctx context.Context, name string) (model.Stored, error) {
	return s.Store.Document(ctx, model.Ref{Kind: model.KindConsul, Name: name})
}

// world reads all that decides what is wanted.
func (s *Service) world(ctx context.Context) (World, error) {
	w := World{Director: s.Director, URL: s.URL, Now: s.Now()}
	docs, err := s.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return w, err
	}
	machines, err := s.Store.Machines(ctx)
	if err != nil {
		return w, err
	}
	alive := map[string][]director.Machine{}
	for _, m := range machines {
		if m.Deleted.IsZero() && m.ClusterUID != "" {
			alive[m.ClusterUID] = append(alive[m.ClusterUID], m)
		}
	}
	for _, d := range docs {
		c := Cluster{
			UID: d.UID, Name: d.Metadata.Name, Consul: d.Cluster.Discovery.Consul, Machines: alive[d.UID],
			Syncs: d.Cluster.Discovery.Syncs(), WantsAgents: d.Cluster.Discovery.Agents,
		}
		token, known, err := s.Tokens.ConsulToken(ctx, d.UID)
		if err != nil {
			return w, err
		}
		if known {
			c.Sync = &token
		}
		agents, known, err := s.Tokens.ConsulAgents(ctx, d.UID)
		if err != nil {
			return w, err
		}
		if known {
			c.Agents = &agents
		}
		if vip := d.Cluster.API.VIP; vip.IsValid() {
			c.VIP = vip.String()
		}
		w.Clusters = append(w.Clusters, c)
	}
	w.Directors, err = s.own().directors(ctx)
	return w, err
}

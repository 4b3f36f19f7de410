package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// rules are what docs/operate/consul.md gives to the director's token.
const rules = `
node_prefix "kaas-" { policy = "write" }
service_prefix "kaas-" { policy = "write" }
service_prefix "" { policy = "read" }
agent_prefix "" { policy = "read" }
`

// world is the database of a director, as far as discovery reads it. How comparisons went is in a real one.
type world struct {
	*store.Store
	mu       sync.Mutex
	docs     map[model.Ref]model.Stored
	machines []director.Machine
	broken   error
}

func (w *world) Documents(_ context.Context, kind model.Kind) ([]model.Stored, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []model.Stored
	for ref, d := range w.docs {
		if ref.Kind == kind {
			out = append(out, d)
		}
	}
	return out, nil
}

func (w *world) Document(_ context.Context, ref model.Ref) (model.Stored, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d, ok := w.docs[ref]; ok {
		return d, nil
	}
	return model.Stored{}, director.Errorf(director.KindNotFound, "test", "there is no %s", ref)
}

func (w *world) Machines(context.Context) ([]director.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.machines), w.broken
}

// servers pretends API servers: those of the addresses in down are not ready.
type servers struct {
	mu   sync.Mutex
	down map[string]bool
}

func (s *servers) connect(_ context.Context, _, _, endpoint string) (API, error) {
	return apiServer{s, endpoint}, nil
}

type apiServer struct {
	*servers
	endpoint string
}

func (a apiServer) Healthz(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down[a.endpoint] {
		return errors.New("connection refused")
	}
	return nil
}

func (a apiServer) Close() {}

// account is the one that all credentials have.
type account struct {
	token  director.Secret
	gossip director.Secret // empty for the token there, too
}

func (a *account) OpenConsul(_ context.Context, _, name string, _ model.Consul) (director.Credentials, error) {
	if name == "none" {
		return director.Credentials{}, director.Errorf(director.KindNotFound, "test", "there are no credentials").
			WithHint("set them")
	}
	if name == "gossip" && a.gossip != "" {
		return director.Credentials{Name: name, Password: a.gossip}, nil
	}
	return director.Credentials{Name: name, Password: a.token}, nil
}

// sealed are the tokens of syncs, by the uid of the cluster.
type sealed struct {
	mu     sync.Mutex
	has    map[string]director.ConsulToken
	agents map[string]director.ConsulAgents
}

func (s *sealed) ConsulToken(_ context.Context, uid string) (director.ConsulToken, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.has[uid]
	return t, ok, nil
}

func (s *sealed) ConsulAgents(_ context.Context, uid string) (director.ConsulAgents, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.agents[uid]
	return a, ok, nil
}

// SetConsulAgents implements Tokens.
func (s *sealed) SetConsulAgents(_ context.Context, uid string, a *director.ConsulAgents) error {
	s.setAgents(uid, a)
	return nil
}

// setAgents keeps what agents are known by; nil for a cluster without.
func (s *sealed) setAgents(uid string, a *director.ConsulAgents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.agents, uid); a != nil {
		s.agents[uid] = *a
	}
}

func (s *sealed) set(uid string, t director.ConsulToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has[uid] = t
}

// fixture is a director with a real Consul.
type fixture struct {
	*Service
	sealed  *sealed
	world   *world
	servers *servers
	account *account
	consul  *consultest.Server
	clock   time.Time
}

func setup(t testing.TB, server *consultest.Server, id string) *fixture {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	token, _ := server.Token(t, rules)
	f := &fixture{
		world:   &world{Store: db, docs: map[model.Ref]model.Stored{}},
		servers: &servers{down: map[string]bool{}}, account: &account{token: director.Secret(token)},
		consul: server, clock: time.Now(), sealed: &sealed{
			has: map[string]director.ConsulToken{}, agents: map[string]director.ConsulAgents{},
		},
	}
	f.Service = New(Config{
		Store: f.world, Accounts: f.account, Tokens: f.sealed, Director: id, URL: "https://director.example.org",
		Networks: confine.Networks{netip.MustParsePrefix("127.0.0.1/32"), consultest.Apart},
		Connect:  f.servers.connect, Log: log,
		Now: func() time.Time { f.clock = f.clock.Add(time.Millisecond); return f.clock },
	})
	t.Cleanup(f.Close)
	f.put(model.Consul{
		Addresses: []string{server.URL}, Datacenter: consultest.Datacenter, Domain: consultest.Domain,
		TLS: model.ConsulTLS{CA: server.CA, ServerName: consultest.Name}, Credentials: "token",
	})
	return f
}

func (f *fixture) put(c model.Consul) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	d := model.Stored{UID: "consul"}
	d.Kind, d.Metadata.Name, d.Consul = model.KindConsul, "dc1", &c
	f.world.docs[d.Ref()] = d
}

// cluster adds a cluster with masters and a virtual address, or replaces its machines.
func (f *fixture) cluster(uid, name, consul string, masters int) {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	c := &model.Cluster{API: model.APIEndpoint{VIP: netip.MustParseAddr("10.0.0.1")}}
	c.Discovery.Consul = consul
	d := model.Stored{UID: uid}
	d.Kind, d.Metadata.Name, d.Cluster = model.KindCluster, name, c
	f.world.docs[d.Ref()] = d
	f.world.machines = slices.DeleteFunc(f.world.machines, func(m director.Machine) bool { return m.ClusterUID == uid })
	for i := range masters {
		f.world.machines = append(f.world.machines, director.Machine{
			ID: fmt.Sprintf("%s-%d", uid, i+1), ClusterUID: uid, Cluster: name,
			Name: fmt.Sprintf("%s-master-%d", name, i+1), Role: director.RoleMaster,
			Address: fmt.Sprintf("10.0.%d.%d", len(uid), i+1), Kubernetes: "v1.37.0",
		})
	}
}

func (f *fixture) drop(uid, name string) {
	f.cluster(uid, name, "", 0)
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	delete(f.world.docs, model.Ref{Kind: model.KindCluster, Name: name})
}

// pass compares once, and returns how it went.
func (f *fixture) pass(t testing.TB) director.ConsulState {
	t.Helper()
	state, err := f.Sync(t.Context(), "dc1", "")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// well is pass that has no problem.
func (f *fixture) well(t testing.TB) director.ConsulState {
	t.Helper()
	state := f.pass(t)
	if state.Problem != "" {
		t.Fatalf("%s (%s)", state.Problem, state.Hint)
	}
	return state
}

// entries returns node/id=status of all entries of a director, as a token that may do everything sees them.
func (f *fixture) entries(t testing.TB, id string) []string {
	t.Helper()
	out, err := entriesOf(f.consul.Client(t, f.consul.Management), id, false)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// entriesOf is entries at one server, which asks the one that leads unless it may be stale.
func entriesOf(c *api.Client, id string, stale bool) ([]string, error) {
	q := api.QueryOptions{AllowStale: stale}
	ours := q
	ours.NodeMeta = map[string]string{MetaOwner: id}
	nodes, _, err := c.Catalog().Nodes(&ours)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, n := range nodes {
		list, _, err1 := c.Catalog().NodeServiceList(n.Node, &q)
		checks, _, err2 := c.Health().Node(n.Node, &q)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		status := map[string]string{}
		for _, h := range checks {
			status[h.ServiceID] = h.Status
		}
		for _, s := range list.Services {
			out = append(out, strings.TrimPrefix(n.Node, "kaas-")+"/"+s.ID+"="+status[s.ID])
		}
	}
	slices.Sort(out)
	return out, nil
}

package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// manned is a director with an agent next to it.
type manned struct {
	*fixture
	dir   string
	ready atomic.Bool // what the director says of itself
	alive []string    // directors of the database
	node  string
	end   func() // ends the agent as a stop of its unit does
	ended chan error
}

// withAgent puts an agent next to the director, whose program comes from a server of files.
func withAgent(t *testing.T, f *fixture, instance string) *manned {
	t.Helper()
	b := &manned{fixture: f, dir: t.TempDir(), alive: []string{instance}, node: "kaas-director-" + instance}
	b.ready.Store(true)
	self := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !b.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(self.Close)
	f.OwnAgent = OwnAgent{
		Dir: consulagent.At(b.dir), Instance: instance, Gossip: consultest.FreePorts(t, 1)[0],
		Ready:     func() netip.AddrPort { return netip.MustParseAddrPort(self.Listener.Addr().String()) },
		Instances: func(context.Context) ([]string, error) { return b.alive, nil },
	}
	return b
}

// wants has the document ask for the agent, or not.
func (b *manned) wants(t *testing.T, yes bool) {
	t.Helper()
	program, err := os.ReadFile(b.consul.Binary)
	if err != nil {
		t.Fatal(err)
	}
	files := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(program)
	}))
	t.Cleanup(files.Close)
	c := *b.world.docs[model.Ref{Kind: model.KindConsul, Name: "dc1"}].Consul
	c.Gossip, c.Agents = "gossip", model.ConsulAgents{
		Join: []string{b.consul.Join}, Director: yes, Program: model.ConsulProgram{
			URL: files.URL + "/consul", SHA256: fmt.Sprintf("%x", sha256.Sum256(program)),
			CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: files.Certificate().Raw})),
		},
	}
	b.put(c)
}

// run starts the agent as its unit does.
func (b *manned) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.ended = make(chan error, 1)
	done := b.ended
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { done <- consulagent.Run(ctx, consulagent.At(b.dir), filepath.Join(t.TempDir(), "data"), log) }()
	b.end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ends with %v", err)
		}
		done <- nil
	}
	t.Cleanup(func() { b.end() })
}

// status returns that of the director's service as its instances have it, by node, sorted.
func (b *manned) status(t *testing.T) []string {
	t.Helper()
	list, _, err := b.consul.Client(t, b.consul.Management).Health().Service(
		ServiceDirector, "", false, &api.QueryOptions{NodeMeta: map[string]string{MetaOwner: b.Director}},
	)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		out = append(out, e.Node.Node+"="+e.Checks.AggregatedStatus())
	}
	slices.Sort(out)
	return out
}

func (b *manned) untilIs(t *testing.T, want ...string) {
	slices.Sort(want)
	t.Helper()
	until(t, strings.Join(want, ", "), func() bool { return slices.Equal(b.status(t), want) })
}

// The agent next to a director has the director's entry: it fails when the director is not ready or dead, although no
// director compares, and the director's own entry is there while the agent is not.
func testOwnAgent(t *testing.T, server *consultest.Server) {
	b := withAgent(t, setup(t, server, "director-manned"), "i0123456789ab")
	may, _ := server.Token(t, makerRules)
	b.accounts(may)
	own := "kaas-director-manned="
	tick := func() {
		t.Helper()
		if err := b.KeepOwnAgent(t.Context()); err != nil {
			t.Fatalf("%v (%s)", err, director.HintOf(err))
		}
		b.well(t)
	}
	tick()
	b.untilIs(t, own+"passing")
	b.wants(t, true)
	tick()
	b.private(t)
	if got := b.absent(t); !slices.Equal(got, []string{"director-i0123456789ab missing"}) {
		t.Errorf("before the agent runs: %v", got)
	}
	b.run(t)
	until(t, "the agent's entry", func() bool { return slices.Contains(b.status(t), b.node+"=passing") })
	tick()
	b.untilIs(t, b.node+"=passing")
	b.finds(t, "kaas-director-i0123456789ab is seen")

	b.ready.Store(false) // it is dead: nothing compares, and the check fails
	b.untilIs(t, b.node+"=critical")
	tick() // it is alive, and not ready
	b.untilIs(t, b.node+"=critical")
	b.ready.Store(true)
	b.untilIs(t, b.node+"=passing")

	b.end()
	// The check may fail before other members see that the agent is gone.
	until(t, "the end of the agent", func() bool {
		return slices.Equal(b.absent(t), []string{"director-i0123456789ab changed"})
	})
	tick()
	b.untilIs(t, own+"passing", b.node+"=critical")
	b.run(t)
	until(t, "the agent again", func() bool { return slices.Contains(b.status(t), b.node+"=passing") })
	tick()
	b.untilIs(t, b.node+"=passing")
	b.others(t, tick)

	b.wants(t, false)
	tick()
	if err := <-b.ended; err != nil {
		t.Errorf("the agent leaves with %v", err)
	}
	b.ended <- nil
	tick()
	b.untilIs(t, own+"passing")
	if got := b.accessors(t, b.Director); got != nil {
		t.Errorf("tokens %v are left", got)
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// accounts has the token and the gossip key in the director's credentials.
func (b *manned) accounts(token string) {
	b.account.token, b.account.gossip = director.Secret(token), director.Secret(b.consul.Gossip)
}

// private looks at who may read the files with secrets, and whose token it is.
func (b *manned) private(t *testing.T) {
	t.Helper()
	for _, name := range []string{"secrets.json", "agent.json", "run.json"} {
		if info, err := os.Stat(filepath.Join(b.dir, name)); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	agents, _, _ := b.sealed.ConsulAgents(t.Context(), b.Director)
	c := b.consul.Client(t, agents.Tokens["director-i0123456789ab"].Secret.Reveal())
	other := &api.CatalogRegistration{Node: "kaas-demo-master-1", Address: "10.9.9.9"}
	if _, err := c.Catalog().Register(other, nil); err == nil {
		t.Error("the token of the agent writes other nodes")
	}
}

// finds looks at what the test of the Consul says of the agent.
func (b *manned) finds(t *testing.T, want string) {
	t.Helper()
	list, err := b.Test(t.Context(), "dc1")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.What == "agent next to the director" {
			if n.Err != nil || n.Found != want {
				t.Errorf("the test finds %q, %v", n.Found, n.Err)
			}
			return
		}
	}
	t.Error("the test says nothing of the agent")
}

// others sees the token of another director stay while that director lives, and go when Consul does not know it.
func (b *manned) others(t *testing.T, tick func()) {
	t.Helper()
	agents, _, _ := b.sealed.ConsulAgents(t.Context(), b.Director)
	agents.Tokens["director-iother"] = director.AgentToken{
		Machine: "iother", Accessor: "11111111-aaaa-4000-8000-000000000000",
		Secret:   "22222222-aaaa-4000-8000-000000000000",
		Services: []string{ServiceDirector},
	}
	b.sealed.setAgents(b.Director, &agents)
	b.alive = append(b.alive, "iother")
	tick()
	if got := b.accessors(t, b.Director); len(got) != 2 {
		t.Errorf("the tokens of two directors: %v", got)
	}
	b.alive = b.alive[:1]
	tick()
	if got := b.accessors(t, b.Director); len(got) != 1 {
		t.Errorf("after the end of one of them: %v", got)
	}
}

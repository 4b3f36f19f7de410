package discovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// What is on one Consul, in an order in which each part finds it well.
func TestRealConsul(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	t.Run("test", func(t *testing.T) { testTest(t, server) })
	t.Run("rights", func(t *testing.T) { testRights(t, server) })
	t.Run("life of a cluster", func(t *testing.T) { testLife(t, server) })
	t.Run("drift", func(t *testing.T) { testDrift(t, server) })
	t.Run("two directors", func(t *testing.T) { testTwoDirectors(t, server) })
	t.Run("guard", func(t *testing.T) { testGuard(t, server) })
	t.Run("tokens", func(t *testing.T) { testTokens(t, server) })
	t.Run("rights of a sync", func(t *testing.T) { testRightsOfASync(t, server) })
	t.Run("agents", func(t *testing.T) { testAgents(t, server) })
	t.Run("agent that is off", func(t *testing.T) { testAgentThatIsOff(t, server) })
	t.Run("agents have API servers", func(t *testing.T) { testHandover(t, server) })
	t.Run("agents have the virtual address", func(t *testing.T) { testVirtualAddress(t, server) })
	t.Run("names of nodes that others have", func(t *testing.T) { testTakenNodes(t, server) })
	t.Run("agent next to the director", func(t *testing.T) { testOwnAgent(t, server) })
	t.Run("hosts outside", func(t *testing.T) { testOutside(t, server) })
	t.Run("lost right", func(t *testing.T) { testLostRight(t, server) })
}

// findings are what a test says, one line each.
func findings(t *testing.T, f *fixture) map[string]error {
	t.Helper()
	list, err := f.Test(t.Context(), "dc1")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]error{}
	for _, n := range list {
		out[n.What] = n.Err
		if n.Err == nil && n.Found == "" {
			t.Errorf("%s is well, and says nothing", n.What)
		}
		if n.Err != nil && director.HintOf(n.Err) == "" {
			t.Errorf("%s: %v has no hint", n.What, n.Err)
		}
	}
	return out
}

func wrong(found map[string]error) []string {
	var out []string
	for what, err := range found {
		if err != nil {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}

func testTest(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-test")
	good := *f.world.docs[model.Ref{Kind: model.KindConsul, Name: "dc1"}].Consul
	found := findings(t, f)
	if w := wrong(found); len(w) > 0 || len(found) != 14 {
		t.Errorf("a Consul that is well: %v of %v", w, found)
	}
	other := consultest.Start(t)
	for name, tt := range map[string]struct {
		change func(*model.Consul)
		token  string
		want   string // what is wrong
		say    string
	}{
		"a name that leads nowhere": {func(c *model.Consul) {
			c.Addresses = []string{"https://consul.invalid:8501"}
		}, "", "address", "cannot be resolved"},
		"an address that is not allowed": {func(c *model.Consul) {
			c.Addresses = []string{"https://127.0.0.2:8501"}
		}, "", "address", "not allowed"},
		"nothing listens": {func(c *model.Consul) {
			c.Addresses = []string{"https://127.0.0.1:1"}
		}, "", "connection", "does not answer"},
		"another authority": {func(c *model.Consul) { c.TLS.CA = other.CA }, "", "certificate", "not trusted"},
		"another name": {func(c *model.Consul) {
			c.TLS.ServerName = ""
		}, "", "certificate", "for another name"},
		"no authority": {func(c *model.Consul) {
			c.TLS.CA = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"
		}, "", "settings", "holds no certificate"},
		"wrong datacenter": {func(c *model.Consul) { c.Datacenter = "dc9" }, "", "datacenter", "it is dc1"},
		"wrong domain":     {func(c *model.Consul) { c.Domain = "corp" }, "", "domain", "answers for consul"},
		"no credentials": {
			func(c *model.Consul) { c.Credentials = "none" }, "", "credentials none",
			"no credentials",
		},
		"revoked token": {func(*model.Consul) {}, "11111111-2222-3333-4444-555555555555", "token", "does not know"},
		"gossip key": {func(c *model.Consul) {
			c.Gossip = "gossip"
		}, "", "credentials gossip", "no gossip key"},
	} {
		c := good
		tt.change(&c)
		f.put(c)
		token := f.account.token
		if tt.token != "" {
			f.account.token = director.Secret(tt.token)
		}
		found := findings(t, f)
		f.account.token = token
		if w := wrong(found); len(w) != 1 || w[0] != tt.want ||
			!strings.Contains(director.MessageOf(found[tt.want])+director.HintOf(found[tt.want]), tt.say) {
			t.Errorf("%s: wrong are %v: %v", name, w, found[tt.want])
		}
	}
}

// Each right that is missing is named by itself, with the rule that gives it.
func testRights(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-rights")
	lines := strings.Split(strings.TrimSpace(rules), "\n")
	want := map[string][]string{
		"node_prefix":    {"right node:write kaas-UID", "right node:write kaas-director-rights"},
		"service_prefix": {"right service:write kaas-api-CLUSTER", "right service:write kaas-director"},
		"agent_prefix":   {"right agent:read"},
	}
	for i, line := range lines {
		without := slices.Delete(slices.Clone(lines), i, i+1)
		token, _ := server.Token(t, strings.Join(without, "\n"))
		f.account.token = director.Secret(token)
		found := findings(t, f)
		expected := want[strings.Fields(line)[0]]
		if strings.HasPrefix(line, `service_prefix ""`) {
			expected = []string{"right service:read"}
		}
		if diff := cmp.Diff(expected, wrong(found)); diff != "" {
			t.Errorf("without %s (-want +got)\n%s", line, diff)
		}
		for _, w := range expected {
			if hint := director.HintOf(found[w]); !strings.Contains(hint, line) {
				t.Errorf("%s: the hint is %q", w, hint)
			}
		}
	}
}

func testLife(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-life")
	f.sealed.set("u1", director.ConsulToken{Consul: "dc1"})
	f.cluster("u1", "demo", "dc1", 3)
	f.cluster("u2", "elsewhere", "", 1)
	if s := f.well(t); s.Written != 5 || s.Wanted != 5 {
		t.Errorf("the first comparison: %+v", s)
	}
	all := []string{
		"director-life/kaas-director=passing", "u1/kaas-api-demo-master-1=passing", "u1/kaas-api-demo-master-2=passing",
		"u1/kaas-api-demo-master-3=passing", "u1/kaas-api-vip=passing",
	}
	if diff := cmp.Diff(all, f.entries(t, "director-life")); diff != "" {
		t.Error(diff)
	}
	if s := f.well(t); s.Written != 0 || s.Removed != 0 {
		t.Errorf("the second comparison changes something: %+v", s)
	}
	// Programs find the virtual address by its tag.
	c := server.Client(t, server.Management)
	vip, _, err := c.Health().Service("kaas-api-demo", "vip", true, nil)
	if err != nil || len(vip) != 1 || vip[0].Service.Address != "10.0.0.1" || vip[0].Service.Port != 6443 {
		t.Errorf("the virtual address is %v, %v", vip, err)
	}
	// One failure is not believed; two are. An answer is.
	f.servers.down["10.0.2.2:6443"] = true
	if s := f.well(t); s.Written != 0 {
		t.Errorf("one failure: %+v", s)
	}
	if s := f.well(t); s.Written != 1 || s.Failing != 1 {
		t.Errorf("two failures: %+v", s)
	}
	if !slices.Contains(f.entries(t, "director-life"), "u1/kaas-api-demo-master-2=critical") {
		t.Errorf("%v", f.entries(t, "director-life"))
	}
	delete(f.servers.down, "10.0.2.2:6443")
	if s := f.well(t); s.Written != 1 || s.Failing != 0 {
		t.Errorf("it is back: %+v", s)
	}
	f.cluster("u1", "demo", "dc1", 1) // two masters are gone
	if s := f.well(t); s.Removed != 2 {
		t.Errorf("two masters less: %+v", s)
	}
	// What a program in the cluster has written stays with the cluster, and goes with it.
	_, err = c.Catalog().Register(&api.CatalogRegistration{
		Node: "kaas-u1", Address: NodeAddress, SkipNodeUpdate: true, Service: &api.AgentService{
			ID: "web", Service: "web", Address: "10.9.9.9", Port: 80,
			Meta: map[string]string{MetaOwner: "director-life", MetaCluster: "u1", MetaKey: "service/default/web"},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := f.well(t); s.Written != 0 || s.Removed != 0 {
		t.Errorf("with an entry of another writer: %+v", s)
	}
	list, err := f.Services(t.Context(), "dc1")
	if err != nil || len(list) != 4 || list[3].ID != "web" || list[3].Own || list[3].Drift != "" {
		t.Errorf("registered are %+v, %v", list, err)
	}
	f.drop("u1", "demo")
	if s := f.well(t); s.Removed != 3 {
		t.Errorf("the cluster is gone: %+v", s)
	}
	if diff := cmp.Diff(all[:1], f.entries(t, "director-life")); diff != "" {
		t.Errorf("a deleted cluster leaves\n%s", diff)
	}
}

// What others change is repaired; what others own is left alone.
func testDrift(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-drift")
	f.cluster("d1", "demo", "dc1", 1)
	f.well(t)
	c := server.Client(t, server.Management)
	change := func(reg *api.CatalogRegistration) {
		t.Helper()
		if _, err := c.Catalog().Register(reg, nil); err != nil {
			t.Fatal(err)
		}
	}
	mine := map[string]string{MetaOwner: "director-drift", MetaWriter: "director"}
	change(&api.CatalogRegistration{ // another address
		Node: "kaas-d1", Address: NodeAddress, SkipNodeUpdate: true, Service: &api.AgentService{
			ID: "kaas-api-vip", Service: "kaas-api-demo", Address: "10.6.6.6", Port: 6443, Meta: mine,
		},
	})
	change(&api.CatalogRegistration{ // an entry that no one wants, and one of a stranger
		Node: "kaas-d1", Address: NodeAddress, SkipNodeUpdate: true,
		Service: &api.AgentService{ID: "old", Service: "kaas-api-demo", Port: 1, Meta: mine},
	})
	change(&api.CatalogRegistration{
		Node: "kaas-d1", Address: NodeAddress, SkipNodeUpdate: true, Service: &api.AgentService{ID: "x", Service: "x"},
	})
	if _, err := c.Catalog().Deregister(&api.CatalogDeregistration{
		Node: "kaas-d1", ServiceID: "kaas-api-demo-master-1",
	}, nil); err != nil {
		t.Fatal(err)
	}
	change(&api.CatalogRegistration{ // the director's node leads elsewhere
		Node: "kaas-director-drift", Address: "10.6.6.6", NodeMeta: map[string]string{MetaOwner: "director-drift"},
	})
	list, err := f.Services(t.Context(), "dc1")
	drifts := map[string]Drift{}
	for _, r := range list {
		drifts[r.ID] = r.Drift
	}
	if diff := cmp.Diff(map[string]Drift{
		"kaas-api-vip": DriftChanged, "old": DriftSurplus, "x": "", "kaas-api-demo-master-1": DriftMissing,
		"kaas-director": DriftChanged,
	}, drifts); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if s := f.well(t); s.Written != 3 || s.Removed != 1 {
		t.Errorf("the repair: %+v", s)
	}
	if s := f.well(t); s.Written != 0 || s.Removed != 0 {
		t.Errorf("after the repair: %+v", s)
	}
	if got := f.entries(t, "director-drift"); len(got) != 4 || !slices.Contains(got, "d1/x=") {
		t.Errorf("there are %v", got)
	}
	// Plans write and remove a cluster by themselves, again and again.
	for range 2 {
		if err := f.Deregister(t.Context(), "dc1", "d1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.entries(t, "director-drift"); len(got) != 1 {
		t.Errorf("after the plan of the deletion there are %v", got)
	}
	for range 2 {
		if err := f.Register(t.Context(), "dc1", "d1"); err != nil {
			t.Fatal(err)
		}
	}
	if s := f.well(t); s.Written != 0 {
		t.Errorf("after the plan of the creation: %+v", s)
	}
}

// Two directors with clusters of the same names leave each other's entries alone, whatever they delete.
func testTwoDirectors(t *testing.T, server *consultest.Server) {
	a, b := setup(t, server, "director-a"), setup(t, server, "director-b")
	for i := range 6 {
		a.cluster(fmt.Sprintf("a%d", i), fmt.Sprintf("demo%d", i), "dc1", 1)
		b.cluster(fmt.Sprintf("b%d", i), fmt.Sprintf("demo%d", i), "dc1", 1)
	}
	a.well(t)
	b.well(t)
	of := b.entries(t, "director-b")
	if len(of) != 13 {
		t.Fatalf("b has %v", of)
	}
	err := findings(t, a)["names of API servers"]
	if err == nil || !strings.Contains(err.Error(), "12 instances") ||
		!strings.Contains(err.Error(), "kaas-api-demo0 at 10.") ||
		!strings.Contains(err.Error(), "on the node kaas-b0 of director-b") {
		t.Errorf("the test of a Consul with clusters of the same names: %v", err)
	}
	for i := range 6 {
		a.drop(fmt.Sprintf("a%d", i), fmt.Sprintf("demo%d", i))
		a.well(t)
		b.well(t)
		if err := a.Deregister(t.Context(), "dc1", fmt.Sprintf("b%d", i)); err != nil { // not its own
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(of, b.entries(t, "director-b")); diff != "" {
		t.Errorf("b lost\n%s", diff)
	}
	if got := a.entries(t, "director-a"); len(got) != 1 {
		t.Errorf("a left %v", got)
	}
	if err, asked := findings(t, b)["names of API servers"]; err != nil || !asked {
		t.Errorf("with names of its own: %v, asked %t", err, asked)
	}
}

// Removals that are many at once wait for a person, who agrees to exactly them.
func testGuard(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-guard")
	for i := range 10 {
		f.cluster(fmt.Sprintf("g%d", i), fmt.Sprintf("g%d", i), "dc1", 3)
	}
	f.well(t)
	for i := range 3 {
		f.drop(fmt.Sprintf("g%d", i), fmt.Sprintf("g%d", i))
	}
	s := f.pass(t)
	if s.Held == nil || s.Held.Count != 12 || s.Held.Total != 41 || len(s.Held.Sample) != 10 || s.Removed != 0 ||
		!strings.Contains(s.Hint, "--confirm "+s.Held.ID) {
		t.Fatalf("not held: %+v", s)
	}
	if _, err := f.Sync(t.Context(), "dc1", "another"); director.KindOf(err) != director.KindConflict {
		t.Errorf("another id: %v", err)
	}
	// New entries are written all the same, and one more removal is another question.
	f.cluster("new", "new", "dc1", 1)
	old := s.Held.ID
	f.drop("g3", "g3")
	if s = f.pass(t); s.Held == nil || s.Held.ID == old || s.Written != 2 {
		t.Fatalf("one more: %+v", s)
	}
	s, err := f.Sync(t.Context(), "dc1", s.Held.ID)
	if err != nil || s.Held != nil || s.Removed != 16 || s.Problem != "" {
		t.Errorf("confirmed: %+v, %v", s, err)
	}
	if got := f.entries(t, "director-guard"); len(got) != 27 {
		t.Errorf("%d are left: %v", len(got), got)
	}
	// A database that cannot be read is no world without machines.
	f.world.broken = director.Errorf(director.KindUnavailable, "test", "the database is locked")
	if s := f.pass(t); s.Problem != "the database is locked" || s.Removed != 0 {
		t.Errorf("without a database: %+v", s)
	}
}

// A token that loses a right stops everything, and nothing is taken for missing or surplus.
func testLostRight(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-right")
	token, change := server.Token(t, rules)
	f.account.token = director.Secret(token)
	f.cluster("r1", "demo", "dc1", 1)
	f.well(t)
	before := f.entries(t, "director-right")
	f.drop("r1", "demo")
	for _, less := range []string{
		`service_prefix "" { policy = "read" }`,
		`node_prefix "kaas-" { policy = "read" }` + "\n" + `service_prefix "" { policy = "read" }`,
		`node_prefix "kaas-" { policy = "write" }`,
		`agent_prefix "" { policy = "read" }`,
	} {
		change(less)
		eventually(t, less, func() bool {
			s := f.pass(t)
			return s.Problem != "" && s.Hint != "" && s.Removed == 0
		})
		if diff := cmp.Diff(before, f.entries(t, "director-right")); diff != "" {
			t.Errorf("with %s\n%s", less, diff)
		}
	}
	change(rules)
	eventually(t, "all rights", func() bool { return f.pass(t).Problem == "" })
	if got := f.entries(t, "director-right"); len(got) != 1 {
		t.Errorf("with all rights again: %v", got)
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it does not come", what)
		}
	}
}

// fleet adds clusters with four masters and a virtual address each, which are five entries, and returns how many
// entries are wanted with the director's own.
func (f *fixture) fleet(clusters int) (entries int) {
	for i := range clusters {
		f.cluster(fmt.Sprintf("e%03d", i), fmt.Sprintf("c%03d", i), "dc1", 4)
	}
	return clusters*5 + 1
}

// comesBackEmpty wipes the Consul, which is stopped, and starts it.
func (f *fixture) comesBackEmpty(t testing.TB) {
	t.Helper()
	f.consul.Wipe(t)
	f.consul.Run(t)
	token, _ := f.consul.Token(t, rules)
	f.account.token = director.Secret(token)
}

// A Consul that comes back empty gets everything again; one that is away loses and delays nothing.
func TestEmptyConsulComesBack(t *testing.T) {
	t.Parallel()
	server := consultest.Start(t)
	f := setup(t, server, "director-empty")
	all := f.fleet(20)
	f.well(t)
	if s := f.well(t); s.Written != 0 || s.Wanted != all {
		t.Errorf("%+v", s)
	}
	last, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	s := f.pass(t)
	if s.Problem == "" || !strings.Contains(s.Hint, "directorctl consul test") || s.Success != last[0].State.Success {
		t.Errorf("a Consul that is away: %+v", s)
	}
	f.comesBackEmpty(t)
	f.well(t)
	if got := f.entries(t, "director-empty"); len(got) != all {
		t.Errorf("there are %d entries", len(got))
	}
}

// BenchmarkEmptyConsul registers a director and 200 clusters of five entries in a real Consul that came back empty.
// Their API servers are pretended and answer at once. A director compares each 15 seconds: that is not in it.
func BenchmarkEmptyConsul(b *testing.B) {
	f := setup(b, consultest.Start(b), "director-empty")
	all := f.fleet(200)
	f.well(b)
	var longest, unchanged time.Duration
	for b.Loop() {
		began := time.Now()
		f.well(b)
		unchanged = max(unchanged, time.Since(began))
		f.consul.Stop()
		f.comesBackEmpty(b)
		began = time.Now()
		if s := f.well(b); s.Written != all {
			b.Fatalf("%+v", s)
		}
		longest = max(longest, time.Since(began))
	}
	b.ReportMetric(longest.Seconds(), "s-longest")
	b.ReportMetric(unchanged.Seconds(), "s-unchanged")
	b.ReportMetric(float64(all), "entries")
}

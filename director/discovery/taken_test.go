package discovery

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// Two directors that share a Consul and have clusters of one name: the second one is told whose the nodes are before
// it makes any, and Consul indeed refuses an agent of that name.
func testTakenNodes(t *testing.T, server *consultest.Server) {
	a, b := setup(t, server, "director-first"), setup(t, server, "director-second")
	may, _ := server.Token(t, makerRules)
	const node = "twin-master-1"
	for f, uid := range map[*fixture]string{a: "first", b: "second"} {
		f.account.token = director.Secret(may)
		f.cluster(uid, "twin", "dc1", 1)
	}
	taken := func(f *fixture) []director.Field {
		t.Helper()
		out, err := f.TakenNodes(t.Context(), "dc1", []string{node, "twin-worker-1"})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := taken(b); len(got) > 0 {
		t.Errorf("before there is a node: %v", got)
	}
	tokens := a.manned("first").Tokens
	a.keep(t, "first")
	end := a.agent(t, "first", node, tokens[node])
	until(t, "the agent of the first", func() bool { return len(a.absent(t)) == 0 })
	if got := taken(a); len(got) > 0 {
		t.Errorf("its own nodes: %v", got)
	}
	got := taken(b)
	if len(got) != 1 || got[0].Path != "metadata.name" || got[0].Hint == "" ||
		!strings.HasSuffix(got[0].Msg, "of the director director-first, for its cluster first: kaas-"+node) {
		t.Errorf("nodes of another director: %v", got)
	}
	if _, err := server.Client(t, server.Management).Catalog().Register(&api.CatalogRegistration{
		ID: uuid.NewString(), Node: Node(node), Address: "10.0.9.9",
	}, nil); err == nil {
		t.Error("Consul takes a second node of that name")
	}
	end(os.Kill)
	until(t, "the end of the agent", func() bool { return len(a.absent(t)) == 1 })
	if got := taken(b); len(got) != 1 {
		t.Errorf("a node of another director that is off: %v", got)
	}
	a.drop("first", "twin")
	a.sealed.setAgents("first", nil)
	if err := a.EndAgents(t.Context(), "dc1", "first"); err != nil {
		t.Fatal(err)
	}
	if got := taken(b); len(got) > 0 {
		t.Errorf("once the first cluster is gone: %v", got)
	}
	away := *b.world.docs[model.Ref{Kind: model.KindConsul, Name: "dc1"}].Consul
	away.Addresses = []string{"https://127.0.0.1:1"}
	b.put(away)
	if _, err := b.TakenNodes(t.Context(), "dc1", []string{node}); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("a Consul that is away: %v", err)
	}
}

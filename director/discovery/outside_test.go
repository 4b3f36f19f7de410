package discovery

import (
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// Members of the Consul are hosts outside, as far as the token may read them; the director's own nodes are not.
func testOutside(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-outside")
	f.URL = "https://10.7.0.1:8443"
	if _, err := server.Client(t, server.Management).Catalog().Register(
		&api.CatalogRegistration{Node: "billing", Address: "10.7.0.9"}, nil,
	); err != nil {
		t.Fatal(err)
	}
	f.cluster("x1", "outer", "dc1", 1)
	f.well(t)
	seen := func(rules string) map[string]string {
		t.Helper()
		token, _ := server.Token(t, rules)
		f.account.token = director.Secret(token)
		hosts, err := f.outside(t.Context(), "dc1")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for name, a := range hosts {
			out[name] = a.String()
		}
		return out
	}
	if got := seen(rules); len(got) != 1 || got["the director"] != "10.7.0.1" {
		t.Errorf("without the right to read nodes: %v", got)
	}
	got := seen(rules + `node_prefix "" { policy = "read" }`)
	if got["billing"] != "10.7.0.9" || got["server1"] != "" || got[Node("x1")] != "" || got[Node(f.Director)] != "" {
		t.Errorf("with it: %v", got)
	}
}

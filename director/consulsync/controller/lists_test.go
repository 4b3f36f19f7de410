package controller

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

// A list is read to its end, or is an error: one that is cut off, or filtered, never decides what is on the node.
func TestLists(t *testing.T) {
	t.Parallel()
	const (
		top      = `{"Node":{"Node":"kaas-c1","Address":"127.0.0.1","Meta":{"kaas-owner":"d1","kaas-cluster":"c1"}},`
		services = top + `"Services":[{"ID":"a","Service":"web","Address":"192.0.2.1","Port":80,"Tags":["y","x"],` +
			`"Meta":{"k":"v"},"ModifyIndex":7,"Proxy":{}},{"ID":"b","Service":"db"}],"More":[1]}`
		nodes  = `[{"Node":"kaas-c1","Meta":{}},{"Node":"kaas-demo-1"}]`
		checks = `[{"CheckID":"a","ServiceID":"a","Status":"passing"},{"CheckID":"serf","ServiceID":"","Status":"x"}]`
	)
	entries := []consulsync.Actual{
		{
			Entry: consulsync.Entry{
				ID: "a", Name: "web", Address: "192.0.2.1", Port: 80, Tags: []string{"x", "y"},
				Meta: map[string]string{"k": "v"}, Passing: true,
			}, Checked: true, Index: 7,
		},
		{Entry: consulsync.Entry{ID: "b", Name: "db"}},
	}
	for name, c := range map[string]struct {
		nodes, services, checks, leader, filtered string
		status                                    int
		want                                      []consulsync.Actual
		node                                      bool
		kind                                      director.Kind // of the error; empty for none
	}{
		"all":              {services: services, checks: checks, want: entries, node: true},
		"no node":          {nodes: "[]"},
		"agents alone":     {nodes: `[{"Node":"kaas-demo-1"},{"Node":"kaas-c1.1"},{"Node":"kaas-c1.02"}]`},
		"a node that went": {services: "null"},
		"nodes cut off": {
			nodes: nodes[:len(nodes)-1], services: services, checks: checks, kind: director.KindUnavailable,
		},
		"a node without":     {services: top + `"Services":[]}`, checks: "[]", node: true},
		"cut off":            {services: services[:len(services)-30], checks: checks, kind: director.KindUnavailable},
		"cut off at the end": {services: services[:len(services)-1], checks: checks, kind: director.KindUnavailable},
		"checks cut off":     {services: services, checks: checks[:len(checks)-1], kind: director.KindUnavailable},
		"a list":             {services: "[]", checks: checks, kind: director.KindUnavailable},
		"no list":            {services: services, checks: `{"a":1}`, kind: director.KindUnavailable},
		"other types": {
			services: top + `"Services":[{"ID":1}]}`, checks: checks,
			kind: director.KindUnavailable,
		},
		"no leader": {services: services, checks: checks, leader: "false", kind: director.KindUnavailable},
		"filtered":  {services: services, checks: checks, filtered: "true", kind: director.KindForbidden},
		"denied":    {services: "Permission denied", status: 403, kind: director.KindForbidden},
		"broken": {
			services: strings.Repeat("No cluster leader", 1<<16), status: 500, kind: director.KindUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); !q.Has("consistent") || q.Get("dc") != "dc1" {
					t.Errorf("it asks %s", r.URL)
				}
				w.Header().Set("X-Consul-KnownLeader", map[string]string{"": "true"}[c.leader])
				w.Header().Set("X-Consul-Results-Filtered-By-ACLs", c.filtered)
				w.WriteHeader(max(c.status, http.StatusOK))
				text := c.checks
				switch {
				case r.URL.Path == "/v1/catalog/nodes" && r.URL.Query().Get("node-meta") == "kaas-cluster:c1":
					text = cmp.Or(c.nodes, nodes)
				case strings.HasPrefix(r.URL.Path, "/v1/catalog/node-services/kaas-c1"):
					text = c.services
				}
				_, _ = fmt.Fprint(w, text)
			}))
			defer server.Close()
			read := &catalog{
				lists:    &lists{server.Client(), server.URL, "dc1"},
				identity: consulsync.Identity{Owner: "d1", Cluster: "c1"},
			}
			got, err := read.read(t.Context())
			if (err != nil) != (c.kind != "") || err != nil && director.KindOf(err) != c.kind {
				t.Fatalf("the error is %v, want the kind %q", err, c.kind)
			}
			if err != nil && len(err.Error()) > 8<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if diff := gocmp.Diff(c.want, got.entries); diff != "" || got.nodes[0] != c.node {
				t.Errorf("nodes that are well: %v\n%s", got.nodes, diff)
			}
		})
	}
}

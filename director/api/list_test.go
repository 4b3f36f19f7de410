package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/cores"
	"github.com/director-kaas/kaas/director/wire"
)

// fleet applies clusters c0 to c4 and plans each; even ones are in the zone a.
func (b *bundle) fleet(t *testing.T) {
	t.Helper()
	for i := range 5 {
		name := fmt.Sprintf("{name: c%d, labels: {zone: %c}}", i, 'a'+i%2)
		b.do(t, http.MethodPost, "/apply", strings.Replace(cluster, "{name: demo}", name, 1), http.StatusOK, nil)
		b.do(t, http.MethodPost, fmt.Sprintf("/clusters/c%d/plans", i), "", http.StatusCreated, nil)
	}
}

// walk reads a list part by part and returns the named field of its items, with a stroke after each part.
func (b *bundle) walk(t *testing.T, path, field string) string {
	t.Helper()
	var out []string
	for at := path; ; {
		var l struct {
			Items    []map[string]json.RawMessage `json:"items"`
			Continue string                       `json:"continue"`
		}
		b.do(t, http.MethodGet, at, "", http.StatusOK, &l)
		for _, item := range l.Items {
			out = append(out, strings.Trim(string(item[field]), `"`))
		}
		if l.Continue == "" {
			return strings.Join(out, " ")
		}
		out = append(out, "|")
		at = path + "&continue=" + url.QueryEscape(l.Continue)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fleet(t)
	for _, c := range []struct{ path, field, want string }{
		{"/plans?limit=2", "cluster", "c4 c3 | c2 c1 | c0"},
		{"/plans?limit=2&sort=created_at", "cluster", "c0 c1 | c2 c3 | c4"},
		{"/plans?limit=3&sort=-cluster", "cluster", "c4 c3 c2 | c1 c0"},
		{"/plans?cluster=c1", "cluster", "c1"},
		{"/plans?status=running,failed", "cluster", ""},
		{"/plans?status=planned&operation=cluster.create&id_prefix=p0003", "cluster", "c2"},
		{"/clusters?limit=2", "name", "c0 c1 | c2 c3 | c4"},
		{"/clusters?limit=2&sort=-name&label=zone=a", "name", "c4 c2 | c0"},
		{"/clusters?label=zone&status=ready", "name", ""},
		{"/clusters?name_prefix=c3", "name", "c3"},
		{"/documents/Cluster?limit=3&label=zone=b", "name", "c1 c3"},
		{"/documents/Cluster?limit=3&sort=-name&fields=name,generation", "generation", "1 1 1 | 1 1"},
	} {
		if got := b.walk(t, c.path, c.field); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}

func TestChosenFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fleet(t)
	var got struct {
		Items []map[string]any `json:"items"`
	}
	b.do(t, http.MethodGet, "/plans?limit=1&fields=id,status", "", http.StatusOK, &got)
	if diff := cmp.Diff([]map[string]any{{"id": "p0005", "status": "planned"}}, got.Items); diff != "" {
		t.Error(diff)
	}
	got.Items = nil
	b.do(t, http.MethodGet, "/clusters?limit=2&fields=status,endpoint,name,machines", "", http.StatusOK, &got)
	if diff := cmp.Diff([]map[string]any{
		{"name": "c0", "status": "absent", "machines": []any{}},
		{"name": "c1", "status": "absent", "machines": []any{}},
	}, got.Items); diff != "" {
		t.Error(diff)
	}
	resp := b.send(t, http.MethodGet, "/documents/Cluster?limit=2&label=zone=a", "", "Accept", "application/yaml")
	link := resp.Header.Get("Link")
	if !strings.HasPrefix(link, "<"+wire.Prefix+"/documents/Cluster?") || !strings.Contains(link, "label=zone%3Da") ||
		!strings.HasSuffix(link, `>; rel="next"`) {
		t.Errorf("a list in YAML continues at %q", link)
	}
}

func TestWrongLists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fleet(t)
	var l wire.Plans
	b.do(t, http.MethodGet, "/plans?limit=2&status=planned", "", http.StatusOK, &l)
	for path, field := range map[string]string{
		"/plans?continue=nonsense":                                  "query.continue",
		"/plans?continue=" + l.Continue:                             "query.continue", // without the filter
		"/plans?status=planned&sort=cluster&continue=" + l.Continue: "query.continue",
		"/plans?sort=hash":                                          "query.sort",
		"/plans?status=finished":                                    "query.status",
		"/clusters?plan_status=finished":                            "query.plan_status",
		"/plans?fields=id,colour":                                   "query.fields",
		"/clusters?sort=age":                                        "query.sort",
		"/documents/Cluster?fields=spec":                            "query.fields",
	} {
		p := problemOf(t, b.send(t, http.MethodGet, path, ""))
		if p.Status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || p.Errors[0].Field != field ||
			p.Errors[0].Hint == "" {
			t.Errorf("%s: %+v", path, p)
		}
	}
}

func TestEventsCanBeFiltered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	p := b.start(t)
	var e wire.Events
	b.do(t, http.MethodGet, "/plans/"+p.ID+"/events?kind=succeeded&limit=2", "", http.StatusOK, &e)
	if len(e.Items) != 2 || e.Items[1].Kind != "succeeded" || e.Ended {
		t.Errorf("%+v", e)
	}
	b.do(
		t, http.MethodGet, fmt.Sprintf("/plans/%s/events?kind=succeeded&after=%d", p.ID, e.Last), "", http.StatusOK, &e,
	)
	if len(e.Items) != 2 || !e.Ended {
		t.Errorf("the rest: %+v", e)
	}
	b.do(t, http.MethodGet, "/plans/"+p.ID+"/events?limit=1&after=1", "", http.StatusOK, &e)
	if len(e.Items) != 1 || e.Last != 2 || e.Ended {
		t.Errorf("one: %+v", e)
	}
}

// watched notes how nice the threads are that are asked about clusters.
type watched struct {
	api.Clusters
	list, one atomic.Int64
}

func (w *watched) ListClusters(ctx context.Context, q clusters.Query) ([]clusters.View, *director.Place, error) {
	w.list.Store(niceness())
	return w.Clusters.ListClusters(ctx, q)
}

func (w *watched) ClusterView(ctx context.Context, name string) (clusters.View, error) {
	w.one.Store(niceness())
	return w.Clusters.ClusterView(ctx, name)
}

func niceness() int64 {
	n, _ := cores.Niceness() // it fails for threads of others alone
	return int64(n)
}

// A list goes before other work where the process may do that, which root may. Other tests list at the same time, and
// only so many are first: one of many is.
func TestListsAreFirst(t *testing.T) {
	t.Parallel()
	w, usual := &watched{}, niceness()
	b := setup(t, func(c *api.Config) { w.Clusters, c.Clusters = c.Clusters, w })
	b.fleet(t)
	first := false
	for range 100 {
		b.do(t, http.MethodGet, "/clusters", "", http.StatusOK, nil)
		if n := w.list.Load(); n < usual {
			first = true
			break
		}
	}
	if may := os.Geteuid() == 0 && usual > -20; first != may {
		t.Errorf("a list was first: %t", first)
	}
	b.do(t, http.MethodGet, "/clusters/c0", "", http.StatusOK, nil)
	if n := w.one.Load(); n != usual {
		t.Errorf("the answer about one cluster had niceness %d and not %d", n, usual)
	}
}

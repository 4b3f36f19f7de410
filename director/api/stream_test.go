package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/wire"
)

const network = `apiVersion: kaas/v1
kind: Network
metadata: {name: n}
spec: {provider: p, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}
`

// whats reads messages from a stream until there are n, each as "type id what".
func whats(t *testing.T, resp *http.Response, n int) []string {
	t.Helper()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s", resp.Status)
	}
	var out []string
	var event, id string
	for lines := bufio.NewScanner(resp.Body); len(out) < n; {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %q: %v", out, lines.Err())
		}
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			what := value
			if _, rest, ok := strings.Cut(value, `"what":"`); ok {
				what, _, _ = strings.Cut(rest, `"`)
			}
			out = append(out, event+" "+id+" "+what)
		}
	}
	return out
}

func TestStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "ask")
	b.start(t)
	resp := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream")
	first := []string{"event 1 apply", "event 2 plan_started", "event 3 started", "event 4 succeeded"}
	if diff := cmp.Diff(first, whats(t, resp, 4)); diff != "" {
		t.Error(diff)
	}
	again := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream", "Last-Event-ID", "3")
	if diff := cmp.Diff(first[3:], whats(t, again, 1)); diff != "" {
		t.Error(diff)
	}
	var page wire.Stream
	b.do(t, http.MethodGet, "/events?kind=Cluster,Network&after=0", "", http.StatusOK, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "demo" || page.Items[0].By != "admin" || page.Last < 4 ||
		page.Gap != nil {
		t.Errorf("%+v", page)
	}
	b.do(t, http.MethodGet, "/events?limit=2&after=1", "", http.StatusOK, &page)
	if len(page.Items) != 2 || page.Items[0].ID != 2 || page.Last != 3 {
		t.Errorf("%+v", page)
	}
	b.do(t, http.MethodGet, "/events?tail=1&cluster=demo", "", http.StatusOK, &page)
	if len(page.Items) != 1 || page.Items[0].What != "plan_parked" {
		t.Errorf("%+v", page)
	}
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/events?kind=Nothing", ""),
	); p.Kind != string(director.KindInvalid) {
		t.Errorf("%+v", p)
	}

	// A poll waits, and what happens meanwhile is seen at once.
	go func() {
		if _, err := b.ops.ApplyIf(
			context.Background(), documents.Author{Name: "ann"}, []byte(network), "", false, documents.Condition{},
		); err != nil {
			t.Error(err)
		}
	}()
	b.do(t, http.MethodGet, fmt.Sprintf("/events?wait=50&kind=Network&after=%d", page.Last), "", http.StatusOK, &page)
	if len(page.Items) != 1 || page.Items[0].Name != "n" || page.Items[0].By != "ann" {
		t.Errorf("%+v", page)
	}
}

func TestStreamTellsOfWhatIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "ask")
	b.start(t)
	b.ops.PruneStream(3)
	resp := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream", "Last-Event-ID", "1")
	if diff := cmp.Diff([]string{`gap 3 {"after":1,"through":3}`, "event 4 succeeded"}, whats(t, resp, 2)); diff != "" {
		t.Error(diff)
	}
	var page wire.Stream
	b.do(t, http.MethodGet, "/events?after=1", "", http.StatusOK, &page)
	if diff := cmp.Diff(&wire.StreamGap{After: 1, Through: 3}, page.Gap); diff != "" || page.Items[0].ID != 4 {
		t.Error(diff, page.Items)
	}
}

// A user sees of the stream what a user may read of everything else.
func TestStreamShowsWhatTheReaderMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	b.do(t, http.MethodPost, "/apply", network, http.StatusOK, nil)
	ann, err := b.users.GetUser(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	ann.Name, ann.Role = "ann", director.RoleUser
	if err := b.users.PutUser(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	var s wire.Session
	b.do(t, http.MethodPost, "/login", `{"user":"ann","password":"`+password+`"}`, http.StatusOK, &s)
	b.token = s.Token
	var page wire.Stream
	b.do(t, http.MethodGet, "/events", "", http.StatusOK, &page)
	if len(page.Items) != 1 || page.Items[0].Kind != "Cluster" {
		t.Errorf("%+v", page)
	}
	if p := problemOf(
		t, b.send(t, http.MethodGet, "/events?kind=Network", ""),
	); p.Kind != string(director.KindForbidden) {
		t.Errorf("%+v", p)
	}
	b.token = ""
	if p := problemOf(t, b.send(t, http.MethodGet, "/events", "")); p.Kind != string(director.KindUnauthenticated) {
		t.Errorf("%+v", p)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Streams = 1 })
	b.apply(t, "ask")
	p := b.start(t)
	resp := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream")
	whats(t, resp, 1)
	for _, path := range []string{"/events", "/plans/" + p.ID + "/events"} {
		over := b.send(t, http.MethodGet, path, "", "Accept", "text/event-stream")
		if p := problemOf(
			t, over,
		); p.Kind != string(director.KindExhausted) || over.Header.Get("Retry-After") == "" || p.Hint == "" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	b.do(t, http.MethodGet, "/events", "", http.StatusOK, nil) // a poll is no stream
	_ = resp.Body.Close()
	for deadline := time.Now().Add(20 * time.Second); ; {
		again := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream")
		if again.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the place of a closed stream is not free: %s", again.Status)
		}
	}
}

func TestTheStreamEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "")
	resp := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream")
	whats(t, resp, 1)
	b.stop()
	if lines := bufio.NewScanner(resp.Body); lines.Scan() && lines.Text() != "" {
		t.Errorf("got %q", lines.Text())
	}
	if strings.Contains(b.log.String(), "broke off") {
		t.Errorf("a stop is no failure: %s", b.log)
	}
}

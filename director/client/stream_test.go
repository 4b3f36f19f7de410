package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

var errEnough = errors.New("enough")

// TestWatchTakesUpBrokenStreams cuts the director's stream after every second event, and wants each event once and in
// order, and that every connection begins where the one before ended.
func TestWatchTakesUpBrokenStreams(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				mu.Lock()
				asked = append(asked, r.Header.Get("Last-Event-ID"))
				mu.Unlock()
				w = &cutter{ResponseWriter: w, left: 2}
			}
			next.ServeHTTP(w, r)
		})
	})
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	client.SetBackoff(b.api, time.Millisecond)
	b.begin(t, "ask")
	var ids []int64
	err := b.api.Watch(t.Context(), client.StreamFilter{Cluster: "demo"}, func(e wire.StreamEvent) error {
		if ids = append(ids, e.ID); e.What == "plan_parked" {
			return errEnough
		}
		return nil
	}, func(g wire.StreamGap) { t.Errorf("nothing is gone: %+v", g) }, nil)
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for i, id := range ids {
		if id != int64(i+1) {
			t.Fatalf("events %v", ids)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, last := range asked {
		want := ""
		if i > 0 {
			want = fmt.Sprint(2 * i)
		}
		if last != want {
			t.Errorf("connections began at %q", asked)
			break
		}
	}
	if len(asked) < 3 {
		t.Errorf("only %d streams were opened", len(asked))
	}
}

func TestWatchIsToldOfAGap(t *testing.T) {
	t.Parallel()
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), nil)
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	b.begin(t, "ask")
	ops.PruneStream(4)
	var gaps []wire.StreamGap
	first := int64(0)
	err := b.api.Watch(t.Context(), client.StreamFilter{After: 2}, func(e wire.StreamEvent) error {
		first = e.ID
		return errEnough
	}, func(g wire.StreamGap) { gaps = append(gaps, g) }, nil)
	if diff := cmp.Diff(
		[]wire.StreamGap{{After: 2, Through: 4}}, gaps,
	); diff != "" || first != 5 || !errors.Is(err, errEnough) {
		t.Errorf("from %d, %v %s", first, err, diff)
	}
	page, err := b.api.Stream(t.Context(), client.StreamFilter{Tail: 2, Kinds: []string{"Plan"}})
	if err != nil || len(page.Items) != 2 || page.Items[1].What != "plan_parked" || page.Items[1].ID != page.Last {
		t.Errorf("%+v, %v", page, err)
	}
}

// Whoever asks for one stream too many is told at once; whoever had one waits until there is a place again.
func TestWatchOfACrowdedDirector(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	n, full := 0, true
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				mu.Lock()
				n++
				refuse := full || n == 3
				mu.Unlock()
				if refuse {
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusTooManyRequests)
					_, _ = w.Write([]byte(`{"kind":"exhausted","detail":"all streams are open"}`))
					return
				}
				w = &cutter{ResponseWriter: w, left: 1}
			}
			next.ServeHTTP(w, r)
		})
	})
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	client.SetBackoff(b.api, time.Millisecond)
	b.begin(t, "ask")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := 0
	watch := func() error {
		return b.api.Watch(ctx, client.StreamFilter{}, func(wire.StreamEvent) error {
			if seen++; seen == 3 {
				return errEnough
			}
			return nil
		}, nil, nil)
	}
	if err := watch(); director.KindOf(err) != director.KindExhausted {
		t.Errorf("%v", err)
	}
	mu.Lock()
	full = false
	mu.Unlock()
	if err := watch(); !errors.Is(err, errEnough) || n < 5 {
		t.Errorf("%v after %d requests", err, n)
	}
}

package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// withKeys gives the API a real database for its keys.
func withKeys(t *testing.T) (*store.Store, func(*api.Config)) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, func(c *api.Config) { c.Keys = db }
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKeysMakeThingsHappenOnce(t *testing.T) {
	t.Parallel()
	_, keys := withKeys(t)
	b := setup(t, keys)
	b.apply(t, "hold")
	first := b.send(t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k1")
	second := b.send(t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k1")
	if a, z := read(t, first),
		read(t, second); a != z || first.StatusCode != http.StatusCreated || second.StatusCode != http.StatusCreated {
		t.Errorf("%d %s\n%d %s", first.StatusCode, a, second.StatusCode, z)
	}
	if loc := second.Header.Get(
		"Location",
	); loc == "" || loc != first.Header.Get("Location") || second.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the second answer's header is %v", second.Header)
	}
	var l wire.Plans
	b.do(t, http.MethodGet, "/plans", "", http.StatusOK, &l)
	if len(l.Items) != 1 {
		t.Fatalf("%d plans were made", len(l.Items))
	}
	p := l.Items[0]
	for range 2 { // a second start without the key would be a conflict
		resp := b.send(t, http.MethodPost, "/plans/"+p.ID+"/start", `{"hash":"`+p.Hash+`"}`, api.KeyHeader, "k2")
		if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") != wire.Prefix+"/plans/"+p.ID {
			t.Errorf("start: %s %s", resp.Status, read(t, resp))
		}
	}
	other := problemOf(t, b.send(t, http.MethodPost, "/plans/"+p.ID+"/cancel", "", api.KeyHeader, "k2"))
	if other.Status != http.StatusUnprocessableEntity || other.Errors[0].Field != "header."+api.KeyHeader {
		t.Errorf("the key for something else: %+v", other)
	}
}

func TestProblemsAreNotKept(t *testing.T) {
	t.Parallel()
	_, keys := withKeys(t)
	b := setup(t, keys)
	if p := problemOf(
		t, b.send(t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k"),
	); p.Status != http.StatusNotFound {
		t.Errorf("%+v", p)
	}
	b.apply(t, "")
	if resp := b.send(
		t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k",
	); resp.StatusCode != http.StatusCreated {
		t.Errorf("after what was missing is there: %s", resp.Status)
	}
}

// slowPlans answers when it is told to.
type slowPlans struct {
	api.Planning
	began, goOn chan struct{}
}

func (s slowPlans) MovePlan(ctx context.Context, actor, id string, m planning.Move) (plan.View, error) {
	close(s.began)
	<-s.goOn
	return s.Planning.MovePlan(ctx, actor, id, m)
}

func TestASecondTryWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	_, keys := withKeys(t)
	slow := slowPlans{began: make(chan struct{}), goOn: make(chan struct{})}
	b := setup(t, keys, func(c *api.Config) { slow.Planning = c.Planning; c.Planning = slow })
	b.apply(t, "hold")
	p := b.start(t)
	done := make(chan int)
	go func() {
		resp := b.send(t, http.MethodPost, "/plans/"+p.ID+"/cancel", "", api.KeyHeader, "k")
		done <- resp.StatusCode
	}()
	<-slow.began
	resp := b.send(t, http.MethodPost, "/plans/"+p.ID+"/cancel", "", api.KeyHeader, "k")
	if q := problemOf(t, resp); q.Status != http.StatusConflict || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", q)
	}
	close(slow.goOn)
	if status := <-done; status != http.StatusAccepted {
		t.Errorf("the first: %d", status)
	}
}

// A try that died after its work is answered from what it left behind.
func TestAnAnswerThatWasNeverSent(t *testing.T) {
	t.Parallel()
	db, keys := withKeys(t)
	at := time.Now()
	dying := dies{db: db, at: at}
	b := setup(t, keys, func(c *api.Config) {
		dying.Planning = c.Planning
		c.Planning = &dying
		c.Now = func() time.Time { return dying.at }
	})
	b.apply(t, "")
	resp := b.send(t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k")
	_ = read(t, resp)
	if resp.StatusCode != http.StatusInternalServerError {
		t.Fatalf("%s", resp.Status)
	}
	dying.at = at.Add(time.Minute) // the claim has run out
	resp = b.send(t, http.MethodPost, "/clusters/demo/plans", "", api.KeyHeader, "k")
	if text := read(
		t, resp,
	); resp.StatusCode != http.StatusCreated || resp.Header.Get("Location") != wire.Prefix+"/plans/p0001" {
		t.Errorf("%s %s", resp.Status, text)
	}
	var l wire.Plans
	b.do(t, http.MethodGet, "/plans", "", http.StatusOK, &l)
	if len(l.Items) != 1 {
		t.Errorf("%d plans", len(l.Items))
	}
}

// dies makes the plan, notes it, and panics before it answers. The claim stays, as it does after a crash.
type dies struct {
	api.Planning
	db *store.Store
	at time.Time
}

// MakePlan does the work and dies, the first time.
func (d *dies) MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	v, err := d.Planning.MakePlan(ctx, actor, cluster, r)
	o, ok := director.OnceOf(ctx)
	if err == nil && ok {
		err = d.db.Update(ctx, func(tx *store.Tx) error { return tx.Witness(o, v.Plan.ID) })
	}
	if err != nil {
		return v, err
	}
	panic("the process ends here")
}

func TestConditions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	apply := func(header ...string) *http.Response { return b.send(t, http.MethodPost, "/apply", cluster, header...) }
	if resp := apply(
		"If-Match", "*",
	); problemOf(t, resp).Kind != string(director.KindStale) || resp.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("If-Match of nothing: %s", resp.Status)
	}
	if resp := apply("If-None-Match", "*"); resp.StatusCode != http.StatusOK {
		t.Errorf("a first document: %s", resp.Status)
	}
	if p := problemOf(t, apply("If-None-Match", "*")); p.Status != http.StatusPreconditionFailed || p.Hint == "" {
		t.Errorf("it exists: %+v", p)
	}
	get := func(tag string) *http.Response {
		return b.send(t, http.MethodGet, "/documents/Cluster/demo", "", "If-None-Match", tag)
	}
	tag := get("").Header.Get("ETag")
	if resp := get(
		tag,
	); tag == "" || resp.StatusCode != http.StatusNotModified || read(t, resp) != "" || resp.Header.Get("ETag") != tag {
		t.Errorf("unchanged, with the tag %s: %s", tag, resp.Status)
	}
	var d wire.Document
	b.do(t, http.MethodGet, "/documents/Cluster/demo", "", http.StatusOK, &d)
	if diff := cmp.Diff(tag, d.ETag); diff != "" {
		t.Error(diff)
	}
	b.apply(t, "hold") // somebody else changes it
	if resp := get(tag); resp.StatusCode != http.StatusOK {
		t.Errorf("changed: %s", resp.Status)
	}
	if p := problemOf(t, apply("If-Match", tag)); p.Status != http.StatusPreconditionFailed {
		t.Errorf("moved: %+v", p)
	}
	if p := problemOf(
		t, b.send(t, http.MethodDelete, "/documents/Cluster/demo", "", "If-Match", tag),
	); p.Status != http.StatusPreconditionFailed {
		t.Errorf("deleted what was never read: %+v", p)
	}
	if resp := apply("If-Match", get("").Header.Get("ETag")); resp.StatusCode != http.StatusOK {
		t.Errorf("with the right tag: %s", resp.Status)
	}
	if p := problemOf(t, apply("If-None-Match", `"x"`)); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a condition that makes no sense: %+v", p)
	}
}

func TestConflictsNameTheHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(t, "hold")
	p := b.start(t)
	q := problemOf(t, b.send(t, http.MethodPost, "/clusters/demo/plans", ""))
	if q.Status != http.StatusConflict || q.Holder == nil || q.Holder.Plan != p.ID || q.Holder.By != "admin" ||
		q.Holder.Since.IsZero() {
		t.Errorf("%+v, holder %+v", q, q.Holder)
	}
}

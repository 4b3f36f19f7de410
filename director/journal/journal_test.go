package journal

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

const play = "ansible.play/verify"

// quiet is an engine in which nothing happens until changed is closed.
type quiet struct{ changed chan struct{} }

func (q quiet) Changed() <-chan struct{} { return q.changed }

// open returns the journal of a director with a plan of one play, which another director has run twice.
func open(t *testing.T) (*Service, quiet) {
	t.Helper()
	l := servicetest.Open(t, 0, 0)
	made := time.Now().Add(-time.Hour)
	p := plan.Plan{ID: "p1", CreatedAt: made, Content: plan.Content{
		Operation: plan.ClusterCreate, Cluster: "demo", Steps: []plan.Step{{ID: play, Kind: step.Play}},
	}}
	waits := plan.Plan{
		ID: "p2", CreatedAt: made,
		Content: plan.Content{Operation: plan.ClusterCreate, Cluster: "other"},
	}
	err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
		s := plan.NewState(&p)
		err := errors.Join(tx.AddPlan(p), tx.AddPlan(waits))
		for _, e := range []plan.Event{
			{Kind: plan.PlanStarted, By: "ann"},
			{Kind: plan.Started, Step: play, Attempt: 1, By: "here"},
			{Kind: plan.Interrupted, Step: play, Attempt: 1, By: "here"},
			{Kind: plan.Started, Step: play, Attempt: 2, By: "there"},
		} {
			e.Plan, e.At = "p1", time.Now()
			err = errors.Join(err, tx.Append(&s, e))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	q := quiet{make(chan struct{})}
	return New(Config{
		Store: l.Store, Engine: q, PlanLife: 24 * time.Hour, Now: time.Now,
		LogPath: func(_, _ string, attempt int) string {
			return filepath.Join(l.Dir, map[int]string{1: "first", 2: "second"}[attempt]+".jsonl")
		},
		LogsOf: func(instance string) bool { return instance == "here" },
	}), q
}

// A log is read from where it is asked for. One that nothing was written to is empty; one that is with another director
// is an error that says with which.
func TestStepLog(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	if err := os.WriteFile(s.LogPath("p1", play, 1), []byte("first\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(attempt int, offset int64) (string, error) {
		r, err := s.StepLog(ctx, "p1", play, attempt, offset)
		if err != nil {
			return "", err
		}
		defer r.Close()
		text, err := io.ReadAll(r)
		return string(text), err
	}
	if text, err := read(1, 6); text != "second\n" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	for _, attempt := range []int{0, 2} { // the latest
		_, err := read(attempt, 0)
		servicetest.WantKind(t, err, director.KindNotFound, "attempt 2", "there", "ask that director")
	}
	if err := os.Remove(s.LogPath("p1", play, 1)); err != nil {
		t.Fatal(err)
	}
	if text, err := read(1, 0); text != "" || err != nil {
		t.Errorf("a log that was never written: %q, %v", text, err)
	}
	_, err := s.StepLog(ctx, "p1", "nothing", 0, 0)
	servicetest.WantKind(t, err, director.KindNotFound, `no step "nothing"`)
	_, err = s.StepLog(ctx, "p9", play, 0, 0)
	servicetest.WantKind(t, err, director.KindNotFound)
}

// Events are waited for until there is one, or the time is over.
func TestEventsAreWaitedFor(t *testing.T) {
	t.Parallel()
	s, q := open(t)
	ctx := t.Context()
	events, err := s.Events(ctx, "p1", 1, time.Hour)
	if err != nil || len(events) != 3 {
		t.Fatalf("%v, %v", events, err)
	}
	last := events[2].Seq
	if events, err = s.Events(ctx, "p1", last, 0); err != nil || len(events) != 0 {
		t.Errorf("%v, %v", events, err)
	}
	got := make(chan []plan.Event)
	go func() {
		events, _ := s.Events(ctx, "p1", last, time.Hour)
		got <- events
	}()
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		_, state, err := tx.Plan("p1")
		return errors.Join(err, tx.Append(&state, plan.Event{
			Plan: "p1", Kind: plan.Succeeded, Step: play, Attempt: 2, At: time.Now(),
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
	close(q.changed)
	if events = <-got; len(events) != 1 || events[0].Kind != plan.Succeeded {
		t.Errorf("%v", events)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Events(ended, "p1", 0, time.Hour); err == nil {
		t.Error("a caller who has gone got events")
	}
}

// A plan that has not started says until when it can be.
func TestUntilWhenAPlanCanBeStarted(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for id, expires := range map[string]bool{"p1": false, "p2": true} {
		v, err := s.Plan(t.Context(), id)
		if err != nil || v.Expires.IsZero() == expires {
			t.Errorf("%s expires %s, %v", id, v.Expires, err)
		}
		if expires && !v.Expires.Equal(v.Plan.CreatedAt.Add(24*time.Hour)) {
			t.Errorf("%s expires %s", id, v.Expires)
		}
	}
}

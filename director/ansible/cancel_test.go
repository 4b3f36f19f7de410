package ansible_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/ansible"
)

// A cancelled run takes its whole process group with it, and what left the group.
func TestCancelEndsEverything(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		grace  time.Duration
	}{
		"polite": {`sleep 1000 & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait`, time.Minute},
		"stubborn": {
			`trap '' TERM; sleep 1000 & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait; wait`,
			50 * time.Millisecond,
		},
		"escaped from the group": {
			`setsid sleep 1000 >/dev/null 2>&1 </dev/null & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait`,
			time.Minute,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *ansible.Config) { c.Grace = tt.grace })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := b.play(t, start+tt.script)
			p.Limit = []string{"h1", "h2", "group*"}
			done := b.begin(ctx, p)
			pid := pidOf(t, b.await(t, said("pid")))
			cancel()
			err := (<-done).err
			ended(t, pid)
			e := playError(t, err)
			if e.Class != ansible.ClassCancelled || !errors.Is(err, context.Canceled) || ansible.Permanent(err) {
				t.Errorf("got %v", err)
			}
			if want := "the run was cancelled in task 'r : T', waiting for hosts h1, h2"; shown(err) != want {
				t.Errorf("got %q, want %q", shown(err), want)
			}
			b.clean(t)
		})
	}
}

// What a run leaves in the background ends with it, and does not keep it by holding its pipes.
func TestEndOfRunEndsWhatItLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Play(t.Context(), b.play(t, start+`
		sleep 1000 &
		emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"
		setsid sleep 1000 &
		emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"
		ok`))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ended(t, pidOf(t, b.await(t, said("pid"))))
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.play(t, start+`emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h1"}'
		emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h2"}'
		emit '{"type":"task_start","task":"U","role":"r"}'
		emit '{"type":"host","status":"ok","task":"U","role":"r","host":"h1"}'
		sleep 1000`)
	p.Timeout = 500 * time.Millisecond
	_, err := b.Play(t.Context(), p)
	e := playError(t, err)
	if e.Class != ansible.ClassTimeout || !errors.Is(err, context.DeadlineExceeded) ||
		!slices.Equal(e.Waiting, []string{"h2"}) {
		t.Errorf("got %v, waiting %v", err, e.Waiting)
	}
	if want := "the run was ended after 500ms in task 'r : U', waiting for host h2"; shown(err) != want {
		t.Errorf("got %q, want %q", shown(err), want)
	}
}

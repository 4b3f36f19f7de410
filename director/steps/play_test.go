package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/plan"
)

// Only what passes by itself is tried again; a machine that cannot be reached is not a failed one.
func TestPlayOutcome(t *testing.T) {
	t.Parallel()
	known := func(r ansible.Remedy) []ansible.Group {
		return []ansible.Group{
			{Hosts: []string{"h1"}, Cause: &ansible.Cause{ID: "x", Class: r, Explain: "it is so", Hint: "mend it"}},
		}
	}
	for name, tt := range map[string]struct {
		err  ansible.PlayError
		kind director.Kind
		want plan.EventKind
		ask  string
	}{
		"unreachable": {
			ansible.PlayError{Class: ansible.ClassUnreachable},
			director.KindUnavailable, plan.Retry,
			"bring the machine back, or see why the director does not reach it, and retry the step",
		},
		"unreachable for a person": {
			ansible.PlayError{Class: ansible.ClassUnreachable, Groups: known(ansible.Person)},
			director.KindUnavailable,
			plan.NeedsHuman, "On host h1: it is so. Then: mend it.",
		},
		"timeout": {
			ansible.PlayError{Class: ansible.ClassTimeout}, director.KindUnavailable, plan.Retry, "",
		},
		"cancelled": {
			ansible.PlayError{Class: ansible.ClassCancelled}, director.KindUnavailable, plan.Retry, "",
		},
		"interrupted": {
			ansible.PlayError{Class: ansible.ClassInterrupted}, director.KindUnavailable, plan.Interrupted, "",
		},
		"failed, cause unknown": {
			ansible.PlayError{Class: ansible.ClassFailed}, director.KindInternal, plan.Aborted, "",
		},
		"failed, passes by itself": {
			ansible.PlayError{Class: ansible.ClassFailed, Groups: known(ansible.Transient)},
			director.KindInternal,
			plan.Retry, "",
		},
		"failed for good": {
			ansible.PlayError{Class: ansible.ClassFailed, Groups: known(ansible.NotByTrying)},
			director.KindInternal,
			plan.Aborted, "",
		},
		"failed for a person": {
			ansible.PlayError{Class: ansible.ClassFailed, Groups: known(ansible.Person)},
			director.KindInternal,
			plan.NeedsHuman, "On host h1: it is so. Then: mend it.",
		},
		"for good outweighs the person": {
			ansible.PlayError{
				Class: ansible.ClassFailed, Groups: append(known(ansible.Person), known(ansible.NotByTrying)...),
			},
			director.KindInternal, plan.Aborted, "",
		},
		"broken": {
			ansible.PlayError{Class: ansible.ClassBroken}, director.KindInternal, plan.Aborted, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cause := tt.err
			err := classify(
				playOutcome(&director.Error{Kind: tt.kind, Op: "ansible.play", Msg: "m", Hint: "h", Err: &cause}),
			)
			o := plan.OutcomeOf(err)
			if o.Kind != tt.want || o.Text != tt.ask {
				t.Errorf("got %s %q, want %s %q", o.Kind, o.Text, tt.want, tt.ask)
			}
			if director.HintOf(err) != "" && director.HintOf(err) != "h" {
				t.Errorf("hint %q", director.HintOf(err))
			}
			if _, ok := errors.AsType[*ansible.PlayError](err); !ok {
				t.Error("the cause is lost")
			}
		})
	}
	// A former attempt that has not ended yet costs nothing.
	running := classify(
		playOutcome(director.Errorf(director.KindConflict, "ansible.play", "it runs: %w", ansible.ErrRunning)),
	)
	if o := plan.OutcomeOf(running); o.Kind != plan.NotReady || o.Most != stillRunning {
		t.Errorf("of a play that is running already: %+v", o)
	}
	if err := playOutcome(nil); err != nil {
		t.Error(err)
	}
	if err := playOutcome(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A failing host is a note at once; a thousand that fail alike are few notes.
func TestPlayWatch(t *testing.T) {
	t.Parallel()
	var notes []string
	w := &playWatch{note: func(text string) { notes = append(notes, text) }}
	w.event(ansible.Event{Type: ansible.TaskStart, Task: "Join"})
	f := ansible.Failure{Role: "worker", Task: "Join", Msg: "no"}
	w.failure(ansible.Group{
		Hosts: []string{"n1"}, Failure: f, Cause: &ansible.Cause{Explain: "because", Hint: "mend it"},
	})
	w.event(ansible.Event{Type: ansible.TaskStart, Task: "Gate"})
	want := []string{
		"task: Join", "host n1: task 'worker : Join' failed: no (because); next: mend it",
		"task: Gate (1 host has failed)",
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Error(diff)
	}
	notes = nil
	var hosts []string
	for i := range 1000 {
		hosts = append(hosts, fmt.Sprintf("n%d", i+1))
		w.failure(ansible.Group{Hosts: hosts, Failure: f})
	}
	if len(notes) != 10 || notes[9] != "hosts n1..n512: task 'worker : Join' failed: no" {
		t.Errorf("%d notes, the last %q", len(notes), notes[len(notes)-1])
	}
	w.event(ansible.Event{Type: ansible.Waiting})
	w.event(ansible.Event{Type: ansible.TaskStart, Task: "End"})
	if got := notes[len(notes)-1]; got != "task: End (1000 hosts have failed)" {
		t.Errorf("got %q", got)
	}
}

// A play that the director's full disk broke waits for space, and costs no attempt.
func TestPlaysWaitForSpace(t *testing.T) {
	t.Parallel()
	for _, class := range []ansible.Class{ansible.ClassBroken, ansible.ClassInterrupted} {
		full := &ansible.PlayError{Class: class, Err: syscall.ENOSPC}
		err := &director.Error{Kind: director.KindInternal, Op: "ansible.play", Msg: "m", Err: full}
		o := plan.OutcomeOf(classify(playOutcome(err)))
		if o.Kind != plan.NotReady || !strings.Contains(o.Text, "waits for space on the director's disk") {
			t.Errorf("%s: got %s %q, want a wait for space", class, o.Kind, o.Text)
		}
	}
}

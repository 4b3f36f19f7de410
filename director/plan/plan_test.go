package plan

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite golden files and generated docs")

// The whole product of statuses and events against a golden grid: a changed edge shows up as a changed line.
func TestLifeCycleGrid(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, s := range StepStatuses() {
		for _, e := range StepEvents() {
			if to, err := s.Next(e); err == nil {
				fmt.Fprintf(&b, "step %s --%s--> %s\n", s, e, to)
			}
		}
	}
	for _, p := range Statuses() {
		for _, e := range PlanEvents() {
			if to, err := p.Next(e); err == nil {
				fmt.Fprintf(&b, "plan %s --%s--> %s\n", p, e, to)
			}
		}
	}
	golden(t, "testdata/life-cycle.golden", b.String())
}

// docs/reference/state-machine.md is written from the same table that the engine runs on.
func TestStateMachinePage(t *testing.T) {
	t.Parallel()
	golden(t, "../../docs/reference/state-machine.md", Page())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is stale; run: make generate\n%s", path, got)
	}
}

func TestIllegalEventsChangeNothing(t *testing.T) {
	t.Parallel()
	p := &Plan{Content: Content{Steps: []Step{{ID: "a"}}}}
	s := NewState(p)
	if err := s.Apply(Event{Step: "a", Kind: Succeeded, Seq: 1}); err == nil {
		t.Error("a pending step succeeded")
	}
	if err := s.Apply(Event{Step: "b", Kind: Started, Seq: 1}); err == nil {
		t.Error("an unknown step started")
	}
	if s.Seq != 0 || s.Steps[0].Status != Pending {
		t.Errorf("state moved to %+v", s)
	}
}

func TestStaleOutcomeIsFenced(t *testing.T) {
	t.Parallel()
	p := &Plan{Content: Content{Steps: []Step{{ID: "a"}}}}
	s := NewState(p)
	for i, e := range []Event{
		{Step: "a", Kind: Started, Attempt: 1},
		{Step: "a", Kind: Interrupted, Attempt: 1},
		{Step: "a", Kind: Started, Attempt: 2},
	} {
		e.Seq = int64(i + 1)
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	err := s.Apply(Event{Step: "a", Kind: Succeeded, Attempt: 1, Seq: 4})
	if _, ok := errors.AsType[*FencedError](err); !ok {
		t.Errorf("err = %v, want FencedError", err)
	}
}

func TestReadyWaitsForNeedsAndTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	p := &Plan{Content: Content{Steps: []Step{{ID: "a"}, {ID: "b", Needs: []string{"a"}}, {ID: "c"}}}}
	s := NewState(p)
	s.Status = StatusRunning
	s.Steps[2].Status, s.Steps[2].NotBefore = Waiting, now.Add(time.Second)
	if got := strings.Join(Ready(p, &s, now), ","); got != "a" {
		t.Errorf("ready = %s, want a", got)
	}
	s.Steps[0].Status = Done
	if got := strings.Join(Ready(p, &s, now.Add(time.Second)), ","); got != "b,c" {
		t.Errorf("ready = %s, want b,c", got)
	}
	s.Steps[2].Status = Failed
	if got := Ready(p, &s, now); got != nil {
		t.Errorf("after a failure %v may start, want none", got)
	}
}

func TestCheckRefusesCycles(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]Step{
		"twice":    {{ID: "a"}, {ID: "a"}},
		"unknown":  {{ID: "a", Needs: []string{"z"}}},
		"backward": {{ID: "a", Needs: []string{"b"}}, {ID: "b"}},
		"itself":   {{ID: "a", Needs: []string{"a"}}},
	} {
		if err := (Content{Steps: steps}).Check(); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

func TestHashIsStableOverStorage(t *testing.T) {
	t.Parallel()
	c := Content{Cluster: "demo", Steps: []Step{{ID: "a", Params: json.RawMessage(`{"x":1}`), Timeout: time.Minute}}}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Content
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if HashOf(c) != HashOf(back) {
		t.Error("the hash changes when a plan is stored and read")
	}
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		err  error
		want EventKind
	}{
		{nil, Succeeded},
		{boom, Retry},
		{Abort(boom), Aborted},
		{Park(boom, "?"), NeedsHuman},
		{After(time.Second, "wait"), NotReady},
		{fmt.Errorf("wrapped: %w", Abort(boom)), Aborted},
	} {
		if got := OutcomeOf(tt.err).Kind; got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
	if !errors.Is(Abort(boom), boom) {
		t.Error("Abort hides its cause")
	}
}

func TestCriticalPath(t *testing.T) {
	t.Parallel()
	steps := []Step{
		{ID: "a", Estimate: 1},
		{ID: "b", Estimate: 5},
		{ID: "c", Needs: []string{"a", "b"}, Estimate: 2},
		{ID: "d", Needs: []string{"a"}, Estimate: 3},
	}
	if got := CriticalPath(steps); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}

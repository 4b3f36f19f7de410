package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// moved returns the state in which the steps have the statuses.
func moved(p *Plan, status Status, statuses map[string]StepStatus) State {
	s := NewState(p)
	s.Status = status
	for i := range s.Steps {
		if st, ok := statuses[s.Steps[i].ID]; ok {
			s.Steps[i].Status = st
		}
	}
	return s
}

// rolling is a plan that works on nodes in a window: drain, then upgrade, each.
func rolling(nodes int, w Window, hosts ...string) *Plan {
	p := &Plan{Content: Content{Windows: []Window{w}}}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		m := Machine{Name: name}
		if len(hosts) > 0 {
			m.Host = hosts[i%len(hosts)]
		}
		p.Machines = append(p.Machines, m)
		p.Steps = append(p.Steps,
			Step{ID: "drain/" + name, Node: name, Window: w.ID},
			Step{ID: "upgrade/" + name, Node: name, Window: w.ID, Needs: []string{"drain/" + name}})
	}
	return p
}

func TestWindow(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		plan *Plan
		have map[string]StepStatus
		want []string
	}{
		"as many groups open as the window is large": {
			rolling(4, Window{ID: "w", Size: 2}), nil, []string{"drain/n0", "drain/n1"},
		},
		"an open group continues, and takes its place": {
			rolling(4, Window{ID: "w", Size: 2}),
			map[string]StepStatus{"drain/n0": Done, "drain/n1": Running},
			[]string{"upgrade/n0"},
		},
		"an ended group makes room": {
			rolling(4, Window{ID: "w", Size: 2}),
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Done, "drain/n1": Running},
			[]string{"drain/n2"},
		},
		"steps that were skipped before their turn open no group": {
			rolling(4, Window{ID: "w", Size: 1}),
			map[string]StepStatus{"upgrade/n0": Skipped, "upgrade/n1": Skipped, "upgrade/n2": Skipped},
			[]string{"drain/n0"},
		},
		"a skipped step ends its group": {
			rolling(3, Window{ID: "w", Size: 1}),
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Skipped},
			[]string{"drain/n1"},
		},
		"a failure opens no group and brings the open ones to their end": {
			rolling(4, Window{ID: "w", Size: 3}),
			map[string]StepStatus{"drain/n0": Failed, "drain/n1": Done},
			[]string{"upgrade/n1"},
		},
		"nothing more in the group that failed": {
			rolling(4, Window{ID: "w", Size: 3}), map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed}, nil,
		},
		"one at a time per host": {
			rolling(4, Window{ID: "w", Size: 4, PerHost: 1}, "h1", "h1", "h2"), nil, []string{"drain/n0", "drain/n2"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := moved(tt.plan, StatusRunning, tt.have)
			if diff := cmp.Diff(tt.want, Ready(tt.plan, &s, time.Now())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However a run goes, no more groups are open than the window allows.
func TestWindowIsNeverExceeded(t *testing.T) {
	t.Parallel()
	p := rolling(30, Window{ID: "w", Size: 4, PerHost: 2}, "h1", "h2", "h3")
	s := moved(p, StatusRunning, nil)
	running := []string{}
	for range 10_000 {
		ready := Ready(p, &s, time.Now())
		if len(ready) == 0 && len(running) == 0 {
			break
		}
		for _, id := range ready {
			s.Step(id).Status = Running
			running = append(running, id)
		}
		v := survey(p, &s)
		if v.open["w"] > 4 {
			t.Fatalf("%d groups are open", v.open["w"])
		}
		for at, n := range v.onHost {
			if n > 2 {
				t.Fatalf("%d groups are open on host %s", n, at.of)
			}
		}
		s.Step(running[0]).Status, running = Done, running[1:]
	}
	if ev, due := Settle(p, &s); !due || ev.Kind != PlanDone {
		t.Errorf("the plan does not end: %+v", s)
	}
}

func TestUndoTakesTheLastFirst(t *testing.T) {
	t.Parallel()
	p := &Plan{Content: Content{Steps: []Step{
		{ID: "net"},
		{ID: "vm", Needs: []string{"net"}},
		{ID: "boot", Needs: []string{"vm"}},
		{ID: "join", Needs: []string{"boot"}},
	}}}
	s := moved(p, StatusUndoing, map[string]StepStatus{"net": UndoDue, "vm": UndoDue, "boot": Done, "join": UndoDue})
	var order []string
	for {
		ready := Ready(p, &s, time.Now())
		if len(ready) == 0 {
			break
		}
		order = append(order, strings.Join(ready, "+"))
		for _, id := range ready {
			s.Step(id).Status = Undone
		}
	}
	if diff := cmp.Diff([]string{"join", "vm", "net"}, order); diff != "" {
		t.Error(diff)
	}
	if ev, due := Settle(p, &s); !due || ev.Kind != PlanUndone {
		t.Errorf("got %+v, %t", ev, due)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	p := &Plan{Content: Content{Steps: []Step{{ID: "a"}, {ID: "b"}, {ID: "c", Needs: []string{"a", "b"}}}}}
	tests := map[string]struct {
		status Status
		have   map[string]StepStatus
		want   EventKind
	}{
		"runs":                {StatusRunning, map[string]StepStatus{"a": Running}, ""},
		"something may start": {StatusRunning, nil, ""},
		"done and skipped": {
			StatusRunning, map[string]StepStatus{"a": Done, "b": Skipped, "c": Done}, PlanDone,
		},
		"failed, the rest waits for it": {
			StatusRunning,
			map[string]StepStatus{"a": Failed, "b": Done},
			PlanFailed,
		},
		"failed beside what could start": {StatusRunning, map[string]StepStatus{"a": Failed}, PlanFailed},
		"taken back by itself": {
			StatusRunning,
			map[string]StepStatus{"a": Undone, "b": Done},
			PlanFailed,
		},
		"still to be undone": {StatusRunning, map[string]StepStatus{"a": UndoDue, "b": Done}, ""},
		"parked, the rest waits for it": {
			StatusRunning,
			map[string]StepStatus{"a": Parked, "b": Done},
			PlanParked,
		},
		"parked beside what could start": {StatusRunning, map[string]StepStatus{"a": Parked}, ""},
		"paused stays paused":            {StatusPaused, map[string]StepStatus{"a": Done}, ""},
		"paused and failed":              {StatusPaused, map[string]StepStatus{"a": Failed}, PlanFailed},
		"paused and done": {
			StatusPaused,
			map[string]StepStatus{"a": Done, "b": Done, "c": Done},
			PlanDone,
		},
		"cancelling while something runs": {StatusCancelling, map[string]StepStatus{"a": Running}, ""},
		"cancelled":                       {StatusCancelling, map[string]StepStatus{"a": Done}, PlanCancelled},
		"taking back failed": {
			StatusUndoing,
			map[string]StepStatus{"a": Stuck, "b": Undone},
			PlanFailed,
		},
		"taking back continues beside stuck": {StatusUndoing, map[string]StepStatus{"a": Stuck, "b": Undoing}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := moved(p, tt.status, tt.have)
			ev, due := Settle(p, &s)
			if due != (tt.want != "") || (due && ev.Kind != tt.want) {
				t.Errorf("got %q, %t, want %q", ev.Kind, due, tt.want)
			}
		})
	}
}

func TestWaitsSayWhy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := rolling(3, Window{ID: "w", Size: 1})
	p.Steps = append(p.Steps, Step{
		ID: "clone", Title: "Clone",
	}, Step{ID: "ask"}, Step{ID: "after", Needs: []string{"ask"}})
	s := moved(p, StatusRunning, map[string]StepStatus{"drain/n0": Running, "ask": Parked})
	s.Step("drain/n0").Since, s.Step("ask").Message = now, "is the rack powered?"
	p.Steps[0].Timeout = time.Minute
	got := Waits(p, &s, Outside{
		Now: now, Holders: map[string]string{"drain/n0": "d1"},
		Lines: map[string]Line{"clone": {"clones/lab", now, []string{"p7"}}},
	})
	want := []Wait{
		{Step: "drain/n0", Reason: "it runs: ", Owner: "d1", Since: now, Deadline: now.Add(time.Minute)},
		{
			Step: "drain/n1", Reason: "it waits until fewer nodes of window w are worked on (1 at once)",
			Owner: "the director",
		},
		{
			Step: "drain/n2", Reason: "it waits until fewer nodes of window w are worked on (1 at once)",
			Owner: "the director",
		},
		{Step: "clone", Reason: "it waits for its turn: clones/lab is used up", Owner: "plan p7", Since: now},
		{Step: "ask", Reason: "is the rack powered?", Owner: "a person"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEstimatesAreNotHashed(t *testing.T) {
	t.Parallel()
	c := Content{Steps: []Step{{ID: "a", Estimate: time.Second}}, Estimate: time.Second}
	d := Content{Steps: []Step{{ID: "a", Estimate: time.Minute}}, Estimate: time.Minute}
	if HashOf(c) != HashOf(d) || c.Steps[0].Estimate != time.Second {
		t.Error("an estimate changed the hash, or hashing changed an estimate")
	}
	d.Steps[0].Params = json.RawMessage(`{"x":1}`)
	if HashOf(c) == HashOf(d) {
		t.Error("parameters are not hashed")
	}
}

// A plan that works on many nodes is asked for what is ready after every event.
func BenchmarkReady(b *testing.B) {
	p := rolling(1000, Window{ID: "w", Size: 50})
	s := moved(p, StatusRunning, nil)
	b.ResetTimer()
	for b.Loop() {
		if len(Ready(p, &s, time.Now())) != 50 {
			b.Fatal("not 50")
		}
	}
}

// A step that was skipped before its turn takes no order away: what is behind it waits for what is before it.
func TestASkippedStepKeepsTheOrder(t *testing.T) {
	t.Parallel()
	p := &Plan{Content: Content{Steps: []Step{
		{ID: "play"},
		{ID: "ready", Needs: []string{"play"}},
		{ID: "gate", Needs: []string{"ready"}},
		{ID: "record", Needs: []string{"gate"}},
	}}}
	for _, tt := range []struct {
		play StepStatus
		want []string
	}{
		{Pending, []string{"play"}},
		{Running, nil},
		{Failed, nil},
		{Done, []string{"record"}},
		{Skipped, []string{"record"}},
	} {
		s := moved(p, StatusRunning, map[string]StepStatus{"play": tt.play, "ready": Skipped, "gate": Skipped})
		if diff := cmp.Diff(tt.want, Ready(p, &s, time.Time{})); diff != "" {
			t.Errorf("play is %s (-want +got):\n%s", tt.play, diff)
		}
	}
}

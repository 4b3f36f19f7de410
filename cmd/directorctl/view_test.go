package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// golden compares text with a file of testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func samplePlan(workers int) wire.Plan {
	p := plan.Plan{ID: "0102-030405-aabbcc", CreatedAt: start, CreatedBy: "admin", Hash: strings.Repeat("ab", 32)}
	p.Operation, p.Cluster, p.Summary = plan.ClusterCreate, "demo", "create cluster demo"
	p.Steps = []plan.Step{{
		ID: "network.ensure/net", Title: "Make network net", Estimate: 2 * time.Second,
		Effects: []plan.Effect{
			{Verb: "create", Object: "network", Name: "net", Detail: "10.88.0.0/24"},
		},
	}}
	var all []string
	for i := range workers {
		name := "demo-worker-" + string(rune('a'+i))
		all = append(all, "vm.ensure/"+name)
		p.Steps = append(p.Steps, plan.Step{
			ID: "vm.ensure/" + name, Title: "Make VM " + name, Node: name, Needs: []string{"network.ensure/net"},
			Estimate: 40 * time.Second,
			Effects:  []plan.Effect{{Verb: "create", Object: "vm", Name: name}},
		})
	}
	p.Steps = append(p.Steps, plan.Step{
		ID: "ansible.play/install", Title: "Install Kubernetes", Needs: all, Estimate: 2 * time.Minute,
	})
	p.Estimate = plan.CriticalPath(p.Steps)
	return wire.PlanOf(p, plan.NewState(&p))
}

// story is what happens to the sample plan; the time of each event is in seconds after the start.
func story(p wire.Plan) []wire.Event {
	var events []wire.Event
	at := func(seconds int, e wire.Event) {
		e.Plan, e.Seq, e.At = p.ID, int64(len(events)+1), start.Add(time.Duration(seconds)*time.Second)
		events = append(events, e)
	}
	later := start.Add(90 * time.Second)
	at(0, wire.Event{Kind: "plan_started", By: "admin"})
	at(0, wire.Event{Kind: "started", Step: "network.ensure/net", Attempt: 1})
	at(3, wire.Event{Kind: "succeeded", Step: "network.ensure/net", Attempt: 1})
	at(3, wire.Event{Kind: "started", Step: "vm.ensure/demo-worker-a", Attempt: 1})
	at(3, wire.Event{Kind: "started", Step: "vm.ensure/demo-worker-b", Attempt: 1})
	at(5, wire.Event{
		Kind: "not_ready", Step: "vm.ensure/demo-worker-a", Attempt: 1, Message: "SSH does not answer yet",
	})
	at(7, wire.Event{Kind: "started", Step: "vm.ensure/demo-worker-a", Attempt: 2})
	at(8, wire.Event{
		Kind: "not_ready", Step: "vm.ensure/demo-worker-a", Attempt: 2, Message: "SSH does not answer yet",
	})
	at(9, wire.Event{Kind: "started", Step: "vm.ensure/demo-worker-a", Attempt: 3})
	at(40, wire.Event{Kind: "succeeded", Step: "vm.ensure/demo-worker-a", Attempt: 3})
	at(60, wire.Event{
		Kind: "retry", Step: "vm.ensure/demo-worker-b", Attempt: 1, Message: "the pool\tis locked\x1b[31m",
		NotBefore: &later,
	})
	return events
}

func TestLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &lines{out: &out, now: func() time.Time { return start.Local() }, p: samplePlan(2), waits: map[string]string{}}
	l.begin()
	for _, e := range story(l.p) {
		if err := l.event(e); err != nil {
			t.Fatal(err)
		}
	}
	l.note("the connection is lost")
	// The times are the reader's.
	text := strings.ReplaceAll(out.String(), start.Local().Format("15:"), "03:")
	golden(t, "lines.txt", text)
}

func TestScreen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workers, width, height, events int
	}{
		"screen-start.txt":  {2, 100, 24, 0},
		"screen-wide.txt":   {2, 100, 24, 99},
		"screen-narrow.txt": {2, 40, 24, 99},
		"screen-low.txt":    {20, 100, 10, 99},
	} {
		var out bytes.Buffer
		s := &screen{
			out: &out, now: func() time.Time { return start.Add(65 * time.Second) }, p: samplePlan(c.workers),
			size: func() (int, int) { return c.width, c.height },
		}
		for i, e := range story(s.p) {
			if i < c.events {
				if err := s.event(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		out.Reset()
		before := s.drawn
		s.draw()
		text := out.String()
		if before > 0 {
			_, text, _ = strings.Cut(text, "A")
		}
		text = strings.TrimPrefix(text, "\r\x1b[J")
		if strings.Contains(text, "\x1b") || strings.Contains(text, "\t") {
			t.Errorf("%s: a message reaches the terminal as it is: %q", name, text)
		}
		if n := strings.Count(text, "\n"); n > c.height-1 {
			t.Errorf("%s: %d lines on a screen of %d", name, n, c.height)
		}
		for line := range strings.Lines(text) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n >= c.width {
				t.Errorf("%s: a line of %d on a screen of %d", name, n, c.width)
			}
		}
		golden(t, name, text)
	}
}

func TestPrintPlan(t *testing.T) {
	t.Parallel()
	p := samplePlan(3)
	p.CreatedAt = p.CreatedAt.Local()
	p.Warnings = []string{"emulated hosts are slow"}
	var out bytes.Buffer
	printPlan(&out, p)
	text := strings.ReplaceAll(out.String(), start.Local().Format("2006-01-02 15:04:05"), "2030-01-02 03:04:05")
	golden(t, "plan.txt", text)
}

// What only runs after a failure is told apart from what is going to happen, until it is needed.
func TestPrintWaysBack(t *testing.T) {
	t.Parallel()
	p := plan.Plan{ID: "0102-030405-aabbcc", CreatedAt: start, CreatedBy: "admin", Hash: strings.Repeat("ab", 32)}
	p.Operation, p.Cluster, p.Windows = plan.ClusterUpgrade, "demo", []plan.Window{{ID: "workers", Size: 1}}
	for _, name := range []string{"w-1", "w-2"} {
		back := plan.UndoID("uncordon", name)
		p.Steps = append(p.Steps,
			plan.Step{ID: "drain/" + name, Title: "Drain " + name, Node: name, Window: "workers"},
			plan.Step{
				ID: plan.UndoID("vm.remove", name), Title: "Remove VM " + name, Node: name, Window: "workers",
				Undoes: []string{"drain/" + name}, Effects: []plan.Effect{{Verb: "delete", Object: "vm", Name: name}},
			},
			plan.Step{
				ID: back, Title: "Uncordon " + name, Node: name, Window: "workers", Undoes: []string{"drain/" + name},
				Needs: []string{plan.UndoID("vm.remove", name)},
			})
	}
	state := plan.NewState(&p)
	show := func() (out string, shown wire.Plan) {
		shown = wire.PlanOf(p, state)
		var b bytes.Buffer
		printPlan(&b, shown)
		return b.String(), shown
	}
	text, shown := show()
	for _, want := range []string{
		"rolled back automatically", "  w-1: Remove VM w-1; Uncordon w-1\n", "  w-2: Remove VM w-2; Uncordon w-2\n",
		"2   drain/w-2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "-undo/") || strings.Contains(text, "delete vm") || shown.StepsTotal != 2 {
		t.Errorf("the way back looks like what is going to happen, in %d steps:\n%s", shown.StepsTotal, text)
	}
	state.Status, state.Steps[0].Status, state.Steps[1].Status, state.Steps[2].Status = plan.StatusRunning, plan.Failed,
		plan.Done, plan.Running
	text, shown = show()
	if !strings.Contains(text, "uncordon-undo/w-1") || strings.Contains(text, "  w-1: ") ||
		!strings.Contains(text, "  w-2: ") || shown.StepsTotal != 4 || shown.StepsDone != 1 {
		t.Errorf("on its way back, %d of %d steps:\n%s", shown.StepsDone, shown.StepsTotal, text)
	}
}

func TestRangesAndSpans(t *testing.T) {
	t.Parallel()
	for want, n := range map[string][]int{
		"": nil, "1": {1}, "1,2": {2, 1}, "1-3": {3, 1, 2}, "1,3-5,7,8": {1, 3, 4, 5, 7, 8},
	} {
		if got := ranges(n); got != want {
			t.Errorf("ranges(%v) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "", 400 * time.Millisecond: "0.4s", 12 * time.Second: "12s", 59900 * time.Millisecond: "60s",
		185 * time.Second: "3m05s", 62 * time.Minute: "1h02m",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

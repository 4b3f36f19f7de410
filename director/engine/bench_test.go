package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// benchEngine returns a running engine whose only kind of step tells when it started and does nothing.
func benchEngine(b *testing.B) (adapted, *engine.Engine, chan time.Time) {
	b.Helper()
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	began := make(chan time.Time, 10_000)
	e, err := engine.New(b.Context(), engine.Config{
		Director: s.DirectorID(), Store: adapted{s}, Log: slog.New(slog.DiscardHandler),
		Handlers: map[string]plan.Handler{"work": plan.HandlerFunc(func(context.Context, plan.Run) error {
			began <- time.Now()
			return nil
		})},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			b.Error(err)
		}
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return adapted{s}, e, began
}

// oneStep stores a plan of one step that does nothing, on a cluster of its own.
func oneStep(b *testing.B, s adapted, id string) {
	b.Helper()
	c := plan.Content{
		Operation: plan.ClusterCreate, Cluster: id, Steps: []plan.Step{{ID: "one", Kind: "work", Attempts: 1}},
	}
	p := plan.Plan{ID: id, CreatedAt: time.Unix(1, 0), CreatedBy: "b", Hash: plan.HashOf(c), Content: c}
	if err := s.Store.Update(b.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkStartToFirstStep measures from the commit of a plan's start until its first step acts.
func BenchmarkStartToFirstStep(b *testing.B) {
	s, e, began := benchEngine(b)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("p%06d", i)
		oneStep(b, s, id)
		if err := e.Begin(b.Context(), id, "b", nil); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		times = append(times, (<-began).Sub(committed))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms-p99")
}

// BenchmarkNoOpRuns drains 1,000 plans that were started at once.
func BenchmarkNoOpRuns(b *testing.B) {
	const runs = 1000
	s, e, began := benchEngine(b)
	var longest time.Duration
	var drained time.Duration
	round := 0
	for ; b.Loop(); round++ {
		for i := range runs {
			oneStep(b, s, fmt.Sprintf("p%03d-%04d", round, i))
		}
		start := time.Now()
		for i := range runs {
			if err := e.Begin(b.Context(), fmt.Sprintf("p%03d-%04d", round, i), "b", nil); err != nil {
				b.Fatal(err)
			}
		}
		last := start
		for range runs {
			at := <-began
			longest = max(longest, at.Sub(last))
			last = at
		}
		drained += time.Since(start)
	}
	b.ReportMetric(float64(round*runs)/drained.Seconds(), "runs/s")
	b.ReportMetric(longest.Seconds(), "s-longest-stall")
}

// BenchmarkThousandNodes runs a plan of 1,000 nodes whose 4,000 steps do nothing: what a step costs must not grow with
// the plan.
func BenchmarkThousandNodes(b *testing.B) {
	const nodes = 1000
	s, e, began := benchEngine(b)
	params := fmt.Appendf(nil, "%q", strings.Repeat("x", 1000)) // about as long as those of a VM
	var took time.Duration
	steps := 0
	for round := 0; b.Loop(); round++ {
		c := plan.Content{Operation: plan.ClusterCreate, Cluster: fmt.Sprintf("c%d", round)}
		add := func(id, node string, needs ...string) string {
			c.Steps = append(c.Steps, plan.Step{
				ID: id, Kind: "work", Node: node, Needs: needs, Params: params, Attempts: 1,
			})
			return id
		}
		network := add("network", "")
		var joined []string
		for n := range nodes {
			node := fmt.Sprintf("node-%d", n)
			made := add("vm.ensure/"+node, node, network)
			booted := add("vm.boot/"+node, node, made)
			prepared := add("prepare/"+node, node, booted)
			joined = append(joined, add("join/"+node, node, prepared))
		}
		add("ready", "", joined...)
		steps += len(c.Steps)
		p := plan.Plan{ID: c.Cluster, CreatedAt: time.Unix(1, 0), CreatedBy: "b", Hash: plan.HashOf(c), Content: c}
		if err := s.Store.Update(b.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := e.Begin(b.Context(), p.ID, "b", nil); err != nil {
			b.Fatal(err)
		}
		for range c.Steps {
			<-began
		}
		took += time.Since(start)
	}
	b.ReportMetric(float64(steps)/took.Seconds(), "steps/s")
}

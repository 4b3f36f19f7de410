package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

// killed kills the director ten times in the middle of a plan of 100 nodes.
func killed(ctx context.Context, b *bench) ([]row, error) {
	const (
		kills    = 10
		longest  = 4 * time.Second // between a start and a kill
		goal     = 5 * time.Second
		settings = "forks: 100\nsimulation:\n  plays: {tasks: 3, latency: 200ms, jitter: 200ms}\n"
	)
	nodes := b.of(100)
	r, c, err := b.start(ctx, "kill", settings, provider(4, "300ms", "1s"), map[string]string{
		"net": "{provider: lab, cidr: 10.64.0.0/16, pool: {from: 10.64.1.0, to: 10.64.250.250}}",
	}, cluster("wide", "lab", "net", nodes-1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Stop() }()
	defer c.Close()
	p, err := begin(ctx, c, "wide")
	if err != nil {
		return nil, err
	}
	starts, err := killAgain(ctx, r, kills, longest)
	if err != nil {
		return nil, err
	}
	status, err := c.Follow(ctx, p.ID, 0, func(wire.Event) error { return nil }, nil, nil)
	if err != nil {
		return nil, err
	}
	if status != string(plan.StatusDone) {
		return nil, fmt.Errorf("the plan is %s\n%s", status, r.Tail())
	}
	if err := r.Stop(); err != nil {
		return nil, err
	}
	times, repeated, err := goneOn(ctx, r, p.ID, starts)
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	worst := quantile(times, 1)
	return []row{{
		fmt.Sprintf("`kill -9` in a %d-node plan", nodes), "going on <= 5 s after restart, 0 finished steps repeated",
		fmt.Sprintf(
			"worst %s, median %s of %d kills; %d repeated of %d steps", round(worst), round(quantile(times, 0.5)),
			len(times), repeated, len(p.Steps),
		),
		len(times) == kills && worst <= goal && repeated == 0,
	}}, nil
}

// killAgain kills the director and starts it, again and again, and returns when it was started.
func killAgain(ctx context.Context, r *rig.Rig, kills int, longest time.Duration) ([]time.Time, error) {
	var starts []time.Time
	for range kills {
		if err := pause(ctx, time.Second+rand.N(longest)); err != nil {
			return nil, err
		}
		if err := r.Kill(); err != nil {
			return nil, err
		}
		starts = append(starts, time.Now())
		if err := r.Start(); err != nil {
			return nil, err
		}
	}
	return starts, r.Ready(ctx)
}

// goneOn reads from the journal how long it took from each start until a step ran, and how many steps ran again after
// they were done.
func goneOn(
	ctx context.Context, r *rig.Rig, id string, starts []time.Time,
) (times []time.Duration, repeated int, err error) {
	db, err := store.Open(ctx, filepath.Join(r.State(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = db.Close() }()
	events, err := db.Events(ctx, id, 0, 1_000_000)
	if err != nil {
		return nil, 0, err
	}
	done := map[string]bool{}
	for _, e := range events {
		switch e.Kind {
		case plan.Succeeded:
			done[e.Step] = true
		case plan.Started:
			if done[e.Step] {
				repeated++
			}
		}
	}
	for i, start := range starts {
		until := time.Now()
		if i+1 < len(starts) {
			until = starts[i+1]
		}
		for _, e := range events {
			if e.Kind == plan.Started && e.At.After(start) && e.At.Before(until) {
				times = append(times, e.At.Sub(start))
				break
			}
		}
	}
	return times, repeated, nil
}

// begin makes a plan for the cluster and starts it.
func begin(ctx context.Context, c *client.Client, cluster string) (wire.Plan, error) {
	for tries := 10; ; tries-- {
		p, err := c.MakePlan(ctx, cluster, plan.Request{Operation: plan.ClusterCreate})
		if err != nil {
			return p, err
		}
		_, err = c.StartPlan(ctx, p.ID, p.Hash)
		// Another plan that was made at the same time may have taken the addresses: then it is made again, as a person
		// would.
		if tries == 0 || director.KindOf(err) != director.KindConflict {
			return p, err
		}
	}
}

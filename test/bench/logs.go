package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/test/rig"
)

// logPoll is how often directorctl asks for a log that it follows.
const logPoll = 500 * time.Millisecond

// logs follows the log of one run of a playbook on 5,000 hosts with 100 tasks. No operation has such a run: the plan is
// written into the database of a director that does not run, with the facts of a cluster of 5,000 nodes that the
// planner made, and the director continues with it at its start.
func logs(ctx context.Context, b *bench) ([]row, error) {
	const (
		tasks    = 100
		settings = "forks: 100\nsimulation:\n  plays: {tasks: 100, latency: 500us, jitter: 0s}\n"
		id, step = "wide", "prepare/wide"
	)
	hosts := b.of(5000)
	r, c, err := b.start(ctx, "log", settings, provider(4, "0s", "0s"), map[string]string{
		"net": "{provider: lab, cidr: 10.64.0.0/16, pool: {from: 10.64.1.0, to: 10.64.250.250}}",
	}, cluster("wide", "lab", "net", hosts-1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Stop() }()
	defer c.Close()
	p, err := c.MakePlan(ctx, "wide", plan.Request{Operation: plan.ClusterCreate})
	if err != nil {
		return nil, err
	}
	if err := r.Stop(); err != nil {
		return nil, err
	}
	if err := wideRun(ctx, r, p.ID, id, step); err != nil {
		return nil, err
	}
	if err := r.Start(); err != nil {
		return nil, err
	}
	if err := r.Ready(ctx); err != nil {
		return nil, err
	}
	f := follower{api: c, plan: id, step: step}
	if err := f.untilDone(ctx); err != nil {
		return nil, err
	}
	_, peak, err := resident(r.PID())
	if err != nil {
		return nil, err
	}
	slices.Sort(f.late)
	lost := hosts*tasks - len(f.late) + f.gaps
	p99 := quantile(f.late, 0.99)
	return []row{{
		fmt.Sprintf("%d hosts x %d task events", hosts, tasks),
		"last line visible p99 < 1 s after it was written, 0 lost, < 500 MB RSS",
		fmt.Sprintf("p99 %s, median %s, %d of %d events, %d lost, %.0f / s; %d MB",
			round(p99), round(quantile(f.late, 0.5)), len(f.late), hosts*tasks, lost,
			float64(len(f.late))/f.last.Sub(f.first).Seconds(), peak),
		p99 < time.Second && lost == 0 && peak < 500,
	}}, nil
}

// untilDone reads the log until the plan is done.
func (f *follower) untilDone(ctx context.Context) error {
	for status := plan.StatusRunning; !status.Ended(); {
		tick := time.NewTimer(logPoll)
		now, err := f.api.Plan(ctx, f.plan) // before the log: what was written until the end is read after it
		if err != nil {
			return err
		}
		status = plan.Status(now.Status)
		if err := f.read(ctx); err != nil {
			return err
		}
		if status.Ended() && status != plan.StatusDone {
			return fmt.Errorf("the run is %s: %s", status, now.Message)
		}
		<-tick.C
	}
	return nil
}

// wideRun writes a plan that runs one playbook on all nodes of the plan made, as if it had been started.
func wideRun(ctx context.Context, r *rig.Rig, made, id, stepID string) (err error) {
	db, err := store.Open(ctx, filepath.Join(r.State(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, _, err := db.Plan(ctx, made)
	if err != nil {
		return err
	}
	params, err := json.Marshal(step.PlayParams{Playbook: "install/prepare.yml"})
	if err != nil {
		return err
	}
	play := plan.Step{ID: stepID, Kind: step.Play, Title: "Prepare all nodes at once", Params: params, Attempts: 1}
	for _, s := range p.Steps {
		if s.Kind == step.ClusterPKI {
			play.Needs = []string{s.ID}
			p.Steps = []plan.Step{s, play}
			break
		}
	}
	p.ID, p.Hash = id, plan.HashOf(p.Content)
	return db.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddPlan(p); err != nil {
			return err
		}
		state := plan.NewState(&p)
		return tx.Append(&state, plan.Event{Plan: id, Kind: plan.PlanStarted, At: time.Now()})
	})
}

// follower reads a log as directorctl does, and notes how late each line comes.
type follower struct {
	api         *client.Client
	plan, step  string
	offset      int64
	n, gaps     int // number of the last event; how many are missing
	late        []time.Duration
	first, last time.Time
}

func (f *follower) read(ctx context.Context) error {
	log, err := f.api.StepLog(ctx, f.plan, f.step, 0, f.offset)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // half a line is left for the next time
		}
		if err != nil {
			return err
		}
		f.offset += int64(len(line))
		var e ansible.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		f.gaps += e.N - f.n - 1 + e.Count*map[bool]int{true: 1}[e.Type == ansible.Lost]
		f.n = e.N
		if e.Type != ansible.HostResult {
			continue
		}
		now := time.Now()
		if f.first.IsZero() {
			f.first = now
		}
		f.last = now
		f.late = append(f.late, now.Sub(e.Time))
	}
}

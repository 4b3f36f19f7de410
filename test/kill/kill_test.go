// Package kill kills the real director again and again while it makes and takes away clusters, and then looks whether
// anything was lost, doubled or left behind. test/kill/kill.sh builds what it needs; without KAAS_KILL_BIN it is
// skipped.
package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/test/rig"
)

const (
	workers  = 4
	goingOn  = 5 * time.Second // from a restart to the first step
	longest  = 3 * time.Second // between a start and a kill
	settings = `
forks: 50
creationsPerHour: 0
simulation:
  plays: {tasks: 3, latency: 60ms, jitter: 120ms, changed: 30, faults: [{outcome: unreachable, percent: 1}]}
`
	provider = `{hosts: [{name: h1}, {name: h2}], boot: 300ms, bootJitter: 500ms, verbs: [
  {verb: ensure, latency: 200ms, jitter: 400ms, faults: 2}, {verb: delete, latency: 100ms, jitter: 300ms, faults: 2},
  {verb: ensure_network, latency: 100ms, faults: 2}, {verb: delete_network, latency: 100ms, faults: 2},
  {verb: ensure_image, latency: 200ms, faults: 2}, {verb: list, latency: 10ms, jitter: 40ms}]}`
)

// clusters are the clusters that come and go, with their networks. The anchor stays, so that the shared network does.
var clusters = map[string]string{"one": "shared", "two": "shared", "three": "own"}

const anchor = "anchor"

func binaries(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("KAAS_KILL_BIN")
	if bin == "" {
		t.Skip("KAAS_KILL_BIN is not set: run test/kill/kill.sh")
	}
	return bin
}

func number(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setup starts a director and gives it everything but the clusters that come and go.
func setup(t *testing.T, change func(*rig.Rig)) (*rig.Rig, *client.Client) {
	t.Helper()
	r, err := rig.New(binaries(t), t.TempDir(), settings)
	must(t, err)
	if change != nil {
		change(r)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the director's log:\n%s", r.Tail())
		}
	})
	must(t, r.Start())
	t.Cleanup(func() { _ = r.Stop() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, r.Ready(ctx))
	c, err := r.Client(ctx)
	must(t, err)
	t.Cleanup(c.Close)
	base, err := r.Base(ctx, provider, map[string]string{
		"shared": "{provider: lab, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}",
		"own":    "{provider: lab, cidr: 10.89.0.0/24, pool: {from: 10.89.0.10, to: 10.89.0.99}}",
	})
	must(t, err)
	_, err = c.Apply(ctx, []byte(base+rig.Cluster(anchor, "shared", 0)), "documents", false)
	must(t, err)
	return r, c
}

func TestKillLoop(t *testing.T) {
	kills := int(number(t, "KILLS", 20)) //nolint:gosec // a small number
	seed := number(t, "KILL_SEED", uint64(time.Now().UnixNano()))
	random := rand.New(rand.NewPCG(seed, 0))
	r, c := setup(t, nil)
	t.Logf("%d kills, seed %d: repeat the times of the kills with KILL_SEED=%d", kills, seed, seed)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	enough := make(chan struct{}) // closed when the last kill is over: drivers finish their round
	fault := make(chan error, len(clusters)+1)
	var drivers sync.WaitGroup
	drivers.Go(func() { fault <- reach(ctx, c, anchor, "shared", plan.ClusterCreate) })
	for name, network := range clusters {
		drivers.Go(func() { fault <- drive(ctx, c, name, network, enough) })
	}

	starts := []time.Time{}
	for n := range kills {
		wait := time.NewTimer(time.Duration(random.Int64N(int64(longest))))
		select {
		case <-wait.C:
		case err := <-fault:
			if err != nil {
				t.Fatalf("after %d kills: %v", n, err)
			}
			<-wait.C
		}
		must(t, r.Kill())
		if twins := worldOf(t, r).Twins(); len(twins) > 0 {
			t.Fatalf("after kill %d of %d there are twins: %v", n+1, kills, twins)
		}
		starts = append(starts, time.Now())
		must(t, r.Start())
	}
	close(enough)
	drivers.Wait()
	close(fault)
	for err := range fault {
		if err != nil {
			t.Error(err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Errorf("the director does not stop: %v", err)
	}
	if t.Failed() {
		return
	}
	inspect(t, r, starts)
}

// worldOf opens the pretended world of a director that is not running.
func worldOf(t *testing.T, r *rig.Rig) *sim.World {
	t.Helper()
	return openWorld(t, filepath.Join(r.State(), "simulation"))
}

func openWorld(t *testing.T, dir string) *sim.World {
	t.Helper()
	w, err := sim.OpenWorld(simulate.WorldFile(dir, "lab"))
	must(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// drive makes the cluster and takes it away until it is enough, and leaves it made.
func drive(ctx context.Context, c *client.Client, name, network string, enough <-chan struct{}) error {
	for {
		if err := reach(ctx, c, name, network, plan.ClusterCreate); err != nil {
			return err
		}
		select {
		case <-enough:
			return nil
		default:
		}
		if err := reach(ctx, c, name, network, plan.ClusterDelete); err != nil {
			return err
		}
	}
}

// reach repeats what a patient person would do until the cluster is made, or is gone. Only what a plan says itself is
// an error.
func reach(ctx context.Context, c *client.Client, name, network string, want plan.Operation) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var last error
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		done, err := push(ctx, c, name, network, want)
		if done {
			return nil
		}
		switch kind := director.KindOf(err); {
		case err == nil:
		case kind == director.KindUnavailable || kind == director.KindConflict || kind == director.KindNotFound:
			last = err // the director is gone at the moment, or another plan came first
		default:
			return fmt.Errorf("%s of %s: %w", want, name, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s of %s does not end: %w", want, name, errors.Join(ctx.Err(), last))
		}
	}
}

// push does the next thing: wait for a plan that runs, or make and start one.
func push(ctx context.Context, c *client.Client, name, network string, want plan.Operation) (done bool, err error) {
	now, err := c.Cluster(ctx, name)
	switch {
	case director.KindOf(err) == director.KindNotFound && err != nil && want == plan.ClusterDelete:
		return true, nil
	case director.KindOf(err) == director.KindNotFound && err != nil:
		_, err := c.Apply(ctx, []byte(rig.Cluster(name, network, workers)), name, false)
		return false, err
	case err != nil:
		return false, err
	case now.Status == "ready" && want == plan.ClusterCreate:
		return true, nil
	case now.Plan != "" && now.Status != "failed":
		return false, nil // it runs
	case now.Plan != "":
		p, err := c.Plan(ctx, now.Plan)
		if err == nil && plan.Status(p.Status) == plan.StatusFailed {
			return false, fmt.Errorf("plan %s failed: %s", p.ID, p.Message)
		}
		return false, err
	}
	p, err := c.MakePlan(ctx, name, plan.Request{Operation: want})
	if err != nil || len(p.Steps) == 0 {
		return false, err
	}
	_, err = c.StartPlan(ctx, p.ID, p.Hash)
	return false, err
}

// refs lists the clusters that are there at the end.
func refs() []model.Ref {
	out := []model.Ref{{Kind: model.KindCluster, Name: anchor}}
	for name := range clusters {
		out = append(out, model.Ref{Kind: model.KindCluster, Name: name})
	}
	slices.SortFunc(out, func(a, b model.Ref) int { return cmpStrings(a.Name, b.Name) })
	return out
}

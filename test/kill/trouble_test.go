package kill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

// started returns a channel that gets the outcome of making the cluster, once a step of it has started.
func started(t *testing.T, c *client.Client, name string) <-chan error {
	t.Helper()
	ctx := t.Context()
	out := make(chan error, 1)
	go func() { out <- reach(ctx, c, name, clusters[name], plan.ClusterCreate) }()
	await(t, "a step of "+name, func() bool {
		now, err := c.Cluster(ctx, name)
		return err == nil && now.Plan != "" && len(now.Machines) > 0
	})
	return out
}

// await asks until it is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it does not come to it", what)
		}
	}
}

func ended(t *testing.T, outcome <-chan error) {
	t.Helper()
	select {
	case err := <-outcome:
		must(t, err)
	case <-time.After(2 * time.Minute):
		t.Fatal("the plan does not continue")
	}
}

// whole looks at what is left, without the clusters that this test does not make.
func whole(t *testing.T, r *rig.Rig, c *client.Client, made string) {
	t.Helper()
	for name, network := range clusters {
		if name != made {
			must(t, reach(t.Context(), c, name, network, plan.ClusterCreate))
		}
	}
	must(t, reach(t.Context(), c, anchor, "shared", plan.ClusterCreate))
	must(t, r.Stop())
	inspect(t, r, nil)
}

// Another program holds the database's write lock for longer than the director waits for it. Nothing is lost and the
// plan continues.
func TestDatabaseLockedByAnother(t *testing.T) {
	r, c := setup(t, nil)
	outcome := started(t, c, "one")
	db, err := store.Open(t.Context(), filepath.Join(r.State(), "director.db"), slog.New(slog.DiscardHandler))
	must(t, err)
	must(t, db.Update(t.Context(), func(*store.Tx) error {
		const held = 13 * time.Second // the director waits for 10 s
		timer := time.NewTimer(held)
		<-timer.C
		return nil
	}))
	must(t, db.Close())
	ended(t, outcome)
	whole(t, r, c, "one")
}

// The disk of the state fills up in the middle of a plan. The plan continues by itself once there is space again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give the director a small disk of its own")
	}
	const disk = 320 << 20 // with less than 256 MiB left, a director calls itself not ready
	r, c := setup(t, func(r *rig.Rig) { r.Disk = disk })
	outcome := started(t, c, "one")
	filler := r.Seen("filler")
	must(t, fill(filler))
	await(t, "the director says that the disk is full", func() bool { return saysFull(t.Context(), r, c) })
	select {
	case err := <-outcome:
		t.Fatalf("the plan ended on a full disk: %v", err)
	default:
	}
	must(t, os.Remove(filler))
	ended(t, outcome)
	for name, network := range clusters {
		must(t, reach(t.Context(), c, name, network, plan.ClusterCreate))
	}
	must(t, reach(t.Context(), c, anchor, "shared", plan.ClusterCreate))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	plans, err := c.Plans(ctx, client.PlanFilter{Limit: 100})
	must(t, err)
	for _, p := range plans {
		var last int64
		steps := map[string]bool{}
		_, err := c.Follow(ctx, p.ID, 0, func(e wire.Event) error {
			if e.Seq != last+1 {
				return fmt.Errorf("plan %s: after event %d comes %d", p.ID, last, e.Seq)
			}
			if last = e.Seq; e.Kind == string(plan.Succeeded) {
				steps[e.Step] = true
			} else if e.Kind == string(plan.Started) && steps[e.Step] {
				return fmt.Errorf("plan %s: %s was done and ran again", p.ID, e.Step)
			}
			return nil
		}, nil, nil)
		must(t, err)
	}
}

// saysFull reports whether the director has come to write on its full disk: to its database, which it logs, or to the
// log of a playbook, for which the step waits, and says so.
func saysFull(ctx context.Context, r *rig.Rig, c *client.Client) bool {
	if text, err := os.ReadFile(r.LogFile()); err == nil && strings.Contains(string(text), "no space left on device") {
		return true
	}
	plans, err := c.Plans(ctx, client.PlanFilter{Limit: 100})
	if err != nil {
		return false
	}
	for _, p := range plans {
		v, err := c.Plan(ctx, p.ID)
		if err == nil && slices.ContainsFunc(v.Steps, func(s wire.Step) bool {
			return strings.Contains(s.Message, "waits for space on the director's disk")
		}) {
			return true
		}
	}
	return false
}

// fill writes until there is no space left.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}

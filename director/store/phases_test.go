package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestPhaseTasks(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		if _, err := s.PhaseTask(ctx, "t/1"); director.KindOf(err) != director.KindNotFound {
			t.Errorf("a task that is not there: %v", err)
		}
		task := director.PhaseTask{
			ID: "t/1",
			Request: director.PhaseRequest{
				Phase: director.PhasePreNodeLock, Host: "h1", DrainTimeout: time.Minute, Unmanaged: true,
			}, By: "ann",
			State: director.PhaseWaiting, Message: "nothing yet", Started: time.Unix(1000, 0).UTC(),
			Parts: []director.PhasePart{{Cluster: "demo", Nodes: []string{"a", "b"}, State: director.PhaseWaiting}},
		}
		add := func(task director.PhaseTask) (added bool) {
			t.Helper()
			err := update(t, s, func(tx *Tx) (err error) { added, err = tx.AddPhaseTask(task); return err })
			if err != nil {
				t.Fatal(err)
			}
			return added
		}
		other := task
		other.By = "bob"
		if first, second := add(task), add(other); !first || second {
			t.Errorf("added %t, and again %t", first, second)
		}
		got, err := s.PhaseTask(ctx, "t/1")
		if diff := cmp.Diff(task, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		task.State, task.Message, task.Hint, task.Parts[0].Plans, task.Finished = director.PhaseDone, "all is done",
			"go on", []string{"p1"}, time.Unix(2000, 0).UTC()
		if err := update(t, s, func(tx *Tx) error { return tx.PutPhaseTask(task) }); err != nil {
			t.Fatal(err)
		}
		late := got // has not seen that
		late.State = director.PhaseFailed
		err = update(t, s, func(tx *Tx) error {
			if err := tx.Audit(time.Unix(3000, 0), "bob", "lost", "Task/1"); err != nil {
				return err
			}
			return tx.PutPhaseTask(late)
		})
		if director.KindOf(err) != director.KindStale {
			t.Errorf("who came late: %v", err)
		}
		var n int64
		if err := s.read.Raw("SELECT count(*) FROM audit WHERE action = 'lost'").Scan(&n).Error; err != nil || n != 0 {
			t.Errorf("what came late left %d rows of its transaction, %v", n, err)
		}
		task.Revision = 1
		got, err = open().PhaseTask(ctx, "t/1")
		if diff := cmp.Diff(task, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

// Of two directors that would be upgraded at once, the second sees that the first has begun.
func TestOpenPhaseTasks(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open()}
		now := time.Unix(1000, 0).UTC()
		for _, id := range []string{"a", "b", "other", "ended"} {
			task := director.PhaseTask{
				ID: id, Request: director.PhaseRequest{Phase: director.PhaseDirector}, Started: now,
				Parts: []director.PhasePart{{Upgrade: director.PhaseUpgrade{Host: id}}},
			}
			switch id {
			case "other":
				task.Request.Phase = director.PhaseCluster
			case "ended":
				task.Finished = now
			}
			if err := update(t, stores[0], func(tx *Tx) error {
				_, err := tx.AddPhaseTask(task)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		begun := make([]bool, len(stores))
		for i, id := range []string{"a", "b"} {
			all.Go(func() {
				if err := update(t, stores[i], func(tx *Tx) error {
					open, err := tx.OpenPhaseTasks(director.PhaseDirector)
					if err != nil || len(open) != 2 {
						return fmt.Errorf("%d tasks, %w", len(open), err)
					}
					for _, task := range open {
						if !task.Parts[0].Upgrade.Asked.IsZero() {
							return nil
						}
					}
					task := open[i]
					task.Parts[0].Upgrade.Asked, begun[i] = now, task.ID == id
					return tx.PutPhaseTask(task)
				}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if begun[0] == begun[1] {
			t.Errorf("begun: %v", begun)
		}
	})
}

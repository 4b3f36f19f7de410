package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// history adds a plan that went through the events, one second after the other.
func history(t *testing.T, s *Store, id, cluster string, at int64, kinds ...plan.EventKind) {
	t.Helper()
	p := making(id, at, "m-"+id)
	p.Cluster = cluster
	p.Hash = plan.HashOf(p.Content)
	state := plan.NewState(&p)
	err := update(t, s, func(tx *Tx) error {
		if err := tx.AddPlan(p); err != nil {
			return err
		}
		for i, k := range kinds {
			if err := tx.Append(&state, plan.Event{Plan: id, Kind: k, At: time.Unix(at+int64(i), 0)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Only plans that are over for good leave the database, by age or number, and none that something that continues names.
func TestArchivable(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		done := []plan.EventKind{plan.PlanStarted, plan.PlanDone}
		history(t, s, "old-1", "a", 100, done...)
		history(t, s, "old-2", "a", 200, plan.PlanStarted, plan.PlanFailed, plan.PlanDiscarded)
		history(t, s, "old-3", "a", 300, plan.PlanDiscarded)
		history(t, s, "mid-1", "a", 1100, done...)
		history(t, s, "mid-2", "a", 1200, done...)
		history(t, s, "new", "a", 5000, done...)
		history(t, s, "planned", "b", 100)
		history(t, s, "failed", "b", 101, plan.PlanStarted, plan.PlanFailed)
		history(t, s, "disk", "c", 100, done...)
		history(t, s, "task", "c", 110, done...)
		history(t, s, "free", "c", 120, done...)
		history(t, s, "newest", "c", 130, done...) // of its cluster
		err := update(t, s, func(tx *Tx) error {
			_, err := tx.AddPhaseTask(director.PhaseTask{
				ID: "t", State: director.PhaseRunning, Started: time.Unix(1, 0),
				Parts: []director.PhasePart{{Plans: []string{"task"}}},
			})
			return err
		})
		if err == nil {
			err = s.write.Create(&diskRow{ID: "d", PlanID: "disk"}).Error
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			r    Retention
			want []string
		}{
			"by age": {
				Retention{time.Unix(1000, 0), time.Unix(4000, 0), 0}, []string{"old-1", "free", "old-2", "old-3"},
			},
			"by number": {
				Retention{time.Unix(0, 0), time.Unix(4000, 0), 2}, []string{"old-1", "old-2", "old-3", "mid-1"},
			},
			"by either": {
				Retention{time.Unix(150, 0), time.Unix(4000, 0), 3}, []string{"old-1", "free", "old-2", "old-3"},
			},
			"none recent":    {Retention{time.Unix(9000, 0), time.Unix(250, 0), 1}, []string{"old-1", "free", "old-2"}},
			"not old enough": {Retention{time.Unix(50, 0), time.Unix(4000, 0), 0}, nil},
		} {
			got, err := s.Archivable(t.Context(), tt.r)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%s (-want +got), %v:\n%s", name, err, diff)
			}
		}
	})
}

// With the record of its file a plan leaves the database whole, once; whoever asks for it is told where it is.
func TestArchivePlan(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		history(t, s, "p1", "a", 100, plan.PlanStarted, plan.PlanDone)
		history(t, s, "p2", "a", 200, plan.PlanStarted)
		f := ArchiveFile{
			Host: "h", File: "/state/archives/p1.tar.gz", SHA256: "aa", Size: 7, At: time.Unix(900, 0).UTC(),
		}
		if err := s.ArchivePlan(ctx, "p2", f, "ann"); director.KindOf(err) != director.KindConflict {
			t.Errorf("a running plan was archived: %v", err)
		}
		for range 2 {
			if err := s.ArchivePlan(ctx, "p1", f, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		for _, table := range []string{"plan_steps", "events", "plan_contents", "plan_machines"} {
			var n, other int64
			err := errors.Join(s.read.Raw("SELECT count(*) FROM "+table+" WHERE plan_id = 'p1'").Scan(&n).Error,
				s.read.Raw("SELECT count(*) FROM "+table+" WHERE plan_id = 'p2'").Scan(&other).Error)
			if err != nil || n != 0 || other == 0 {
				t.Errorf("%s has %d rows of it, and %d of the other plan, %v", table, n, other, err)
			}
		}
		_, _, err := s.Plan(ctx, "p1")
		_, _, err2 := s.Progress(ctx, "p1")
		for _, err := range []error{err, err2} {
			if director.KindOf(err) != director.KindNotFound ||
				!strings.Contains(err.Error(), "archived on 1970-01-01, to /state/archives/p1.tar.gz on host h") {
				t.Errorf("asked for it: %v", err)
			}
		}
		if _, _, err := s.Plan(
			ctx, "p9",
		); director.KindOf(err) != director.KindNotFound || strings.Contains(err.Error(), "archived") {
			t.Errorf("asked for one that never was: %v", err)
		}
		at, there, err := s.PlanArchived(ctx, "p1")
		if diff := cmp.Diff(f, at.ArchiveFile); diff != "" || !there || err != nil {
			t.Errorf("its file (-want +got), %v:\n%s", err, diff)
		}
		got, next, err := s.PlanArchives(ctx, PlanQuery{Cluster: "a"}, director.Page{Limit: 5, Desc: true})
		want := PlanItem{
			Plan: plan.Plan{ID: "p1", CreatedAt: time.Unix(100, 0).UTC(), Content: plan.Content{Cluster: "a"}},
			State: plan.State{
				Status: plan.StatusDone, StartedAt: time.Unix(100, 0).UTC(), FinishedAt: time.Unix(101, 0).UTC(),
			}, Total: 4,
		}
		if diff := cmp.Diff([]PlanItem{want}, got); diff != "" || next != nil || err != nil {
			t.Errorf("the archives (-want +got), %v:\n%s", err, diff)
		}
		if got, _, err := s.PlanArchives(ctx, PlanQuery{Cluster: "b"}, director.Page{}); err != nil || len(got) != 0 {
			t.Errorf("of another cluster: %v, %v", got, err)
		}
		for n := range 4 {
			id := fmt.Sprintf("q%d", n)
			history(t, s, id, "z", int64(300+n), plan.PlanDiscarded)
			if err := s.ArchivePlan(ctx, id, f, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		var ids []string
		for p := (director.Page{Limit: 3, Desc: true}); ; {
			items, next, err := s.PlanArchives(ctx, PlanQuery{}, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range items {
				ids = append(ids, i.Plan.ID)
			}
			if p.After = next; next == nil {
				break
			}
		}
		if diff := cmp.Diff([]string{"q3", "q2", "q1", "q0", "p1"}, ids); diff != "" {
			t.Errorf("page by page (-want +got):\n%s", diff)
		}
	})
}

// A month of the audit trail leaves with its record, and not at all if the file holds something else.
func TestArchiveAudit(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		month := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
		err := update(t, s, func(tx *Tx) error {
			for i := range 5 {
				if err := tx.Audit(
					month.AddDate(0, 0, 20*i), "ann", "apply", fmt.Sprintf("Network/n%d", i),
				); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		end, err := s.AuditEnd(ctx, month.AddDate(0, 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		var got []AuditEntry
		for after := int64(0); ; after = got[len(got)-1].ID {
			page, err := s.AuditPage(ctx, after, end, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, page...); len(page) == 0 {
				break
			}
		}
		if len(got) != 2 || got[1].Object != "Network/n1" || !got[1].At.Equal(month.AddDate(0, 0, 20)) {
			t.Fatalf("January has %+v", got)
		}
		f := ArchiveFile{Host: "h", File: "f", SHA256: "s", At: time.Unix(1, 0)}
		if err := s.ArchiveAudit(
			ctx, "audit-2025-01", month, got[1].ID, 1, f,
		); director.KindOf(err) != director.KindConflict {
			t.Errorf("a file with fewer entries: %v", err)
		}
		if n, err := s.AuditArchives(ctx, month); err != nil || n != 0 {
			t.Errorf("it has %d archives, %v", n, err)
		}
		if err := s.ArchiveAudit(ctx, "audit-2025-01", month, got[1].ID, 2, f); err != nil {
			t.Fatal(err)
		}
		if n, err := s.AuditArchives(ctx, month); err != nil || n != 1 {
			t.Errorf("it has %d archives, %v", n, err)
		}
		oldest, err := s.OldestAudit(ctx)
		if err != nil || !oldest.Equal(month.AddDate(0, 0, 40)) {
			t.Errorf("the oldest entry is of %s, %v", oldest, err)
		}
	})
}

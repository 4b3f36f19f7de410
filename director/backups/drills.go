package backups

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/store"
)

// Drills returns the restore drills of the cluster with that uid, or of all if it is empty, the newest first.
func (s *Service) Drills(ctx context.Context, uid string, limit int) ([]backup.Drill, error) {
	return s.c.Store.Drills(ctx, store.DrillFilter{ClusterUID: uid, Limit: limit})
}

// Drill returns the drill of the plan, and whether there is one.
func (s *Service) Drill(ctx context.Context, plan string) (backup.Drill, bool, error) {
	all, err := s.c.Store.Drills(ctx, store.DrillFilter{Plan: plan})
	if err != nil || len(all) == 0 {
		return backup.Drill{}, false, err
	}
	return all[0], true, nil
}

// BeginDrill writes a drill down, unless it is.
func (s *Service) BeginDrill(ctx context.Context, d backup.Drill) error {
	return s.c.Store.Update(ctx, func(tx *store.Tx) error { return tx.BeginDrill(d) })
}

// AnswerDrill writes down that the drill has its answer, and what is wrong with it; "" if it is what the manifest of
// the backup promises.
func (s *Service) AnswerDrill(ctx context.Context, plan string, keys int64, problem string) error {
	return s.c.Store.Update(ctx, func(tx *store.Tx) error { return tx.AnswerDrill(plan, s.c.Now(), keys, problem) })
}

// EndDrill forgets the secrets that the drill of the cluster with that uid had, and writes down that its VM is gone.
func (s *Service) EndDrill(ctx context.Context, plan, uid string) error {
	return s.c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.ForgetCluster(director.DrillUID(uid), "drill"); err != nil {
			return err
		}
		return tx.EndDrill(plan, s.c.Now(), "it did not come to its answer; see plan "+plan)
	})
}

// DrillLives returns the name of the VM that a drill of the cluster with that uid has, or "".
func (s *Service) DrillLives(ctx context.Context, uid string) (string, error) {
	all, err := s.c.Store.Machines(ctx, store.MachineFilter{ClusterUID: director.DrillUID(uid)})
	if err != nil || len(all) == 0 {
		return "", err
	}
	return all[0].Name, nil
}

// DrillState is how the restore drills of a cluster are.
type DrillState struct {
	Network string       // that its document names for them; empty for a cluster without drills
	Newest  backup.Drill // of any outcome; the zero value without one
	Last    backup.Drill // that succeeded; the zero value without one
	Late    bool
}

// Failed reports whether the newest drill has come to its end and did not succeed.
func (d DrillState) Failed() bool { return d.Newest.Problem != "" }

// drillsOf returns how the drills of a cluster are that was installed at the time.
func (s *Service) drillsOf(
	ctx context.Context, uid, network string, late time.Duration, installed time.Time,
) (DrillState, error) {
	d := DrillState{Network: network}
	newest, err := s.Drills(ctx, uid, 1)
	if err != nil {
		return d, err
	}
	if len(newest) > 0 {
		d.Newest = newest[0]
	}
	if d.Last, err = s.c.Store.LastDrill(ctx, uid); err != nil || network == "" {
		return d, err
	}
	since := d.Last.Answered
	if since.IsZero() {
		since = installed
	}
	d.Late = s.c.Now().Sub(since) > late
	return d, nil
}

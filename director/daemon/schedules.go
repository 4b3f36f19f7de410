package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/store"
)

// defaultSchedules are made at the first start. From then on they are documents like all others: they can be changed,
// suspended and deleted.
func defaultSchedules() []model.Document {
	nightly := func(job, cron string) model.Document {
		d := model.Document{Kind: model.KindSchedule, Metadata: model.Metadata{Name: job}, Schedule: &model.Schedule{
			Cron: cron, Job: model.ScheduledJob{Name: job}, Deadline: model.Duration(6 * time.Hour),
		}}
		model.Default(&d)
		return d
	}
	return []model.Document{
		nightly("prune", "15 3 * * *"), nightly("backup", "45 3 * * *"), nightly("certificates", "30 4 * * *"),
	}
}

// scheduler returns the scheduler with every job that this director knows.
func (d background) scheduler(db *store.Store) *schedule.Scheduler {
	return schedule.New(schedule.Config{Store: db, Log: d.log, Held: d.held.Load, Jobs: []schedule.Job{
		schedule.PruneJob(
			db, d.path("runs"), schedule.Programs{Dir: d.path("artifacts"), Used: d.services.planning.UsedPrograms},
			d.services.archives, time.Now,
		),
		schedule.BackupJob(d.saves),
		schedule.EtcdBackupJob(d.services.backups, d.services.planning),
		schedule.RestoreDrillJob(d.services.backups, d.services.planning),
		schedule.DriftJob(d.services.vms),
		schedule.ImagesJob(d.services.images, time.Now),
		schedule.CertificatesJob(d.services.planning, time.Now),
	}})
}

// startSchedules makes the schedules of a new director, and begins to run what is due.
func (d background) startSchedules(ctx context.Context, db *store.Store, s *schedule.Scheduler) error {
	err := db.Once(ctx, "default schedules", func(tx *store.Tx) error {
		docs, err := tx.Documents()
		if err != nil {
			return err
		}
		have := map[model.Ref]bool{}
		for _, doc := range docs {
			have[doc.Ref()] = true
		}
		for _, doc := range defaultSchedules() {
			if have[doc.Ref()] {
				continue
			}
			if err := tx.PutDocument(doc, "director", time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	d.onStop(s.Stop)
	return nil
}

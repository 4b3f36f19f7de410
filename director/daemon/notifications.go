package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/notifications"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// notifyEvery is how often the director looks for what people are told.
const notifyEvery = 5 * time.Second

// startNotifications tells people what waits for them and what went wrong.
func (d background) startNotifications(
	ctx context.Context, db *store.Store, box *seal.Box, m *metrics.Metrics, instance string, build Build,
) {
	d.notifications = notifications.New(notifications.Config{
		Store: db, Sealer: box, Accounts: d.vault(db, box), Observer: m, URL: d.cfg.publicURL(), Own: d.listeners,
		Instance: instance, Version: build.Version, Now: time.Now, Log: d.log,
		World: world{journal: d.services.journal, hooks: d.hooks, backups: d.services.backups, db: db},
	})
	d.every(ctx, notifyEvery, "tell people what waits", d.notifications.Tick)
}

// world says what people are told, from what the console shows them.
type world struct {
	journal *journal.Service
	hooks   *hooks.Service
	backups *backups.Service
	db      *store.Store
}

// Waits returns what plans wait for a person for.
func (w world) Waits(ctx context.Context) ([]notifications.Wait, error) {
	list, err := w.journal.Waits(ctx, journal.WaitQuery{Owner: journal.OwnerPerson})
	out := make([]notifications.Wait, len(list))
	for i, one := range list {
		out[i] = notifications.Wait{
			Plan: one.Plan, Cluster: one.Cluster, Operation: one.Operation, Status: one.Status, Reason: one.Reason,
			Since: one.Since,
		}
	}
	return out, err
}

// mostQuestions is how many questions of hooks are looked at: a message names fewer.
const mostQuestions = 500

// Questions returns what plans wait for hooks to answer.
func (w world) Questions(ctx context.Context) ([]notifications.Question, error) {
	list, err := w.hooks.Deliveries(ctx, director.HookQuery{Waiting: true, Limit: mostQuestions})
	out := make([]notifications.Question, len(list))
	for i, d := range list {
		out[i] = notifications.Question{
			ID: d.ID, Hook: d.Hook, Phase: d.Event.Phase, Plan: d.Plan, Cluster: d.Event.Cluster, Node: d.Event.Node,
			Since: d.Created,
		}
	}
	return out, err
}

// Backups returns how the backups and the restore drills of clusters are.
func (w world) Backups(ctx context.Context) ([]notifications.Backup, error) {
	list, err := w.backups.Ages(ctx)
	out := make([]notifications.Backup, len(list))
	for i, a := range list {
		out[i] = notifications.Backup{
			Cluster: a.Cluster, Newest: a.Newest, Late: a.Late, DrillLate: a.Drills.Late,
			Drill: a.Drills.Newest.Plan, Problem: a.Drills.Newest.Problem, Drilled: a.Drills.Last.Answered,
		}
	}
	return out, err
}

// runsLooked is how many of its newest runs are looked at for one that succeeded.
const runsLooked = 30

// Schedules returns how the runs of schedules ended.
func (w world) Schedules(ctx context.Context) ([]notifications.Schedule, error) {
	docs, err := w.db.Documents(ctx, model.KindSchedule)
	if err != nil {
		return nil, err
	}
	out := make([]notifications.Schedule, 0, len(docs))
	for _, d := range docs {
		runs, err := w.db.Runs(ctx, d.UID, runsLooked)
		if err != nil {
			return nil, err
		}
		out = append(out, scheduleOf(d, runs, time.Now()))
	}
	return out, nil
}

// scheduleOf tells how the runs of a schedule ended, from its newest ones. A backup of the director is late when two
// slots after that of the last one that succeeded have had their time. One that is suspended is late like others.
func scheduleOf(d model.Stored, runs []director.ScheduleRun, now time.Time) notifications.Schedule {
	out := notifications.Schedule{Name: d.Metadata.Name, Job: d.Schedule.Job.Name}
	ended := false
	for _, r := range runs {
		switch r.Status {
		case director.RunDone:
			if out.Succeeded.IsZero() {
				out.Succeeded = r.Slot
			}
			ended = true
		case director.RunFailed:
			if !ended {
				out.Failed, out.Problem = r.Slot, r.Message
			}
			ended = true
		case director.RunRunning, director.RunInterrupted, director.RunMissed:
		}
	}
	if slots, err := schedule.ParseSlots(*d.Schedule); err == nil && out.Job == "backup" {
		after := out.Succeeded
		if after.IsZero() {
			after = d.Created
		}
		second := slots.Next(slots.Next(after))
		out.Late = !second.IsZero() && second.Add(time.Duration(d.Schedule.Deadline)).Before(now)
	}
	return out
}

// Certificates returns those that end before the time.
func (w world) Certificates(ctx context.Context, before time.Time) ([]director.Certificate, error) {
	list, _, err := w.db.Certificates(ctx, director.CertificateQuery{EndsBefore: before}, director.Page{})
	return list, err
}

package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/notifications"
)

// What is told of a schedule follows its newest runs.
func TestScheduleOf(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 3, n, 3, 45, 0, 0, time.UTC) }
	run := func(n int, status director.RunStatus) director.ScheduleRun {
		return director.ScheduleRun{Slot: day(n), Status: status, Message: string(status)}
	}
	now := day(10).Add(time.Hour)
	for name, tt := range map[string]struct {
		job     string
		created int
		runs    []director.ScheduleRun // the newest first
		want    notifications.Schedule
	}{
		"well": {"backup", 1, []director.ScheduleRun{run(10, "done"), run(9, "failed")}, notifications.Schedule{
			Succeeded: day(10),
		}},
		"failed once": {"backup", 1, []director.ScheduleRun{run(10, "failed"), run(9, "done")}, notifications.Schedule{
			Failed: day(10), Problem: "failed", Succeeded: day(9),
		}},
		"failed, and runs again": {"backup", 1, []director.ScheduleRun{
			run(10, "running"), run(9, "failed"), run(8, "done"),
		}, notifications.Schedule{Failed: day(9), Problem: "failed", Succeeded: day(8)}},
		"late": {"backup", 1, []director.ScheduleRun{run(9, "missed"), run(7, "done")}, notifications.Schedule{
			Succeeded: day(7), Late: true,
		}},
		"another job is not late": {"prune", 1, []director.ScheduleRun{run(2, "done")}, notifications.Schedule{
			Succeeded: day(2),
		}},
		"new":                {"backup", 10, nil, notifications.Schedule{}},
		"none has succeeded": {"backup", 1, nil, notifications.Schedule{Late: true}},
	} {
		d := model.Stored{Created: day(tt.created)}
		d.Metadata.Name = "s"
		d.Schedule = &model.Schedule{
			Cron: "45 3 * * *", TimeZone: "UTC", Job: model.ScheduledJob{Name: tt.job},
			Deadline: model.Duration(6 * time.Hour),
		}
		tt.want.Name, tt.want.Job = "s", tt.job
		if diff := cmp.Diff(tt.want, scheduleOf(d, tt.runs, now)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

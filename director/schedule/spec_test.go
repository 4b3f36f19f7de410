package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/schedule"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// In 2026 the clocks of Berlin go from 02:00 to 03:00 on 29 March, and from 03:00 back to 02:00 on 25 October.
func TestSlotsOverTheChangesOfTheClock(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cron, zone, from, until string
		want                    []string // in UTC
	}{
		"a time that is left out is due at the change": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		"two times that are left out are one": {
			"0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:10:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		},
		"a time that comes twice is due the first time": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z",
			[]string{"2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		"times around the change keep their place on the wall": {
			"0 1,4 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z",
			[]string{"2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z"},
		},
		"every hour follows the time that passes, forward": {
			"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"},
		},
		"every hour follows the time that passes, back": {
			"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"},
		},
		"UTC knows no change": {
			"30 2 * * *", "UTC", "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"},
		},
		"a zone south of the equator": {
			"30 2 * * *", "Australia/Sydney", "2026-10-02T20:00:00Z", "2026-10-04T20:00:00Z",
			[]string{"2026-10-03T16:00:00Z", "2026-10-04T15:30:00Z"},
		},
		"every six hours": {
			"@every 6h", "Europe/Berlin", "2026-03-28T20:00:00Z", "2026-03-29T09:00:00Z",
			[]string{"2026-03-29T02:00:00Z", "2026-03-29T08:00:00Z"},
		},
		"the days of a week": {
			"0 6 * * mon-fri", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z",
			[]string{"2026-03-30T04:00:00Z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots, err := schedule.ParseSlots(model.Schedule{Cron: tt.cron, TimeZone: tt.zone})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			until := at(tt.until)
			for next := slots.Next(at(tt.from)); !next.After(until); next = slots.Next(next) {
				got = append(got, next.Format(time.RFC3339))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			// From whichever moment one asks, the next slot is one of these.
			for minute := at(tt.from); minute.Before(until); minute = minute.Add(7 * time.Minute) {
				if strings.HasPrefix(tt.cron, "@every") {
					break // counts from the moment that one asks at
				}
				next := slots.Next(minute)
				if want := firstAfter(tt.want, minute); want != "" && next.Format(time.RFC3339) != want {
					t.Fatalf("after %s comes %s, want %s", minute, next, want)
				}
			}
		})
	}
}

func firstAfter(slots []string, t time.Time) string {
	for _, s := range slots {
		if at(s).After(t) {
			return s
		}
	}
	return ""
}

func TestDueSlots(t *testing.T) {
	t.Parallel()
	slots, err := schedule.ParseSlots(model.Schedule{Cron: "0 * * * *", TimeZone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	n, last, before := slots.Due(at("2026-01-01T00:00:00Z"), at("2026-01-01T03:00:00Z"))
	if n != 3 || !last.Equal(at("2026-01-01T03:00:00Z")) || !before.Equal(at("2026-01-01T02:00:00Z")) {
		t.Errorf("got %d, %s, %s", n, last, before)
	}
	if n, _, _ := slots.Due(at("2026-01-01T03:00:00Z"), at("2026-01-01T03:59:59Z")); n != 0 {
		t.Errorf("%d slots are due between two", n)
	}
}

func TestWrongSchedules(t *testing.T) {
	t.Parallel()
	s := schedule.New(schedule.Config{Jobs: []schedule.Job{schedule.BackupJob(nil), schedule.DriftJob(nil)}})
	good := model.Schedule{
		Cron: "@daily", TimeZone: "UTC", Job: model.ScheduledJob{Name: "backup", Params: map[string]any{"keep": 3}},
	}
	if f := s.Check(good); len(f) > 0 {
		t.Errorf("a good schedule: %v", f)
	}
	for name, tt := range map[string]struct {
		change func(*model.Schedule)
		want   string
	}{
		"no cron": {
			func(d *model.Schedule) { d.Cron = "often" }, `spec.cron: "often" is not a time to come back`,
		},
		"a zone inside": {
			func(d *model.Schedule) { d.Cron = "TZ=UTC 0 0 * * *" },
			"spec.cron: has a time zone in it (write the zone in spec.timeZone)",
		},
		"too often": {func(d *model.Schedule) { d.Cron = "@every 5s" }, "is too often"},
		"never":     {func(d *model.Schedule) { d.Cron = "0 0 30 2 *" }, "never comes"},
		"no zone": {
			func(d *model.Schedule) { d.TimeZone = "Berlin" }, `spec.timeZone: "Berlin" is not a time zone`,
		},
		"no job": {
			func(d *model.Schedule) { d.Job.Name = "bakup" },
			`spec.job.name: there is no job "bakup" (one of backup, drift)`,
		},
		"wrong number": {
			func(d *model.Schedule) { d.Job.Params = map[string]any{"keep": 0} },
			"spec.job.params.keep: 0 is not allowed (a whole number from 1 to 1000)",
		},
		"no number": {
			func(d *model.Schedule) { d.Job.Params = map[string]any{"keep": "x"} },
			"spec.job.params.keep: x is not allowed",
		},
		"unknown": {
			func(d *model.Schedule) { d.Job.Params = map[string]any{"kept": 1} },
			"spec.job.params.kept: is not a parameter of the job (known: target, keep)",
		},
		"no parameters": {
			func(d *model.Schedule) { d.Job = model.ScheduledJob{Name: "drift", Params: map[string]any{"a": 1}} },
			"this job has no parameters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := good
			tt.change(&d)
			if err := director.Invalid("t", "m", s.Check(d)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestParseSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "12h": 12 * time.Hour, "d": 0, "1.5d": 0, "-3d": 0, "x": 0, "3dd": 0,
	} {
		got, err := schedule.ParseSpan(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

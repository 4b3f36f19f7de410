package api_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/schedules"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/wire"
)

// withSchedules gives the API schedules with the job "prune", which does nothing.
func withSchedules(t *testing.T, c *api.Config, documents string) *schedule.Scheduler {
	t.Helper()
	db := apitest.OpenStore(t)
	servicetest.Put(t, db, documents)
	nothing := func(context.Context, director.ScheduleRun) (schedule.Result, error) { return schedule.Result{}, nil }
	scheduler := schedule.New(schedule.Config{Store: db, Jobs: []schedule.Job{{
		Name: "prune", Prepare: func(p *schedule.Params) schedule.Work {
			p.Span("logs", 0, 0)
			return nothing
		},
	}}})
	t.Cleanup(func() {
		if err := scheduler.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c.Schedules = schedules.New(db, scheduler, time.Now)
	return scheduler
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	var scheduler *schedule.Scheduler
	b := setup(t, func(c *api.Config) {
		scheduler = withSchedules(t, c, `apiVersion: kaas/v1
kind: Schedule
metadata: {name: prune}
spec: {cron: 15 3 * * *, job: {name: prune, params: {logs: 30d}}}
`)
	})
	var list wire.Schedules
	b.do(t, http.MethodGet, "/schedules", "", http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].Job != "prune" || list.Items[0].TimeZone != "UTC" ||
		list.Items[0].Next.Before(time.Now()) || list.Items[0].Next.UTC().Format(time.TimeOnly) != "03:15:00" ||
		list.Items[0].DeadlineSeconds != 3600 || list.Items[0].Params["logs"] != "30d" {
		t.Errorf("got %+v", list)
	}
	var run wire.ScheduleRun
	resp := b.send(t, http.MethodPost, "/schedules/prune/run", "")
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") != wire.Prefix+"/schedules/prune" {
		t.Errorf("run: %s at %q", resp.Status, resp.Header.Get("Location"))
	}
	scheduler.Wait()
	b.do(t, http.MethodPost, "/schedules/prune/run", "", http.StatusAccepted, &run)
	scheduler.Wait()
	if run.Status != "running" || run.By != "admin" || run.FinishedAt != nil {
		t.Errorf("got %+v", run)
	}
	var one wire.Schedule
	b.do(t, http.MethodPost, "/schedules/prune/suspend", "", http.StatusOK, &one)
	if !one.Suspended || one.Next != nil || len(one.Runs) != 1 {
		t.Errorf("suspended: %+v", one)
	}
	b.do(t, http.MethodPost, "/schedules/prune/resume", "", http.StatusOK, &one)
	b.do(t, http.MethodGet, "/schedules/prune", "", http.StatusOK, &one)
	if one.Suspended || len(one.Runs) != 2 || one.Runs[0].Status != "done" {
		t.Errorf("resumed: %+v", one)
	}
	for _, path := range []string{"/run", "/suspend", "/resume"} {
		b.do(t, http.MethodPost, "/schedules/none"+path, "", http.StatusNotFound, nil)
	}
}

// Schedules are the administrators' own.
func TestSchedulesOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	user := director.Actor{User: "u", Role: director.RoleUser}
	for _, action := range []director.Action{director.ActRead, director.ActRun} {
		if auth.Can(user, action, director.Object{Kind: "Schedule", Name: "prune"}) {
			t.Errorf("a user may %s", action)
		}
	}
	b.token = ""
	if p := problemOf(
		t, b.send(t, http.MethodPost, "/schedules/prune/run", ""),
	); p.Kind != string(director.KindUnauthenticated) {
		t.Errorf("got %+v", p)
	}
}

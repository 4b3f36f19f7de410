package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director/wire"
)

// Schedules lists the schedules with their next slots and last runs.
func (c *providerCalls) Schedules(ctx context.Context) ([]wire.Schedule, error) {
	var l wire.Schedules
	err := c.call(ctx, request{method: http.MethodGet, path: "/schedules"}, &l)
	return l.Items, err
}

// Schedule returns one schedule with its last runs.
func (c *providerCalls) Schedule(ctx context.Context, name string) (wire.Schedule, error) {
	var s wire.Schedule
	err := c.call(ctx, request{method: http.MethodGet, path: "/schedules/" + name}, &s)
	return s, err
}

// RunSchedule runs the job of a schedule now. It returns when the run has begun.
func (c *providerCalls) RunSchedule(ctx context.Context, name string) (wire.ScheduleRun, error) {
	var r wire.ScheduleRun
	err := c.call(ctx, request{method: http.MethodPost, path: "/schedules/" + name + "/run"}, &r)
	return r, err
}

// SuspendSchedule lets no slot of a schedule run, or lets them run again.
func (c *providerCalls) SuspendSchedule(ctx context.Context, name string, suspend bool) (wire.Schedule, error) {
	verb := "resume"
	if suspend {
		verb = "suspend"
	}
	var s wire.Schedule
	err := c.call(ctx, request{method: http.MethodPost, path: "/schedules/" + name + "/" + verb}, &s)
	return s, err
}

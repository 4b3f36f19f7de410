package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/schedules"
	"github.com/director-kaas/kaas/director/wire"
)

// Schedules is what the API offers of schedules besides their documents. All methods return *director.Error and are
// safe for concurrent use.
type Schedules interface {
	// List lists every schedule by name, each with its newest runs, at most so many.
	List(ctx context.Context, runs int) ([]schedules.View, error)
	// Get returns one, or not_found.
	Get(ctx context.Context, name string, runs int) (schedules.View, error)
	// Run runs its job now, also if it is suspended; conflict while it runs.
	Run(ctx context.Context, actor, name string) (director.ScheduleRun, error)
	// Suspend lets no slot run any more, or lets them run again. No error if it is so already.
	Suspend(ctx context.Context, actor, name string, suspend bool) (schedules.View, error)
}

const kindSchedule = string(model.KindSchedule)

type scheduleInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the schedule."`
}

// scheduleRuns is how many runs a list shows of each schedule, and how many one schedule shows.
const (
	scheduleRunsInList = 3
	scheduleRuns       = 50
)

func (s *planRoutes) schedules(api huma.API) {
	tags := []string{"Schedules"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-schedules", Method: http.MethodGet, Path: "/schedules", Tags: tags,
		Summary: "List the schedules with their next slots and last runs",
	}, director.ActRead, kindSchedule,
		func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Schedules], error) {
			views, err := s.Schedules.List(ctx, scheduleRunsInList)
			if err != nil {
				return nil, err
			}
			list := wire.Schedules{Items: make([]wire.Schedule, len(views))}
			for i, v := range views {
				list.Items[i] = scheduleOf(v)
			}
			return &body[wire.Schedules]{list}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-schedule", Method: http.MethodGet, Path: "/schedules/{name}", Tags: tags,
		Summary: "Get a schedule with its last runs",
		Errors:  []int{http.StatusNotFound},
	}, director.ActRead, kindSchedule,
		func(ctx context.Context, _ director.Actor, in *scheduleInput) (*body[wire.Schedule], error) {
			v, err := s.Schedules.Get(ctx, in.Name, scheduleRuns)
			if err != nil {
				return nil, err
			}
			return &body[wire.Schedule]{scheduleOf(v)}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "run-schedule", Method: http.MethodPost, Path: "/schedules/{name}/run", Tags: tags,
		Summary: "Run the job of a schedule now",
		Description: "Outside of its slots, also if it is suspended. The run is the newest of the schedule, at the " +
			"place in Location.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActRun, kindSchedule,
		func(ctx context.Context, a director.Actor, in *scheduleInput) (*created[wire.ScheduleRun], error) {
			r, err := s.Schedules.Run(ctx, a.User, in.Name)
			if err != nil {
				return nil, err
			}
			return &created[wire.ScheduleRun]{
				Location: prefixed("/schedules/" + in.Name), Body: wire.ScheduleRunOf(r),
			}, nil
		})
	s.suspension(api, tags, "suspend", true, "Let no slot of a schedule run")
	s.suspension(api, tags, "resume", false, "Let the slots of a schedule run again")
}

// suspension registers one of the two verbs that suspend and resume a schedule.
func (s *planRoutes) suspension(api huma.API, tags []string, verb string, suspend bool, summary string) {
	operation(s.server, api, huma.Operation{
		OperationID: verb + "-schedule", Method: http.MethodPost, Path: "/schedules/{name}/" + verb, Tags: tags,
		Summary:     summary,
		Description: "What was due while a schedule was suspended is not made up for. A run that works continues.",
		Errors:      []int{http.StatusNotFound},
	}, director.ActRun, kindSchedule,
		func(ctx context.Context, a director.Actor, in *scheduleInput) (*body[wire.Schedule], error) {
			v, err := s.Schedules.Suspend(ctx, a.User, in.Name, suspend)
			if err != nil {
				return nil, err
			}
			return &body[wire.Schedule]{scheduleOf(v)}, nil
		})
}

func scheduleOf(v schedules.View) wire.Schedule {
	spec := v.Document.Schedule
	out := wire.Schedule{
		Name: v.Document.Metadata.Name, Generation: v.Document.Generation, Cron: spec.Cron, TimeZone: spec.TimeZone,
		Job:    spec.Job.Name,
		Params: spec.Job.Params, Suspended: spec.Suspend, DeadlineSeconds: wire.Seconds(time.Duration(spec.Deadline)),
		Next: wire.Optional(v.Next),
		Runs: make([]wire.ScheduleRun, len(v.Runs)),
	}
	for i, r := range v.Runs {
		out.Runs[i] = wire.ScheduleRunOf(r)
	}
	return out
}

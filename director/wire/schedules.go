package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// Schedule is a schedule with what it did.
type Schedule struct {
	Name            string         `json:"name"`
	Generation      int64          `json:"generation" doc:"Of its document."`
	Cron            string         `json:"cron" doc:"When it is due."`
	TimeZone        string         `json:"time_zone" doc:"Of cron."`
	Job             string         `json:"job" doc:"What is done."`
	Params          map[string]any `json:"params,omitempty" doc:"Parameters of the job."`
	Suspended       bool           `json:"suspended" doc:"No slot is run."`
	DeadlineSeconds float64        `json:"deadline_seconds" doc:"How late a slot is still run."`
	Next            *time.Time     `json:"next,omitempty" doc:"The next slot; absent if none will come."`
	Runs            []ScheduleRun  `json:"runs" doc:"The newest first."`
}

// ScheduleRun is the record of a slot.
type ScheduleRun struct {
	Slot       time.Time  `json:"slot" doc:"When it was due, or asked for."`
	Attempt    int        `json:"attempt" doc:"From 1; a repeatable job whose director died has more."`
	Job        string     `json:"job"`
	By         string     `json:"by,omitempty" doc:"Who asked for it; absent for a slot of the schedule."`
	Status     string     `json:"status"`
	Missed     int        `json:"missed,omitempty" doc:"How many slots a missed run is about."`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Message    string     `json:"message,omitempty" doc:"What was done, or what went wrong."`
	Hint       string     `json:"hint,omitempty"`
	Plan       string     `json:"plan,omitempty" doc:"Id of the plan that it made."`
}

// Schedules is a list of schedules.
type Schedules struct {
	Items []Schedule `json:"items"`
}

// ScheduleRunOf converts a run.
func ScheduleRunOf(r director.ScheduleRun) ScheduleRun {
	return ScheduleRun{
		Slot: r.Slot.UTC(), Attempt: r.Attempt, Job: r.Job, By: r.By, Status: string(r.Status), Missed: r.Missed,
		StartedAt: Optional(r.Started), FinishedAt: Optional(r.Finished), Message: r.Message, Hint: r.Hint,
		Plan: r.Plan,
	}
}

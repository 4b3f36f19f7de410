package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *clusterCommands) schedulesCommand() *cobra.Command {
	form := formTable
	list := a.connected(func(cmd *cobra.Command, api *client.Client, _ []string) error {
		items, err := api.Schedules(cmd.Context())
		if err != nil {
			return err
		}
		return a.show(form, wire.Schedules{Items: items}, func() { printSchedules(a.out, items, time.Now()) })
	})
	cmd := &cobra.Command{
		Use: "schedules", Short: "List, run and suspend what the director does at certain times", RunE: list,
		Args: exact(),
		Long: "List what the director does at certain times, with the next slot and how the last run ended. " +
			"Schedules are documents: directorctl apply\n" +
			"makes and changes them, directorctl delete removes them.",
	}
	outputFlag(cmd, &form)
	listCmd := &cobra.Command{
		Use: "list", Short: "List the schedules with their next slots and last runs", RunE: list, Args: exact(),
	}
	outputFlag(listCmd, &form)
	showCmd := &cobra.Command{
		Use: "show NAME", Short: "Show a schedule with its last runs", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, scheduleNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			s, err := api.Schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(form, s, func() { printSchedule(a.out, s, time.Now()) })
		}),
	}
	outputFlag(showCmd, &form)
	cmd.AddCommand(listCmd, showCmd, a.runScheduleCommand(), a.suspendCommand(
		"suspend", "Let no slot of a schedule run", true,
	),
		a.suspendCommand("resume", "Let the slots of a schedule run again", false))
	return cmd
}

func scheduleNames(ctx context.Context, c *client.Client, _ []string) []string {
	items, _ := c.Schedules(ctx) // no completion is better than an error in the middle of a line
	names := make([]string, len(items))
	for i, s := range items {
		names[i] = s.Name + "\t" + s.Job + " " + s.Cron
	}
	return names
}

func (a *clusterCommands) runScheduleCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Run the job of a schedule now", Args: exact("NAME"),
		ValidArgsFunction: a.complete(0, scheduleNames),
		Long:              "Run the job of a schedule now, in addition to its times, also if it is suspended.",
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			r, err := api.RunSchedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !wait {
				say(a.out, "Schedule %s runs; see how it ends: directorctl schedules show %s\n", args[0], args[0])
				return nil
			}
			return a.awaitRun(cmd.Context(), api, args[0], r)
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the run has ended")
	return cmd
}

// awaitRun asks until the run has ended, and returns how.
func (a *clusterCommands) awaitRun(ctx context.Context, api *client.Client, name string, run wire.ScheduleRun) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := api.Schedule(ctx, name)
		if err != nil {
			return err
		}
		for _, r := range s.Runs {
			if !r.Slot.Equal(run.Slot) {
				continue
			}
			switch director.RunStatus(r.Status) {
			case director.RunRunning:
			case director.RunDone:
				say(a.out, "Schedule %s is done: %s\n", name, plain(r.Message))
				return nil
			default:
				return &director.Error{
					Kind: director.KindInternal, Op: "directorctl.schedule",
					Msg: "the run of " + name + " is " + r.Status + ": " + r.Message, Hint: r.Hint,
				}
			}
			break // of several attempts the newest
		}
		select {
		case <-ctx.Done():
			return interrupted("the run continues; show it with: directorctl schedules show %s", name)
		case <-tick.C:
		}
	}
}

func (a *clusterCommands) suspendCommand(verb, short string, suspend bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: exact("NAME"), ValidArgsFunction: a.complete(0, scheduleNames),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			s, err := api.SuspendSchedule(cmd.Context(), args[0], suspend)
			if err != nil {
				return err
			}
			switch {
			case s.Suspended:
				say(
					a.out, "Schedule %s is suspended; directorctl schedules resume %s lets it run again.\n", s.Name,
					s.Name,
				)
			case s.Next != nil:
				say(a.out, "Schedule %s runs next at %s.\n", s.Name, inZone(*s.Next, s.TimeZone))
			default:
				say(a.out, "Schedule %s is not suspended.\n", s.Name)
			}
			return nil
		}),
	}
}

func printSchedules(w io.Writer, items []wire.Schedule, now time.Time) {
	table(w, "NAME JOB CRON ZONE NEXT LAST AGE", func(row func(...string)) {
		for _, s := range items {
			next, last, ago := "suspended", "", ""
			if !s.Suspended {
				next = ""
				if s.Next != nil {
					next = inZone(*s.Next, s.TimeZone)
				}
			}
			if len(s.Runs) > 0 {
				last, ago = s.Runs[0].Status, age(now.Sub(s.Runs[0].Slot))
			}
			row(s.Name, s.Job, s.Cron, s.TimeZone, next, last, ago)
		}
	})
}

// inZone renders a slot as the wall clock of the schedule shows it.
func inZone(t time.Time, zone string) string {
	if loc, err := time.LoadLocation(zone); err == nil {
		t = t.In(loc)
	}
	return t.Format("2006-01-02 15:04 MST")
}

func printSchedule(w io.Writer, s wire.Schedule, now time.Time) {
	facts(w, func(line func(name, text string)) {
		line("Schedule", s.Name)
		line("Job", s.Job)
		line("When", s.Cron+" ("+s.TimeZone+")")
		line("Deadline", wire.Span(s.DeadlineSeconds).String())
		switch {
		case s.Suspended:
			line("Next", "suspended; directorctl schedules resume "+s.Name)
		case s.Next != nil:
			line("Next", inZone(*s.Next, s.TimeZone))
		}
	})
	if len(s.Runs) == 0 {
		sayLine(w, "\nNo runs yet.")
		return
	}
	sayLine(w, "\nRuns")
	table(w, "SLOT STATUS TIME BY PLAN MESSAGE", func(row func(...string)) {
		for _, r := range s.Runs {
			row(inZone(r.Slot, s.TimeZone), runStatus(r), runTime(r, now), r.By, r.Plan, clip(r.Message, 80))
		}
	})
	if r := s.Runs[0]; strings.Contains(r.Message, "\n") || len(r.Message) > 80 || r.Hint != "" {
		say(w, "\nLast run: %s\n", plain(r.Message))
		if r.Hint != "" {
			say(w, "  hint: %s\n", r.Hint)
		}
	}
}

func runStatus(r wire.ScheduleRun) string {
	switch {
	case r.Missed > 1:
		return r.Status + " (" + strconv.Itoa(r.Missed) + " slots)"
	case r.Attempt > 1:
		return r.Status + " (attempt " + strconv.Itoa(r.Attempt) + ")"
	}
	return r.Status
}

func runTime(r wire.ScheduleRun, now time.Time) string {
	if r.StartedAt == nil {
		return ""
	}
	if r.FinishedAt != nil {
		now = *r.FinishedAt
	}
	return span(now.Sub(*r.StartedAt))
}

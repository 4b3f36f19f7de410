package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (a *app) followCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "follow PLAN",
		Short: "Watch a plan until it ends",
		Long: "Watch a plan until it ends: its steps, their times, and what each waits for. On a terminal the view " +
			"is redrawn, elsewhere every event\n" +
			"is a line. An interrupt stops following; the plan continues.",
		Args:              exact("PLAN"),
		ValidArgsFunction: a.complete(0, planIDs),
		RunE: a.connected(func(cmd *cobra.Command, api *client.Client, args []string) error {
			p, err := api.Plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if plan.Status(p.Status) == plan.StatusPlanned {
				say(a.err, "plan %s has not started yet; directorctl start %s starts it\n", p.ID, p.ID)
			}
			return a.follow(cmd.Context(), api, p)
		}),
	}
}

// errParked ends the following of a plan that waits for a person.
var errParked = errors.New("parked")

// follow shows the plan until it ends or needs a person, and returns how it ended.
func (a *app) follow(ctx context.Context, api *client.Client, p wire.Plan) error {
	view := a.newView(p)
	view.begin()
	status := p.Status
	if plan.Status(status) != plan.StatusParked && !wire.Ended(status) {
		var err error
		status, err = a.watch(ctx, api, view)
		if ctx.Err() != nil {
			view.end()
			return goesOn(p.ID)
		}
		if err != nil {
			view.end()
			return err
		}
	}
	view.end()
	err := a.outcome(view.plan(), status)
	a.printKept(ctx, api, view.plan())
	return err
}

// goesOn is what a person is told who stops waiting.
func goesOn(id string) error {
	return interrupted(
		"plan %s continues; follow it: directorctl follow %s\nread its logs: directorctl logs %s -f\nstop it: "+
			"directorctl cancel %s", id, id, id, id)
}

// watch feeds the view with events until the plan ends, and returns its status.
func (a *app) watch(ctx context.Context, api *client.Client, view view) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := view.plan()
	f := newFeed()
	go f.run(ctx, api, p)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case e := <-f.events:
			if err := view.event(e); err != nil {
				// This version does not know the event: read the state from the plan itself.
				fresh, err := api.Plan(ctx, p.ID)
				if err != nil {
					return "", err
				}
				view.replace(fresh)
			}
		case note := <-f.notes:
			view.note(note)
		case <-tick.C:
			view.tick()
		case r := <-f.done:
			if errors.Is(r.err, errParked) {
				return string(plan.StatusParked), nil
			}
			return r.status, r.err
		}
	}
}

// feed carries a plan's events from the connection to the view.
type feed struct {
	events chan wire.Event
	notes  chan string // what happens to the connection
	done   chan followed
}

// followed is how the following of a plan ended.
type followed struct {
	status string
	err    error
}

func newFeed() *feed {
	return &feed{events: make(chan wire.Event), notes: make(chan string), done: make(chan followed, 1)}
}

// run follows the plan until it ends or parks, or ctx ends.
func (f *feed) run(ctx context.Context, api *client.Client, p wire.Plan) {
	tell := func(note string) {
		select {
		case f.notes <- note:
		case <-ctx.Done():
		}
	}
	status, err := api.Follow(ctx, p.ID, p.LastEvent, func(e wire.Event) error {
		select {
		case f.events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
		if plan.EventKind(e.Kind) == plan.PlanParked {
			return errParked
		}
		return nil
	}, func(g wire.EventGap) {
		tell(fmt.Sprintf("%d events are not kept any more", g.Through-g.After))
	}, func(err error) {
		note := "connected again"
		if err != nil {
			note = "the connection is lost, trying again: " + err.Error()
		}
		tell(note)
	})
	f.done <- followed{status, err}
}

// outcome says how the plan ended.
func (a *app) outcome(p wire.Plan, status string) error {
	took := ""
	if p.StartedAt != nil && p.FinishedAt != nil {
		took = " in " + span(p.FinishedAt.Sub(*p.StartedAt))
	}
	e := &planError{id: p.ID, status: status, message: p.Message, hint: p.Hint}
	switch plan.Status(status) {
	case plan.StatusDone:
		say(a.out, "Plan %s is done%s.\n", p.ID, took)
		return nil
	case plan.StatusParked:
		e.code = codePlanParked
		e.hint = joinHints(p.Hint, fmt.Sprintf("when it is settled: directorctl retry %s --wait", p.ID))
	case plan.StatusFailed:
		e.code = codePlanFailed
		e.hint = joinHints(p.Hint, fmt.Sprintf("read why: directorctl logs %s --failed", p.ID))
		if !wentBack(p) { // a plan that rolled a node back is not retried
			e.hint = joinHints(
				e.hint,
				fmt.Sprintf("then continue: directorctl retry %s --wait, or give up: directorctl discard "+
					"%s", p.ID, p.ID),
			)
		}
	default:
		e.code = codePlanStopped
		if plan.Status(status) == plan.StatusCancelled {
			e.hint = joinHints(
				p.Hint,
				fmt.Sprintf("continue: directorctl retry %s --wait, or give up: directorctl discard %s", p.ID, p.ID),
			)
		}
	}
	return e
}

// wentBack reports whether the plan rolled a node back.
func wentBack(p wire.Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s wire.Step) bool {
		return len(s.Undoes) > 0 && s.Status == string(plan.Done)
	})
}

func joinHints(first, second string) string {
	if first == "" {
		return second
	}
	return first + "\n" + second
}

// view shows a plan that runs.
type view interface {
	begin()
	event(e wire.Event) error
	replace(p wire.Plan)
	note(text string)
	tick()
	end()
	plan() wire.Plan
}

func (a *app) newView(p wire.Plan) view {
	if a.outIsTerminal() {
		return &screen{out: a.out, now: time.Now, p: p, size: func() (int, int) {
			w, h, err := term.GetSize(int(a.out.Fd()))
			if err != nil || w < 20 || h < 5 {
				return 80, 24
			}
			return w, h
		}}
	}
	return &lines{out: a.out, now: time.Now, p: p, waits: make(map[string]string)}
}

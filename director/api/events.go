package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

const (
	typeEvents  = "text/event-stream"
	typeArchive = "application/gzip"
	typeLines   = "application/x-ndjson"
	heartbeat   = 15 * time.Second // silence after which a stream says that it lives
	maxWait     = 50 * time.Second // of a poll; below the write timeout
)

type eventsInput struct {
	ID        string   `path:"id" maxLength:"64" doc:"Id of the plan."`
	After     int64    `query:"after" minimum:"0" doc:"Only events with a greater number."`
	Wait      int      `query:"wait" minimum:"0" maximum:"50" doc:"Seconds to wait for the first event if there is none yet; not for streams."`
	Kind      []string `query:"kind" maxItems:"20" doc:"Only events of these kinds, separated by commas; not for streams, and without waiting."`
	Step      string   `query:"step" maxLength:"200" doc:"Only events of this step; not for streams, and without waiting."`
	Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most so many; ask again after last for what follows."`
	Accept    string   `header:"Accept" doc:"application/json for one answer, text/event-stream for a stream."`
	LastEvent int64    `header:"Last-Event-ID" minimum:"0" doc:"As after, for streams that go on."`
}

type logInput struct {
	ID      string `path:"id" maxLength:"64" doc:"Id of the plan."`
	Step    string `query:"step" required:"true" maxLength:"200" doc:"Id of the step."`
	Attempt int    `query:"attempt" minimum:"0" doc:"0 or left out: the latest."`
	Offset  int64  `query:"offset" minimum:"0" doc:"Skip so many bytes."`
}

func (s *server) events(api huma.API) {
	tags := []string{"Plans"}
	operation(s, api, sends(describe[wire.Events](api, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/plans/{id}/events", Tags: tags,
		Summary: "Follow what happens in a plan",
		Description: "A stream sends each event with its number as id, and a last message of the type end when the " +
			"plan has ended. It can be " +
			"taken up again with Last-Event-ID. Where events are not kept any more, a message of the type gap says " +
			"which.",
		Errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
	}, typeEvents), map[string]*huma.Schema{
		"event": schemaOf[wire.Event](api), "gap": schemaOf[wire.EventGap](api), "end": schemaOf[wire.End](api),
	}), director.ActRead, kindPlan,
		func(ctx context.Context, _ director.Actor, in *eventsInput) (*anyOf, error) {
			after := max(in.After, in.LastEvent)
			if strings.Contains(in.Accept, typeEvents) {
				return s.follow(ctx, in.ID, after)
			}
			out, err := s.poll(ctx, in, after)
			if err != nil {
				return nil, err
			}
			return jsonBody(api, out), nil
		})
	op := huma.Operation{
		OperationID: "get-log", Method: http.MethodGet, Path: "/plans/{id}/log", Tags: tags,
		Summary: "Read the log of a step",
		Description: "Lines of JSON up to where the log ends now. To follow it, ask again with the offset increased " +
			"by the bytes received.",
		Errors: []int{http.StatusNotFound}, Responses: linesResponse(schemaOf[wire.LogRecord](api)),
	}
	operation(s, api, op, director.ActRead, kindPlan,
		func(ctx context.Context, _ director.Actor, in *logInput) (*anyOf, error) {
			r, err := s.Journal.StepLog(ctx, in.ID, in.Step, in.Attempt, in.Offset)
			if err != nil {
				return nil, err
			}
			return &anyOf{Body: func(ctx huma.Context) {
				defer func() { _ = r.Close() }()
				unlimited(ctx)
				ctx.SetHeader("Content-Type", typeLines)
				ctx.SetStatus(http.StatusOK)
				_, _ = io.Copy(ctx.BodyWriter(), r) // the status is out: a failure is a caller who has gone
			}}, nil
		})
	s.archive(api)
}

// archive is a read that tells more than the plan: how the director is set up, and what its runs were given.
func (s *server) archive(api huma.API) {
	operation(s, api, huma.Operation{
		OperationID: "get-archive", Method: http.MethodGet, Path: "/plans/{id}/archive", Tags: []string{"Plans"},
		Summary: "Download all that is known of a plan, for support",
		Description: "A tar.gz with the plan, its events, the logs of all attempts, the inventory, the versions of " +
			"all parts and the director's " +
			"configuration. Secrets are left out. It is noted in the audit trail.",
		Errors: []int{http.StatusNotFound}, Responses: textResponse(typeArchive, "The archive."),
	}, director.ActInventory, kindPlan,
		func(ctx context.Context, a director.Actor, in *planRef) (*anyOf, error) {
			write, err := s.Archives.Archive(ctx, a.User, in.ID)
			if err != nil {
				return nil, err
			}
			return &anyOf{Body: func(hctx huma.Context) {
				unlimited(hctx)
				hctx.SetHeader("Content-Type", typeArchive)
				hctx.SetHeader("Content-Disposition", `attachment; filename="plan-`+in.ID+`.tar.gz"`)
				hctx.SetStatus(http.StatusOK)
				humagin.Unwrap(hctx).Writer.Flush() // what breaks off from here on is a broken answer, and not none
				if err := write(hctx.BodyWriter()); err != nil {
					s.Log.ErrorContext(
						ctx, "archive broke off", "request_id", requestID(ctx), "plan_id", in.ID, "err", err,
					)
					panic(http.ErrAbortHandler) // half an archive must not look like a whole one
				}
			}}, nil
		})
}

// poll answers with the events that are there, or waits for the first one.
func (s *server) poll(ctx context.Context, in *eventsInput, after int64) (out wire.Events, err error) {
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	status, _, err := s.Journal.Progress(ctx, in.ID)
	if err != nil {
		return out, err
	}
	wait := min(time.Duration(in.Wait)*time.Second, maxWait)
	if status.Ended() {
		wait = 0
	}
	var events []plan.Event
	if len(in.Kind) > 0 || in.Step != "" {
		q := journal.EventQuery{After: after, Step: in.Step, Limit: in.Limit}
		for _, k := range in.Kind {
			q.Kinds = append(q.Kinds, plan.EventKind(k))
		}
		events, out.Last, err = s.Journal.SearchEvents(ctx, in.ID, q)
	} else {
		events, err = s.Journal.Events(ctx, in.ID, after, wait)
		events = events[:min(len(events), in.Limit)]
		if out.Last = after; len(events) > 0 {
			out.Last = events[len(events)-1].Seq
		}
	}
	if err != nil {
		return out, err
	}
	out.Items = wire.EventsOf(events)
	if len(in.Kind) == 0 && in.Step == "" {
		out.Gap = gapBefore(out.Items, after)
	}
	var seq int64
	status, seq, err = s.Journal.Progress(ctx, in.ID)
	out.Status = string(status)
	if err == nil && status.Ended() && out.Last < seq && len(events) == 0 {
		var rest []plan.Event
		if rest, err = s.Journal.Events(ctx, in.ID, out.Last, 0); err == nil && len(rest) == 0 {
			out.Gap, out.Last = &wire.EventGap{After: after, Through: seq}, seq
		}
	}
	out.Ended = status.Ended() && out.Last >= seq
	return out, err
}

// gapBefore returns what is missing between the number and the events that were asked for behind it; nil if nothing is.
func gapBefore(events []wire.Event, after int64) *wire.EventGap {
	if len(events) == 0 || events[0].Seq <= after+1 {
		return nil
	}
	return &wire.EventGap{After: after, Through: events[0].Seq - 1}
}

// untilStop ends with the request, with the server, or with the token of the request: a disabled user gets nothing more
// of what the request asked for.
func (s *server) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.Stopping, cancel)
	if token := note(ctx).token; token != "" {
		go s.untilRevoked(ctx, cancel, token)
	}
	return ctx, func() { stop(); cancel() }
}

// untilRevoked cancels when the token is no longer good, or when its user may no longer see what the request asked for.
// A database that cannot be asked is no reason to.
func (s *server) untilRevoked(ctx context.Context, cancel context.CancelFunc, token director.Secret) {
	tick := time.NewTicker(s.Recheck)
	defer tick.Stop()
	began := actorOf(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := s.Auth.Recheck(ctx, token)
		switch {
		case director.KindOf(err) == director.KindUnauthenticated:
			cancel()
			return
		case err != nil:
			continue
		}
		if now.Role != began.Role || !slices.Equal(now.Grants, began.Grants) || s.lost(ctx, now) {
			cancel()
			return
		}
	}
}

// patient gives an operation planTimeout instead of the server's write timeout.
func patient(ctx huma.Context, next func(huma.Context)) {
	// a writer without deadlines has none to move
	_ = http.NewResponseController(humagin.Unwrap(ctx).Writer).SetWriteDeadline(time.Now().Add(planTimeout))
	next(ctx)
}

// unlimited lifts the server's write timeout from a long answer.
func unlimited(ctx huma.Context) {
	// a writer without deadlines has none to lift
	_ = http.NewResponseController(humagin.Unwrap(ctx).Writer).SetWriteDeadline(time.Time{})
}

// follow sends events as they happen until the plan has ended. The first look happens before the status is out, so that
// an unknown plan is a problem and not a stream.
func (s *server) follow(ctx context.Context, id string, after int64) (*anyOf, error) {
	events, err := s.Journal.Events(ctx, id, after, 0)
	if err != nil {
		return nil, err
	}
	return s.sse(func(ctx context.Context, w *sse) error {
		for {
			items := wire.EventsOf(events)
			if gap := gapBefore(items, after); gap != nil {
				w.send("gap", gap.Through, gap)
			}
			for _, e := range items {
				w.send("event", e.Seq, e)
				after = e.Seq
			}
			if err := w.flush(); err != nil {
				return err
			}
			status, seq, err := s.Journal.Progress(ctx, id)
			if err != nil {
				return err
			}
			if status.Ended() && after < seq {
				// Either there is more, or it is not kept any more.
				if events, err = s.Journal.Events(ctx, id, after, 0); err != nil {
					return err
				}
				if len(events) > 0 {
					continue
				}
				w.send("gap", seq, wire.EventGap{After: after, Through: seq})
				after = seq
			}
			if status.Ended() {
				w.send("end", 0, wire.End{Status: string(status)})
				return w.flush()
			}
			if events, err = s.Journal.Events(ctx, id, after, heartbeat); err != nil {
				return err
			}
			if len(events) == 0 {
				w.alive(0)
			}
		}
	}), nil
}

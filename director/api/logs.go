package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/wire"
)

// Logs is what the API offers of the logs of steps, by lines. Errors: not_found, also for a log that another director
// has, with its name.
type Logs interface {
	// LogLines returns a window of a step's log.
	LogLines(ctx context.Context, plan string, q journal.LogQuery) (journal.LogWindow, error)
	// SearchLog returns lines of a step's log that fit. It ends after a while, and says where to continue.
	SearchLog(ctx context.Context, plan string, q journal.LogSearch) (journal.Hits, error)
}

type logLinesInput struct {
	ID        string `path:"id" maxLength:"64" doc:"Id of the plan."`
	Step      string `query:"step" required:"true" maxLength:"200" doc:"Id of the step."`
	Attempt   int    `query:"attempt" minimum:"0" doc:"0 or left out: the latest."`
	From      int64  `query:"from" minimum:"1" doc:"The first line, from 1."`
	Tail      int64  `query:"tail" minimum:"1" maximum:"1000000" default:"200" doc:"Begin so many lines before the end. Ignored together with from."`
	Limit     int    `query:"limit" minimum:"1" maximum:"2000" default:"500" doc:"At most so many lines; long lines end an answer earlier. Not for streams."`
	Accept    string `header:"Accept" doc:"application/json for one answer, text/event-stream for a stream."`
	LastEvent int64  `header:"Last-Event-ID" minimum:"0" doc:"The line before the first, for streams that continue."`
}

type searchLogInput struct {
	ID      string `path:"id" maxLength:"64" doc:"Id of the plan."`
	Step    string `query:"step" required:"true" maxLength:"200" doc:"Id of the step."`
	Attempt int    `query:"attempt" minimum:"0" doc:"0 or left out: the latest."`
	Text    string `query:"q" maxLength:"200" doc:"Only lines with a text that contains this, in any case."`
	Failed  bool   `query:"failed" doc:"Only lines of what failed: a task, a host that could not be reached, a run, the director itself."`
	From    int64  `query:"from" minimum:"1" default:"1" doc:"The first line that is looked at."`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many hits."`
}

func (s *planRoutes) logWindows(api huma.API) {
	describeRecords(api)
	operation(s.server, api, sends(describe[wire.LogLines](api, huma.Operation{
		OperationID: "list-log-lines", Method: http.MethodGet, Path: "/plans/{id}/log/lines", Tags: []string{"Plans"},
		Summary: "Read a window of the log of a step, or follow it from a line",
		Description: "A stream sends each line as a message of the type line with its number as id, and a message " +
			"of the type end when the attempt has ended. It can be taken up again with Last-Event-ID.",
		Errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
	}, typeEvents), map[string]*huma.Schema{
		"line": schemaOf[wire.LogLine](api), "end": schemaOf[wire.LogEnd](api),
	}), director.ActRead, kindPlan,
		func(ctx context.Context, _ director.Actor, in *logLinesInput) (*anyOf, error) {
			q := journal.LogQuery{Step: in.Step, Attempt: in.Attempt, From: in.From, Tail: in.Tail, Limit: in.Limit}
			if in.LastEvent > 0 {
				q.From = in.LastEvent + 1
			}
			w, err := s.Logs.LogLines(ctx, in.ID, q)
			if err != nil {
				return nil, err
			}
			if strings.Contains(in.Accept, typeEvents) {
				return s.followLog(in.ID, q, w), nil
			}
			return jsonBody(api, linesOf(w)), nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "search-log", Method: http.MethodGet, Path: "/plans/{id}/log/search", Tags: []string{"Plans"},
		Summary: "Search the whole log of a step",
		Description: "A search ends after about two seconds, or with the limit. Its next says where to continue. A " +
			"search that found nothing may have a next too.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindPlan,
		func(ctx context.Context, _ director.Actor, in *searchLogInput) (*body[wire.LogHits], error) {
			hits, err := s.Logs.SearchLog(ctx, in.ID, journal.LogSearch{
				Step: in.Step, Attempt: in.Attempt, Text: in.Text, Failed: in.Failed, From: in.From, Limit: in.Limit,
			})
			if err != nil {
				return nil, err
			}
			out := wire.LogHits{Attempt: hits.Attempt, Total: hits.Total, Next: hits.Next}
			out.Items = make([]wire.LogHit, len(hits.Items))
			for i, h := range hits.Items {
				out.Items[i] = wire.LogHit(h)
			}
			return &body[wire.LogHits]{out}, nil
		})
}

func linesOf(w journal.LogWindow) wire.LogLines {
	out := wire.LogLines{
		Items: make([]wire.LogLine, len(w.Lines)), Attempt: w.Attempt, Total: w.Total, Next: w.Next, Growing: w.Growing,
	}
	for i, l := range w.Lines {
		out.Items[i] = wire.LogLine(l)
	}
	return out
}

// logPause is how often a log that is followed is looked at.
const logPause = 300 * time.Millisecond

// followLog sends the lines of a log until its attempt has ended and all of them are out.
func (s *planRoutes) followLog(id string, q journal.LogQuery, w journal.LogWindow) *anyOf {
	q.Attempt, q.Limit = w.Attempt, streamPage
	return s.sse(func(ctx context.Context, out *sse) error {
		tick := time.NewTicker(logPause)
		defer tick.Stop()
		quiet := time.Now()
		for {
			for _, l := range w.Lines {
				out.send("line", l.Line, wire.LogLine(l))
				quiet = time.Now()
			}
			switch {
			case !w.Growing && w.Next > w.Total:
				out.send("end", 0, wire.LogEnd{Attempt: w.Attempt, Total: w.Total})
				return out.flush()
			case time.Since(quiet) > heartbeat:
				out.alive(0)
				quiet = time.Now()
			}
			if err := out.flush(); err != nil {
				return err
			}
			if w.Next > w.Total {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-tick.C:
				}
			}
			q.From = w.Next
			var err error
			if w, err = s.Logs.LogLines(ctx, id, q); err != nil {
				return err
			}
		}
	})
}

package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

type streamInput struct {
	After     int64    `query:"after" minimum:"0" doc:"Only events with a greater id; 0 for all that are kept."`
	Tail      int      `query:"tail" minimum:"0" maximum:"1000" doc:"Begin so many events before the end. Ignored together with after."`
	Wait      int      `query:"wait" minimum:"0" maximum:"50" doc:"Seconds to wait for the first event if there is none yet; not for streams."`
	Kind      []string `query:"kind" maxItems:"20" doc:"Only what is about these kinds of things, separated by commas: kinds of documents, Plan, Node and User."`
	Cluster   string   `query:"cluster" maxLength:"63" doc:"Only what is about this cluster and its plans."`
	Limit     int      `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most so many; ask again after last for what follows. Not for streams."`
	Accept    string   `header:"Accept" doc:"application/json for one answer, text/event-stream for a stream."`
	LastEvent int64    `header:"Last-Event-ID" minimum:"0" doc:"As after, for streams that go on."`
}

func (s *server) stream(api huma.API) {
	operation(s, api, ofSome(sends(describe[wire.Stream](api, huma.Operation{
		OperationID: "stream", Method: http.MethodGet, Path: "/events", Tags: []string{"Events"},
		Summary: "Follow what happens on the director",
		Description: "Who did what, and how plans and steps move, over all directors that share the database, in " +
			"one order. A stream sends each event " +
			"with its id and does not end; it can be taken up again with Last-Event-ID. A client that asks after " +
			"an id of which not all that followed is " +
			"kept gets a message of the type gap first, or the field gap, and then what there is.",
		Errors: []int{http.StatusTooManyRequests},
	}, typeEvents), map[string]*huma.Schema{
		"event": schemaOf[wire.StreamEvent](api), "gap": schemaOf[wire.StreamGap](api),
	}), ""), director.ActRead, kindPlan,
		func(ctx context.Context, actor director.Actor, in *streamInput) (*anyOf, error) {
			q := director.StreamQuery{
				After: max(in.After, in.LastEvent), Tail: in.Tail, Cluster: in.Cluster, Limit: in.Limit,
				Visible: auth.VisibleTo(actor, kindPlan),
			}
			var err error
			if q.Kinds, err = s.readable(actor, in.Kind); err != nil {
				return nil, err
			}
			if strings.Contains(in.Accept, typeEvents) {
				return s.watch(q), nil
			}
			ctx, cancel := s.untilStop(ctx)
			defer cancel()
			page, err := s.Journal.Stream(ctx, q, min(time.Duration(in.Wait)*time.Second, maxWait))
			if err != nil {
				return nil, err
			}
			return jsonBody(api, wire.StreamOf(page)), nil
		})
}

// readable narrows the stream to what the actor may read: nil for all of it. To ask for more is forbidden.
func (s *server) readable(actor director.Actor, asked []string) ([]string, error) {
	all := []string{kindPlan, kindUser, director.KindNode}
	for _, k := range model.Kinds() {
		all = append(all, string(k))
	}
	for _, k := range asked {
		if !slices.Contains(all, k) {
			return nil, invalidQuery("kind", "there is no "+k, "some of "+strings.Join(all, ", "))
		}
		if !auth.CanSome(actor, director.ActRead, k) {
			return nil, auth.Refusal(actor, director.ActRead, director.Object{Kind: k})
		}
	}
	if len(asked) > 0 {
		return asked, nil
	}
	may := slices.DeleteFunc(slices.Clone(all), func(k string) bool {
		return !auth.CanSome(actor, director.ActRead, k)
	})
	if len(may) == len(all) {
		return nil, nil
	}
	return may, nil
}

// streamPage is how many events of the stream are in memory for one reader.
const streamPage = 200

// watch sends what happens until the reader goes.
func (s *server) watch(q director.StreamQuery) *anyOf {
	q.Limit = streamPage
	return s.sse(func(ctx context.Context, w *sse) error {
		for {
			page, err := s.Journal.Stream(ctx, q, heartbeat)
			if err != nil {
				return err
			}
			out := wire.StreamOf(page)
			if out.Gap != nil {
				w.send("gap", out.Gap.Through, out.Gap)
			}
			for _, e := range out.Items {
				w.send("event", e.ID, e)
			}
			if len(out.Items) == 0 && out.Gap == nil {
				w.alive(page.Last)
			}
			if err := w.flush(); err != nil {
				return err
			}
			q.After, q.Tail = page.Last, 0
		}
	})
}

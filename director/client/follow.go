package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// maxSilence is how many tries in a row may fail before Follow gives up; with the default backoff that is over a minute
// of restarts of the director.
const maxSilence = 20

// silence is how long a stream may say nothing: some of the server's heartbeats.
const silence = 60 * time.Second

// Follow calls each for every event of the plan after the number, in order and once, until the plan has ended, and
// returns the status it ended with. gap, which may be nil, is told of events that the director does not keep any more.
// When the connection breaks it is taken up again where it was; lost, which may be nil, is told of it, and of nil when
// it is back. An error of each ends it.
func (c *planCalls) Follow(
	ctx context.Context, id string, after int64, each func(wire.Event) error, gap func(wire.EventGap), lost func(error),
) (status string, err error) {
	err = c.follow(ctx, "/plans/"+id+"/events", nil, &after, func(event, data string) (bool, error) {
		switch event {
		case "end":
			var end wire.End
			if err := json.Unmarshal([]byte(data), &end); err != nil || end.Status == "" {
				return false, director.Errorf(director.KindInternal, "client.follow", "the stream's end cannot be read")
			}
			status = end.Status
			return true, nil
		case "gap":
			var g wire.EventGap
			if err := json.Unmarshal([]byte(data), &g); err != nil {
				return false, director.Errorf(
					director.KindInternal, "client.follow", "a message of the stream cannot be read: %w", err,
				)
			}
			if gap != nil {
				gap(g)
			}
			after = max(after, g.Through)
		case "event":
			var e wire.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return false, director.Errorf(
					director.KindInternal, "client.follow", "an event cannot be read: %w", err,
				)
			}
			if e.Seq <= after {
				return false, nil
			}
			return false, mine(each(e))
		}
		return false, nil // a newer director has more to say
	}, lost)
	return status, err
}

// StreamFilter narrows what is read of the director's stream. What is empty does not narrow.
type StreamFilter struct {
	After   int64 // only what has a greater id
	Tail    int   // if After is 0: begin so many before the end
	Kinds   []string
	Cluster string
}

func (f StreamFilter) query() url.Values {
	q := url.Values{}
	if f.After > 0 {
		q.Set("after", strconv.FormatInt(f.After, 10))
	}
	if f.Tail > 0 && f.After == 0 {
		q.Set("tail", strconv.Itoa(f.Tail))
	}
	if len(f.Kinds) > 0 {
		q.Set("kind", strings.Join(f.Kinds, ","))
	}
	if f.Cluster != "" {
		q.Set("cluster", f.Cluster)
	}
	return q
}

// Stream returns a part of the director's stream; ask after its Last for what follows.
func (c *connection) Stream(ctx context.Context, f StreamFilter) (wire.Stream, error) {
	var s wire.Stream
	err := c.call(ctx, request{method: http.MethodGet, path: "/events", query: f.query()}, &s)
	return s, err
}

// Watch calls each for every event of the director's stream, in order and once, and gap where the director does not
// have any more what was missed. It ends with the context or with an error of each. lost is as in Follow; gap may be
// nil, too.
func (c *connection) Watch(
	ctx context.Context, f StreamFilter, each func(wire.StreamEvent) error, gap func(wire.StreamGap), lost func(error),
) error {
	after := f.After
	return c.follow(ctx, "/events", f.query(), &after, func(event, data string) (bool, error) {
		switch event {
		case "gap":
			var g wire.StreamGap
			if err := json.Unmarshal([]byte(data), &g); err != nil {
				return false, director.Errorf(
					director.KindInternal, "client.watch", "a message of the stream cannot be read: %w", err,
				)
			}
			if gap != nil {
				gap(g)
			}
			after = g.Through // may be lower than before, on an older database
		case "event":
			var e wire.StreamEvent
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return false, director.Errorf(director.KindInternal, "client.watch", "an event cannot be read: %w", err)
			}
			if e.ID <= after {
				return false, nil
			}
			return false, mine(each(e))
		}
		return false, nil
	}, lost)
}

// mine marks an error of the caller.
func mine(err error) error {
	if err == nil {
		return nil
	}
	return &callbackError{err}
}

type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }

// follow reads a stream until on says that it is over, and takes it up again behind after whenever it breaks.
func (c *connection) follow(
	ctx context.Context, path string, query url.Values, after *int64, on func(
		event, data string,
	) (over bool, err error), lost func(error),
) error {
	if lost == nil {
		lost = func(error) {}
	}
	failures, told, connected := 0, false, false
	for {
		over, err := c.stream(ctx, path, query, after, on, func() {
			if told {
				lost(nil)
			}
			failures, told, connected = 0, false, true
		})
		var own *callbackError
		kind := director.KindOf(err)
		switch {
		case over:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &own):
			return own.err
		// A follower that lost its stream waits until the director has a free one.
		case err != nil && kind != director.KindUnavailable && (kind != director.KindExhausted || !connected):
			return err
		}
		failures++
		if err != nil {
			if failures >= maxSilence {
				return err
			}
			if !told {
				lost(err)
			}
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.backoff(failures)):
		}
	}
}

// stream reads one connection. after follows the ids of its messages; alive is called for every line.
func (c *connection) stream(
	ctx context.Context, path string, query url.Values, after *int64, on func(
		event, data string,
	) (bool, error), alive func(),
) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := request{method: http.MethodGet, path: path, query: query, accept: "text/event-stream", header: http.Header{}}
	if *after > 0 {
		r.header.Set("Last-Event-ID", strconv.FormatInt(*after, 10))
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()

	lines := bufio.NewReader(resp.Body)
	var event, data string
	var id int64
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return false, nil // the director stops; it is back soon
		}
		if err != nil {
			return false, director.Errorf(director.KindUnavailable, "client.follow", "the stream broke off: %w", err)
		}
		watch.Reset(silence)
		alive()
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "id":
			id, _ = strconv.ParseInt(value, 10, 64) // what is no number is no place
		case field == "event":
			event = value
		case field == "data":
			data = value
		case line == "":
			if event != "" {
				if over, err := on(event, data); over || err != nil {
					return over, err
				}
			}
			*after = max(*after, id)
			event, data, id = "", "", 0
		}
	}
}

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// maxSilence is how many tries in a row may fail before Follow gives up; with the default backoff that is over a minute of restarts
// of the director.
const maxSilence = 20

// silence is how long a stream may say nothing: some of the server's heartbeats.
const silence = 60 * time.Second

// Follow calls each for every event of the plan after the number, in order and once, until the plan has ended, and returns
// the phase it ended in. When the connection breaks it is taken up again where it was; lost, which may be nil, is told of it, and of nil
// when it is back. An error of each ends it.
func (c *Client) Follow(
	ctx context.Context, id string, after int64, each func(wire.Event) error, lost func(error),
) (phase string, err error) {
	if lost == nil {
		lost = func(error) {}
	}
	failures, told := 0, false
	for {
		phase, last, err := c.stream(ctx, id, after, each, func() {
			if told {
				lost(nil)
			}
			failures, told = 0, false
		})
		after = last
		var own *callbackError
		switch {
		case err == nil && phase != "":
			return phase, nil
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &own):
			return "", own.err
		case err != nil && director.KindOf(err) != director.KindUnavailable:
			return "", err
		}
		failures++
		if err != nil {
			if failures >= maxSilence {
				return "", err
			}
			if !told {
				lost(err)
			}
			told = true
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(c.backoff(failures)):
		}
	}
}

type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }

// stream reads one connection. phase is set when the server said that the plan has ended.
func (c *Client) stream(
	ctx context.Context, id string, after int64, each func(wire.Event) error, alive func(), // called for every line
) (phase string, last int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := request{method: http.MethodGet, path: "/plans/" + id + "/events", accept: "text/event-stream", header: http.Header{}}
	if after > 0 {
		r.header.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		return "", after, err
	}
	defer func() { _ = resp.Body.Close() }()
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()

	lines := bufio.NewReader(resp.Body)
	var event, data string
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return "", after, nil // the director stops; it is back soon
		}
		if err != nil {
			return "", after, director.Errorf(director.KindUnavailable, "client.follow", "the stream broke off: %w", err)
		}
		watch.Reset(silence)
		alive()
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			event = value
		case field == "data":
			data = value
		case line != "":
		case event == "end":
			var end wire.End
			if err := json.Unmarshal([]byte(data), &end); err != nil || end.Phase == "" {
				return "", after, director.Errorf(director.KindInternal, "client.follow", "the stream's end cannot be read")
			}
			return end.Phase, after, nil
		case event == "event":
			var e wire.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return "", after, director.Errorf(director.KindInternal, "client.follow", "an event cannot be read: %w", err)
			}
			if e.Seq > after {
				if err := each(e); err != nil {
					return "", after, &callbackError{err}
				}
				after = e.Seq
			}
			event, data = "", ""
		}
	}
}

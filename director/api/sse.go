package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// stalled is how long a reader may take nothing before its stream is given up. It comes back and continues where it
// was.
const stalled = 30 * time.Second

// sse writes messages of an event stream. It keeps nothing: what a slow reader has not taken stays in the store.
type sse struct {
	w   gin.ResponseWriter
	rc  *http.ResponseController
	err error // the first; nothing is written after it
}

// errReaderGone ends a stream whose reader does not take what is sent.
var errReaderGone = errors.New("api: the reader is gone")

// sse answers with a stream that write fills until it returns. One too many is refused.
func (s *server) sse(write func(context.Context, *sse) error) *anyOf {
	return &anyOf{Body: func(hctx huma.Context) {
		g := humagin.Unwrap(hctx)
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			s.abort(g, s.problem(hctx.Context(), crowded(cap(s.streams))))
			return
		}
		if s.Observer != nil {
			defer s.Observer.Stream()()
		}
		ctx, cancel := s.untilStop(hctx.Context())
		defer cancel()
		w := &sse{w: g.Writer, rc: http.NewResponseController(g.Writer)}
		hctx.SetHeader("Content-Type", typeEvents)
		hctx.SetHeader("X-Accel-Buffering", "no")
		hctx.SetStatus(http.StatusOK)
		w.w.WriteHeaderNow()
		err := w.flush()
		if err == nil {
			err = write(ctx, w)
		}
		// the reader takes it up again and is told then
		if err != nil && ctx.Err() == nil && !errors.Is(err, errReaderGone) {
			s.Log.ErrorContext(
				ctx, "event stream broke off", "request_id", requestID(ctx), "path", g.Request.URL.Path, "err", err,
			)
		}
	}}
}

func crowded(most int) *problem {
	p := newProblem(director.KindExhausted, kinds[director.KindExhausted].status)
	p.Detail = "all " + strconv.Itoa(most) + " streams of events that this director offers are open"
	p.Hint = "try again later, or ask without a stream: leave Accept: text/event-stream out"
	p.retryAfter = "5"
	return p
}

// send writes a message; with an id other than 0, a reader that comes back names it.
func (w *sse) send(event string, id int64, v any) {
	data, err := wire.Marshal(v)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	head := ""
	if id != 0 {
		head = "id: " + strconv.FormatInt(id, 10) + "\n"
	}
	w.print(fmt.Sprintf("%sevent: %s\ndata: %s\n\n", head, event, data))
}

// alive breaks the silence. An id other than 0 moves the place from where a reader continues.
func (w *sse) alive(id int64) {
	if id != 0 {
		w.print("id: " + strconv.FormatInt(id, 10) + "\n\n")
		return
	}
	w.print(": alive\n\n")
}

func (w *sse) print(text string) {
	if w.err != nil {
		return
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(stalled)) // a writer without deadlines fails by itself
	if _, err := w.w.WriteString(text); err != nil {
		w.err = errors.Join(errReaderGone, err)
	}
}

// flush sends what was written, and returns the first error of all writing.
func (w *sse) flush() error {
	if w.err == nil {
		_ = w.rc.SetWriteDeadline(time.Now().Add(stalled))
		if err := w.rc.Flush(); err != nil {
			w.err = errors.Join(errReaderGone, err)
		}
	}
	return w.err
}

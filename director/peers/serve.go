package peers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
)

// Logs are those of this director alone. journal.Local implements it.
type Logs interface {
	StepLog(ctx context.Context, plan, step string, attempt int, offset int64) (io.ReadCloser, error)
	LogLines(ctx context.Context, plan string, q journal.LogQuery) (journal.LogWindow, error)
	SearchLog(ctx context.Context, plan string, q journal.LogSearch) (journal.Hits, error)
}

// atOnce is how many questions of peers a director answers at the same time.
const atOnce = 16

// mostLimit is how many lines or hits are sent at most.
const mostLimit = 10_000

// Handler answers the questions of peers. Who has no proof gets 404, as if it were not there.
type Handler struct {
	key      []byte
	instance string
	logs     Logs
	now      func() time.Time
	slots    chan struct{}
}

// NewHandler returns a handler for the director with the instance.
func NewHandler(key []byte, instance string, logs Logs, now func() time.Time) *Handler {
	return &Handler{key, instance, logs, now, make(chan struct{}, atOnce)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || len(r.URL.RawQuery) > 4096 ||
		!proven(h.key, h.instance, r.URL.RequestURI(), r.Header.Get("Authorization"), h.now()) {
		http.NotFound(w, r)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		fail(w, director.Errorf(director.KindUnavailable, "peers.log", "the director that has the log is busy").
			WithHint("try again in a moment"))
		return
	}
	q := r.URL.Query()
	number := func(name string) int64 {
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	plan, step, attempt := q.Get("plan"), q.Get("step"), int(number("attempt"))
	limit := int(min(number("limit"), mostLimit))
	switch q.Get("want") {
	case wantLines:
		v, err := h.logs.LogLines(r.Context(), plan, journal.LogQuery{
			Step: step, Attempt: attempt, From: number("from"), Tail: number("tail"), Limit: limit,
		})
		answer(w, v, err)
	case wantSearch:
		v, err := h.logs.SearchLog(r.Context(), plan, journal.LogSearch{
			Step: step, Attempt: attempt, Text: q.Get("text"), Failed: q.Get("failed") == "true", From: number("from"),
			Limit: limit,
		})
		answer(w, v, err)
	case wantBytes:
		h.bytes(w, r, q, number("offset"))
	default:
		fail(w, director.Errorf(director.KindInvalid, "peers.log", "this director does not know what is asked").
			WithHint("upgrade all directors of a database soon after one another"))
	}
}

func (h *Handler) bytes(w http.ResponseWriter, r *http.Request, q url.Values, offset int64) {
	attempt, _ := strconv.Atoi(q.Get("attempt"))
	log, err := h.logs.StepLog(r.Context(), q.Get("plan"), q.Get("step"), attempt, offset)
	if err != nil {
		fail(w, err)
		return
	}
	defer log.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, log) // the peer sees that less has come
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the peer sees that less has come
}

// fail sends what people may read of the error.
func fail(w http.ResponseWriter, err error) {
	p := problem{Kind: director.KindInternal, Msg: "the director that has the log could not read it"}
	if e, ok := errors.AsType[*director.Error](err); ok {
		p = problem{e.Kind, e.Msg, e.Hint}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(p)
}

package pace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// got is what a handler saw of a request.
type got struct {
	read int64
	err  error
	ctx  error // of the request, a while after the body was read
}

// send sends a request whose body comes in pieces, one at each tick, and returns what the server saw, and whether it
// closed the connection.
func send(t *testing.T, l Limits, length int, pieces []int, tick time.Duration, read bool) (got, bool) {
	t.Helper()
	seen := make(chan got, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = l.Body(r.Body, http.NewResponseController(w))
		if !read {
			w.WriteHeader(http.StatusUnauthorized)
			seen <- got{}
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), 3*l.Quiet)
			defer cancel()
			<-ctx.Done()
		}
		seen <- got{n, err, r.Context().Err()}
	}))
	defer srv.Close()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length); err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool, 1)
	go func() {
		_ = c.SetReadDeadline(time.Now().Add(20 * l.Quiet))
		_, err := io.Copy(io.Discard, c)
		ended <- !errors.Is(err, os.ErrDeadlineExceeded)
	}()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for _, n := range pieces {
		<-ticker.C
		if _, err := io.WriteString(c, strings.Repeat("x", n)); err != nil {
			break
		}
	}
	return <-seen, <-ended
}

func repeat(n, size int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = size
	}
	return out
}

// Who sends nothing, or a byte now and then, is cut off; who sends steadily may take longer than any single limit.
func TestSlowBodiesEnd(t *testing.T) {
	t.Parallel()
	limits := Limits{Quiet: 200 * time.Millisecond, Rate: 10000}
	tests := map[string]struct {
		length int
		pieces []int
		tick   time.Duration
		whole  bool
	}{
		"nothing comes":             {100, nil, time.Millisecond, false},
		"half of it comes":          {100, []int{50}, time.Millisecond, false},
		"a byte now and then":       {1 << 20, repeat(100, 1), 20 * time.Millisecond, false},
		"longer than the quiet may": {400 * 100, repeat(100, 400), 10 * time.Millisecond, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			saw, _ := send(t, limits, tt.length, tt.pieces, tt.tick, true)
			if tt.whole && (saw.err != nil || saw.read != int64(tt.length) || saw.ctx != nil) {
				t.Errorf("got %+v", saw)
			}
			if !tt.whole && !errors.Is(saw.err, os.ErrDeadlineExceeded) {
				t.Errorf("got %+v, want its end", saw)
			}
		})
	}
}

// A request that is refused before its body is read does not hold the connection either.
func TestABodyThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	limits := Limits{Quiet: 200 * time.Millisecond, Rate: 10000}
	if _, ended := send(t, limits, 100, []int{1}, time.Millisecond, false); !ended {
		t.Error("the connection stays open")
	}
}

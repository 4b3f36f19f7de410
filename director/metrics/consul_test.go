package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

func TestConsuls(t *testing.T) {
	t.Parallel()
	m := New(Config{Counts: func(context.Context) (Counts, error) {
		return Counts{Consuls: []director.ConsulState{
			{Consul: "dc1", Success: time.Unix(1700000000, 0), Wanted: 5, Failing: 2},
			{Consul: "dc2", Held: &director.Removals{Count: 12}},
		}}, nil
	}})
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	text, err := io.ReadAll(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`director_consul_entries{check="passing",consul="dc1"} 3`,
		`director_consul_entries{check="failing",consul="dc1"} 2`,
		`director_consul_success_timestamp_seconds{consul="dc1"} 1.7e+09`,
		`director_consul_success_timestamp_seconds{consul="dc2"} 0`,
		`director_consul_held{consul="dc1"} 0`, `director_consul_held{consul="dc2"} 12`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
}

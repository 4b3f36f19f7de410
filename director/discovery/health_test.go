package discovery

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// hanging is an API server that takes connections and never answers.
type hanging struct{}

func (hanging) Healthz(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) Close() {}

// A fleet whose API servers all hang leaves most of a comparison to what is written.
func TestAThousandServersThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(func(context.Context, string, string, string) (API, error) { return hanging{}, nil }, time.Now)
		entries := make([]Entry, 1000)
		for i := range entries {
			entries[i] = Entry{
				Node: "n", ID: fmt.Sprint(i), Cluster: fmt.Sprint(i), Address: "10.0.0.1", Port: 6443, Passing: true,
			}
		}
		began := time.Now()
		h.fill(t.Context(), entries, nil)
		if took := time.Since(began); took > passLimit/2 {
			t.Errorf("asking took %s of the %s of a comparison", took, passLimit)
		}
		for _, e := range entries {
			if e.Passing {
				t.Fatalf("%s passes", e.ID)
			}
		}
	})
}

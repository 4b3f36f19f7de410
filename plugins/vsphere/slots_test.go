package vsphere

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/director-kaas/kaas/director"
)

// A host takes sixteen units at once; what has to wait is told when its turn is likely to come, from how long the last
// clones took.
func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		type told struct {
			ahead    int64
			estimate time.Duration
		}
		var waits []told
		s.tell = func(_ context.Context, _ string, ahead int64, estimate time.Duration) {
			waits = append(waits, told{ahead, estimate})
		}
		begin := func(host string, cost int64) func() {
			t.Helper()
			done, err := s.provision(t.Context(), "test", host, cost)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		end := begin("h", fullCost)
		time.Sleep(8 * time.Second) // synctest's clock
		end()
		end = begin("h", fullCost)
		time.Sleep(4 * time.Second) // synctest's clock
		end()
		if got := s.took[fullCost]; got != 7*time.Second {
			t.Errorf("a clone is said to take %s", got)
		}
		var ends []func()
		for range hostUnits / fullCost {
			ends = append(ends, begin("h", fullCost))
		}
		if len(waits) != 0 {
			t.Errorf("what fits waits: %v", waits)
		}
		begin("other", linkedCost)() // another host is not kept waiting
		began := make(chan time.Time)
		start := time.Now()
		go func() {
			done := begin("h", fullCost)
			began <- time.Now()
			done()
		}()
		synctest.Wait()
		if len(waits) != 1 || waits[0] != (told{hostUnits, 7 * time.Second}) {
			t.Errorf("the fifth full clone was told %v", waits)
		}
		time.Sleep(5 * time.Second) // synctest's clock
		ends[0]()
		if got := (<-began).Sub(start); got != 5*time.Second {
			t.Errorf("it began after %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ends[0] = begin("h", fullCost)
		if _, err := s.provision(ctx, "test", "h", fullCost); director.KindOf(err) != director.KindUnavailable {
			t.Errorf("one that was given up: %v", err)
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if h := s.hosts["h"]; h.taken != 0 || !h.units.TryAcquire(hostUnits) {
			t.Errorf("%d units are still taken", h.taken)
		}
	})
}

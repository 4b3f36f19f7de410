package nodes

import (
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/store"
)

// BenchmarkObserve is what an idle director does for 1,000 clusters of 10 machines: it looks at each once a minute,
// which is "looks", and asks six times a minute which are due, which is "asks". The hypervisor is in memory and no
// cluster is asked: what is left is the director's own. The share of a core is of the processor time.
func BenchmarkObserve(b *testing.B) {
	const clusters, workers, asks = 1000, 10, 6
	s, l, now := watched(b, clusters, workers)
	err := l.Store.Update(b.Context(), func(tx *store.Tx) error {
		for _, m := range l.Made {
			if err := tx.IntendMachine(m, *now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, step := range map[string]time.Duration{"looks": 2 * observeEvery, "asks": 0} {
		b.Run(name, func(b *testing.B) {
			observe(b, s) // so that the next one finds nothing to do unless time passes
			before := processorTime(b)
			n := 0
			for b.Loop() {
				*now = now.Add(step)
				observe(b, s)
				n++
			}
			used := processorTime(b) - before
			if step == 0 {
				used *= asks
			}
			b.ReportMetric(100*used.Seconds()/float64(n)/time.Minute.Seconds(), "%-of-a-core")
		})
	}
	seen, err := l.Store.CountNodes(b.Context(), store.NodeQuery{States: []string{StatePending}}, *now, *now)
	if err != nil || len(seen) != 1 || seen[0].Count != clusters*workers {
		b.Fatalf("%+v, %v", seen, err)
	}
}

func observe(b *testing.B, s *Service) {
	b.Helper()
	if err := s.Observe(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

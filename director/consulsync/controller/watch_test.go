package controller

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/director-kaas/kaas/director"
)

// After a long outage, queries that wait longer and longer ask again as soon as a pass has found Consul.
func TestQueriesAskAgainWhenConsulIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatcher(nil, slog.New(slog.DiscardHandler), func() {})
		away, asked, answered := true, 0, time.Time{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.follow(ctx, w.log, func(_ context.Context, index uint64) (uint64, error) {
			asked++
			if away {
				return 0, errors.New("connection refused")
			}
			if answered.IsZero() {
				answered = time.Now()
			}
			return index + 1, nil
		})
		sleep(ctx, 10*time.Minute)
		synctest.Wait()
		if asked > 30 {
			t.Errorf("it asked %d times in ten minutes", asked)
		}
		away = false
		back := time.Now()
		w.back()
		sleep(ctx, firstRetry)
		synctest.Wait()
		if took := answered.Sub(back); answered.IsZero() || took > firstRetry {
			t.Errorf("it had an answer %s after Consul was back", took)
		}
	})
}

func TestAPassWaitsLongerForPeopleThanForConsul(t *testing.T) {
	t.Parallel()
	away := errors.Join(
		failed("read the entries", errors.New("connection refused")), errors.New("the API server said no"),
	)
	if got := mostWait(away); got != outageRetry {
		t.Errorf("a Consul that is away is asked again after %s", got)
	}
	for _, kind := range []director.Kind{director.KindForbidden, director.KindInvalid} {
		if got := mostWait(director.Errorf(kind, "test", "no")); got != lastRetry {
			t.Errorf("%s: a pass is tried again after %s", kind, got)
		}
	}
}

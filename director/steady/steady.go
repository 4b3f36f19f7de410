// Package steady waits for something that has to be well for a time without a break.
package steady

import (
	"context"
	"errors"
	"time"
)

// Wait says how long something has to be well, and how often it is asked.
type Wait struct {
	For, Every time.Duration
	// Within bounds the wait for something that is not well; 0 leaves that to the context.
	Within time.Duration
}

// ErrBrief says that the context ended while the thing was well, and not for long enough.
var ErrBrief = errors.New("it was well, and not for long enough")

// Until returns nil when ask has returned nil for long enough, and what ask said last if the time is up. It never gives
// up while ask returns nil, unless the context ends.
func (w Wait) Until(ctx context.Context, ask func(context.Context) error) error {
	began := time.Now()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	var since time.Time
	for {
		err := ask(ctx)
		switch {
		case err != nil && w.Within > 0 && time.Since(began) > w.Within:
			return err
		case err != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= w.For:
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ErrBrief
			}
			return err
		case <-tick.C:
		}
	}
}

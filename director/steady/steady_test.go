package steady_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/director-kaas/kaas/director/steady"
)

var errSick = errors.New("sick")

// wellFrom returns a thing that is well from one moment to another, counted from now.
func wellFrom(from, to time.Duration) func(context.Context) error {
	began := time.Now()
	return func(context.Context) error {
		if since := time.Since(began); since < from || since >= to {
			return errSick
		}
		return nil
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	const s, ever = time.Second, time.Hour
	for name, c := range map[string]struct {
		from, to      time.Duration // that it is well
		within, ended time.Duration // of the wait, of the context
		took          time.Duration
		want          error
	}{
		"well at once":             {to: ever, within: 60 * s, ended: ever, took: 20 * s},
		"well later":               {from: 10 * s, to: ever, within: 60 * s, ended: ever, took: 30 * s},
		"well just before the end": {from: 50 * s, to: ever, within: 60 * s, ended: ever, took: 70 * s},
		"never":                    {within: 60 * s, ended: ever, took: 62 * s, want: errSick},
		"too short":                {to: 10 * s, within: 60 * s, ended: ever, took: 62 * s, want: errSick},
		"sick when all ends":       {ended: 31 * s, took: 31 * s, want: errSick},
		"just well when all ends":  {from: 20 * s, to: ever, ended: 31 * s, took: 31 * s, want: steady.ErrBrief},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ended)
				defer cancel()
				began := time.Now()
				w := steady.Wait{For: 20 * s, Every: 2 * s, Within: c.within}
				err := w.Until(ctx, wellFrom(c.from, c.to))
				if !errors.Is(err, c.want) || time.Since(began) != c.took {
					t.Errorf("%v after %s; want %v after %s", err, time.Since(began), c.want, c.took)
				}
			})
		})
	}
}

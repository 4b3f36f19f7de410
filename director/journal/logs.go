package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// StepLog opens the log of the step's attempt from a byte offset; attempt 0 is the latest. It ends where the file ends
// now.
func (s *Service) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	r, err := s.stepLog(ctx, id, step, attempt, offset)
	if away, ok := s.away(err); ok {
		return s.Peers.StepLog(ctx, away.by, id, step, away.attempt, offset)
	}
	return r, err
}

// awayError says which director has a log.
type awayError struct {
	by      string
	attempt int
}

func (e awayError) Error() string { return "the log is with " + e.by }

// away reports which director is to be asked for a log that is not here.
func (s *Service) away(err error) (awayError, bool) {
	away, ok := errors.AsType[awayError](err)
	return away, ok && s.Peers != nil
}

// Local shows the logs that are on this director alone. It asks no other, so that no question goes round.
type Local struct{ s *Service }

// Local returns what is shown to other directors.
func (s *Service) Local() Local { return Local{s} }

// StepLog is Service.StepLog without other directors.
func (l Local) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	return l.s.stepLog(ctx, id, step, attempt, offset)
}

// LogLines is Service.LogLines without other directors.
func (l Local) LogLines(ctx context.Context, id string, q LogQuery) (LogWindow, error) {
	return l.s.logLines(ctx, id, q)
}

// SearchLog is Service.SearchLog without other directors.
func (l Local) SearchLog(ctx context.Context, id string, q LogSearch) (Hits, error) {
	return l.s.searchLog(ctx, id, q)
}

func (s *Service) stepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	if _, _, err := s.Store.Progress(ctx, id); err != nil {
		return nil, err
	}
	last, err := s.Store.StepAttempt(ctx, id, step)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		return nil, director.Errorf(director.KindNotFound, "journal.log", "plan %s has no step %q", id, step).
			WithHint("list its steps: directorctl describe plan %s", id)
	}
	if err != nil {
		return nil, err
	}
	if attempt == 0 {
		attempt = last
	}
	f, err := os.Open(s.LogPath(id, step, attempt))
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.logElsewhere(ctx, id, step, attempt); err != nil {
			return nil, err
		}
		return io.NopCloser(emptyReader{}), nil // it has written nothing yet, or is not a kind that does
	}
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "journal.log", Msg: "the log cannot be opened", Err: err,
		}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// logElsewhere returns not_found if the attempt's log is with a director whose logs we do not see.
func (s *Service) logElsewhere(ctx context.Context, id, stepID string, attempt int) error {
	if s.LogsOf == nil || attempt == 0 {
		return nil
	}
	p, _, err := s.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(p.Steps, func(x plan.Step) bool { return x.ID == stepID })
	if i < 0 || p.Steps[i].Kind != step.Play {
		return nil
	}
	events, err := s.Store.Events(ctx, id, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == plan.Started && e.Step == stepID && e.Attempt == attempt && e.By != "" && !s.LogsOf(e.By) {
			return &director.Error{
				Kind: director.KindNotFound, Op: "journal.log",
				Msg: fmt.Sprintf(
					"the log of attempt %d of %s is on the director that ran it, %s", attempt, stepID, e.By,
				),
				Hint: "ask that director, or let the directors share the directory runs: " +
					"docs/operate/high-availability.md",
				Err: awayError{e.By, attempt},
			}
		}
	}
	return nil
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

package operations

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Plan returns the plan with its state, also one that is in an archive of this director, or not_found.
func (o *Operations) Plan(ctx context.Context, id string) (plan.View, error) {
	p, s, err := o.Store.Plan(ctx, id)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		if _, archived, aerr := o.Store.PlanArchived(ctx, id); aerr != nil {
			return plan.View{}, aerr
		} else if archived {
			return o.Archives.Plan(ctx, id)
		}
	}
	v := plan.View{Plan: p, State: s}
	if err != nil {
		return v, err
	}
	return v, o.waits(ctx, &v)
}

// Progress returns the phase of the plan and the number of its last event, or not_found.
func (o *Operations) Progress(ctx context.Context, id string) (plan.Phase, int64, error) {
	return o.Store.Progress(ctx, id)
}

// StepLog opens the log of the step's attempt from a byte offset; attempt 0 is the latest. It ends where the file ends
// now.
func (o *Operations) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	if _, _, err := o.Store.Progress(ctx, id); err != nil {
		return nil, err
	}
	last, err := o.Store.StepAttempt(ctx, id, step)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		return nil, director.Errorf(director.KindNotFound, "operations.log", "plan %s has no step %q", id, step).
			WithHint("list its steps: directorctl describe plan %s", id)
	}
	if err != nil {
		return nil, err
	}
	if attempt == 0 {
		attempt = last
	}
	f, err := os.Open(o.Env.LogPath(id, step, attempt))
	if errors.Is(err, fs.ErrNotExist) {
		if err := o.logElsewhere(ctx, id, step, attempt); err != nil {
			return nil, err
		}
		return io.NopCloser(emptyReader{}), nil // it has written nothing yet, or is not a kind that does
	}
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "operations.log", Msg: "the log cannot be opened", Err: err,
		}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// logElsewhere returns not_found if the attempt's log is with a director whose logs we do not see.
func (o *Operations) logElsewhere(ctx context.Context, id, stepID string, attempt int) error {
	if o.LogsOf == nil || attempt == 0 {
		return nil
	}
	p, _, err := o.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(p.Steps, func(
		s plan.Step,
	) bool {
		return s.ID == stepID
	}); i < 0 || p.Steps[i].Kind != step.Play {
		return nil
	}
	events, err := o.Store.Events(ctx, id, 0, math.MaxInt32)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == plan.Started && e.Step == stepID && e.Attempt == attempt && e.By != "" && !o.LogsOf(e.By) {
			return director.Errorf(
				director.KindNotFound, "operations.log",
				"the log of attempt %d of %s is on the director that ran it, %s", attempt, stepID, e.By,
			).
				WithHint(
					"ask that director, or let the directors have the directory runs in common: " +
						"docs/operate/high-availability.md",
				)
		}
	}
	return nil
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

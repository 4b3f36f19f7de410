package operations

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
)

// Plan returns the plan with its state, or not_found.
func (o *Operations) Plan(ctx context.Context, id string) (api.PlanView, error) {
	p, s, err := o.Store.Plan(ctx, id)
	v := api.PlanView{Plan: p, State: s}
	if err != nil {
		return v, err
	}
	return v, o.waits(ctx, &v)
}

// StepLog opens the log of the step's attempt from a byte offset; attempt 0 is the latest. It ends where the file ends now.
func (o *Operations) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	v, err := o.Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	st := v.State.Step(step)
	if st == nil {
		return nil, director.Errorf(director.KindNotFound, "operations.log", "plan %s has no step %q", id, step).
			WithHint("list its steps: directorctl describe plan %s", id)
	}
	if attempt == 0 {
		attempt = st.Attempt
	}
	f, err := os.Open(o.Env.LogPath(id, step, attempt))
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(emptyReader{}), nil // it has written nothing yet, or is not a kind that does
	}
	if err != nil {
		return nil, &director.Error{Kind: director.KindInternal, Op: "operations.log", Msg: "the log cannot be opened", Err: err}
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }

package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// saver notes what it is to save, and fails with err.
type saver struct {
	asked []string
	err   error
}

func (s *saver) Save(_ context.Context, target string, keep int) (string, error) {
	s.asked = append(s.asked, fmt.Sprint(target, keep))
	return "saved", s.err
}

// A backup of the director that cannot be made waits for a person, who is told how to go on with it and without it.
func TestBackupOfTheDirector(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, tt := range map[string]struct {
		err  error
		ctx  context.Context
		want plan.Outcome
	}{
		"done": {nil, t.Context(), plan.Outcome{Kind: plan.Succeeded}},
		"away": {
			director.Errorf(director.KindUnavailable, "t", "x"), t.Context(),
			plan.Outcome{Kind: plan.Retry, Last: plan.NeedsHuman},
		},
		"unknown":  {errors.New("x"), t.Context(), plan.Outcome{Kind: plan.Retry, Last: plan.NeedsHuman}},
		"too slow": {context.DeadlineExceeded, t.Context(), plan.Outcome{Kind: plan.Retry, Last: plan.NeedsHuman}},
		"full": {
			director.Errorf(director.KindExhausted, "t", "x"), t.Context(),
			plan.Outcome{Kind: plan.NeedsHuman, Last: plan.Aborted},
		},
		"deleted": {
			director.Errorf(director.KindNotFound, "t", "x"), t.Context(),
			plan.Outcome{Kind: plan.NeedsHuman, Last: plan.Aborted},
		},
		"no key": {
			director.Errorf(director.KindConflict, "t", "x"), t.Context(),
			plan.Outcome{Kind: plan.NeedsHuman, Last: plan.Aborted},
		},
		"interrupted": {context.Canceled, stopped, plan.Outcome{Kind: plan.Retry, Last: plan.Aborted}},
	} {
		s := &saver{err: tt.err}
		var said string
		r := plan.Run{
			Plan: &plan.Plan{ID: "p1"}, Note: func(_ context.Context, text string) { said = text },
			Step: plan.Step{ID: "director.backup/add-near", Params: []byte(`{"target":"near","keep":3}`)},
		}
		handlers := Handlers(Env{BackupTargets: BackupTargets{DirectorBackups: s}})
		got := plan.OutcomeOf(handlers[step.DirectorBackup].Run(tt.ctx, r))
		told := strings.HasSuffix(got.Text, "directorctl skip p1 --step director.backup/add-near --reason WHY")
		if told != (tt.err != nil && tt.ctx.Err() == nil) {
			t.Errorf("%s: a person is told %q", name, got.Text)
		}
		got.Text = ""
		if got != tt.want || (said == "saved") != (tt.err == nil) || strings.Join(s.asked, " ") != "near3" {
			t.Errorf("%s: %+v, said %q, asked for %v", name, got, said, s.asked)
		}
	}
}

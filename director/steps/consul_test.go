package steps

import (
	"context"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// away is a Consul that does not answer.
type away struct{ asked int }

func (a *away) Register(context.Context, string, string) error {
	a.asked++
	return director.Errorf(director.KindUnavailable, "test", "consul:8501 does not answer")
}

func (a *away) Deregister(ctx context.Context, consul, uid string) error {
	return a.Register(ctx, consul, uid)
}

// A Consul that is away fails no plan: the step says who does the work.
func TestConsulIsAway(t *testing.T) {
	t.Parallel()
	var notes []string
	run := plan.Run{Note: func(_ context.Context, note string) { notes = append(notes, note) }}
	a := &away{}
	e := Env{Registrar: a}
	p := step.ConsulParams{Consul: "dc1", UID: "u1", Cluster: "demo"}
	for _, do := range []func(context.Context, plan.Run, step.ConsulParams) error{e.consulRegister, e.consulDeregister} {
		if err := do(t.Context(), run, p); err != nil {
			t.Error(err)
		}
	}
	if a.asked != 2 || len(notes) != 2 || !strings.Contains(notes[0], "Consul/dc1: consul:8501 does not answer") {
		t.Errorf("%d times asked; %q", a.asked, notes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.consulRegister(ctx, run, p); err == nil {
		t.Error("a run that is ended counts as done")
	}
	if err := (Env{}).consulRegister(t.Context(), run, p); err != nil {
		t.Errorf("a director that simulates: %v", err)
	}
}

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

func (a *away) MakeToken(ctx context.Context, uid string, t director.ConsulToken) (director.TokenState, error) {
	return "", a.Register(ctx, t.Consul, uid)
}

func (a *away) KeepToken(ctx context.Context, consul, uid, _ string) error {
	return a.Register(ctx, consul, uid)
}

func (a *away) EndSync(ctx context.Context, consul, uid string) error {
	return a.Register(ctx, consul, uid)
}

func (a *away) GossipKey(context.Context, string) (director.Secret, error) { return "", nil }

func (a *away) KeepAgents(ctx context.Context, consul, uid string) (director.TokenState, error) {
	return "", a.Register(ctx, consul, uid)
}

func (a *away) EndAgents(ctx context.Context, consul, uid string) error {
	return a.Register(ctx, consul, uid)
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
	for _, do := range []func(context.Context, plan.Run, step.ConsulParams) error{
		e.consul().consulRegister, e.consul().consulDeregister,
	} {
		if err := do(t.Context(), run, p); err != nil {
			t.Error(err)
		}
	}
	if a.asked != 2 || len(notes) != 2 || !strings.Contains(notes[0], "Consul/dc1: consul:8501 does not answer") {
		t.Errorf("%d times asked; %q", a.asked, notes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.consul().consulRegister(ctx, run, p); err == nil {
		t.Error("a run that is ended counts as done")
	}
	if err := (Env{}).consul().consulRegister(t.Context(), run, p); err != nil {
		t.Errorf("a director that simulates: %v", err)
	}
}

// tokens is a Consul that keeps tokens in memory.
type tokens struct {
	away
	err   error
	has   map[string]bool // accessors
	made  string          // accessor that the policy names
	ended []string
}

func (c *tokens) MakeToken(_ context.Context, _ string, t director.ConsulToken) (director.TokenState, error) {
	switch {
	case c.err != nil:
		return "", c.err
	case c.has == nil:
		return director.TokenNone, nil
	case !c.has[t.Accessor] && c.made == t.Accessor:
		return director.TokenRevoked, nil
	}
	c.has[t.Accessor], c.made = true, t.Accessor
	return director.TokenThere, nil
}

func (c *tokens) KeepToken(_ context.Context, _, _, accessor string) error {
	for a := range c.has {
		if a != accessor {
			delete(c.has, a)
		}
	}
	return nil
}

func (c *tokens) EndSync(_ context.Context, consul, _ string) error {
	c.ended = append(c.ended, consul)
	clear(c.has)
	return c.err
}

// The life of a token: each run again gives the same, a revoked one is not used again, and what is known of it is
// sealed.
func TestConsulToken(t *testing.T) {
	t.Parallel()
	var notes []string
	run := func(id string) plan.Run {
		return plan.Run{
			Plan: &plan.Plan{ID: id}, Note: func(_ context.Context, note string) { notes = append(notes, note) },
		}
	}
	c := &tokens{has: map[string]bool{}}
	e := Env{
		Registrar: c,
		Clusters:  Clusters{Keys: Keys{Secrets: vault{}, Sealer: &countingSealer{}}},
	}
	do := func(plan string, verb step.ConsulTokenVerb, consul string) director.ConsulToken {
		t.Helper()
		p := step.ConsulTokenParams{
			ConsulParams: step.ConsulParams{Consul: consul, UID: "u1", Cluster: "demo"}, Do: verb, Rules: "rules",
		}
		if err := e.consul().consulToken(t.Context(), run(plan), p); err != nil {
			t.Fatal(err)
		}
		have, _, err := e.ConsulToken(t.Context(), "u1")
		if err != nil {
			t.Fatal(err)
		}
		return have
	}
	first := do("p1", step.TokenMake, "dc1")
	if again := do("p2", step.TokenMake, "dc1"); again != first || first.Accessor == "" || len(c.has) != 1 {
		t.Errorf("another plan gives %+v after %+v", again, first)
	}
	second := do("p3", step.TokenRenew, "dc1")
	if again := do("p3", step.TokenRenew, "dc1"); again != second || second.Secret == first.Secret || len(c.has) != 2 {
		t.Errorf("a renewal gives %+v and %+v", second, again)
	}
	if do("p3", step.TokenSettle, "dc1"); len(c.has) != 1 || !c.has[second.Accessor] {
		t.Errorf("after the renewal Consul has %v", c.has)
	}
	clear(c.has)
	if third := do("p4", step.TokenMake, "dc1"); third.Secret == second.Secret || !c.has[third.Accessor] {
		t.Errorf("a token that was revoked is used again: %+v", third)
	}
	c.err = director.Errorf(director.KindUnavailable, "test", "dc1 does not answer")
	fourth := do("p5", step.TokenRenew, "dc1")
	if len(notes) != 1 || !strings.Contains(notes[0], "is left to the comparison of Consul/dc1") ||
		fourth.Plan != "p5" {
		t.Errorf("a Consul that is away: %q, %+v", notes, fourth)
	}
	if do("p6", step.TokenEnd, "dc2"); len(c.ended) != 1 {
		t.Errorf("ended %v", c.ended)
	}
	if left := do("p6", step.TokenEnd, "dc1"); left != (director.ConsulToken{}) {
		t.Errorf("after the end there is %+v", left)
	}
	c.err, c.has = nil, nil
	if none := do("p7", step.TokenMake, "dc1"); none.Secret != "" || none.Consul != "dc1" {
		t.Errorf("a Consul without ACLs: %+v", none)
	}
	c.err = director.Errorf(director.KindForbidden, "test", "the director may not make tokens")
	if err := e.consul().consulToken(t.Context(), run("p8"), step.ConsulTokenParams{
		ConsulParams: step.ConsulParams{Consul: "dc1", UID: "u1"}, Do: step.TokenMake,
	}); director.KindOf(err) != director.KindForbidden {
		t.Errorf("a right that is missing: %v", err)
	}
}

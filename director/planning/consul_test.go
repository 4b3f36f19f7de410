package planning

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
)

// catalog pretends a Consul, and notes what it was asked for.
type catalog struct {
	problems []director.Field
	err      error
	asked    []string
}

// TakenNodes implements Consuls.
func (c *catalog) TakenNodes(_ context.Context, consul string, machines []string) ([]director.Field, error) {
	c.asked = append([]string{consul}, machines...)
	return c.problems, c.err
}

// agentPlan is a plan that does this with the tokens of agents, and makes no VM.
func agentPlan(t *testing.T, do step.ConsulTokenVerb) *plan.Content {
	t.Helper()
	encode := func(v any) json.RawMessage {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return &plan.Content{
		Cluster: "demo", Facts: encode(step.Facts{Nodes: []plan.MachineSpec{{Name: "demo-master-1"}}}),
		Steps: []plan.Step{{Kind: step.ConsulAgents, Params: encode(step.ConsulTokenParams{
			ConsulParams: step.ConsulParams{Consul: "dc1"}, Do: do,
		})}},
	}
}

// A plan that runs agents of Consul is refused where others have nodes of these names. One that takes agents away asks
// for nothing, and a Consul that is away refuses none.
func TestNamesOfAgentsAreFree(t *testing.T) {
	t.Parallel()
	taken := []director.Field{{Path: "metadata.name", Msg: "taken", Hint: "choose another"}}
	away := director.Errorf(director.KindUnavailable, "test", "Consul does not answer")
	for name, tt := range map[string]struct {
		do    step.ConsulTokenVerb
		in    catalog
		asks  bool
		wants []director.Field
	}{
		"free":        {step.TokenMake, catalog{}, true, nil},
		"taken":       {step.TokenMake, catalog{problems: taken}, true, taken},
		"renewed":     {step.TokenRenew, catalog{problems: taken}, true, taken},
		"agents end":  {step.TokenEnd, catalog{problems: taken}, false, nil},
		"Consul away": {step.TokenMake, catalog{err: away}, true, nil},
	} {
		l := openLab(t, 0, 0)
		l.Consuls = &tt.in
		_, err := l.check(t.Context(), &snapshot.Snapshot{}, agentPlan(t, tt.do))
		if got := director.FieldsOf(err); !slices.Equal(got, tt.wants) || (err == nil) != (tt.wants == nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err != nil {
			servicetest.WantKind(t, err, director.KindInvalid)
		}
		if asked := slices.Equal(tt.in.asked, []string{"dc1", "demo-master-1"}); asked != tt.asks {
			t.Errorf("%s: asked for %v", name, tt.in.asked)
		}
	}
}

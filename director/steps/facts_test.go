package steps

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func planWithFacts(t *testing.T, id, node string) *plan.Plan {
	t.Helper()
	facts, err := json.Marshal(step.Facts{Cluster: "demo", Nodes: []plan.MachineSpec{{ID: "m1", Name: node}}})
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Content{Format: plan.Format, Facts: facts}
	return &plan.Plan{ID: id, Hash: plan.HashOf(c), Content: c}
}

// The facts of a plan are decoded for its first step alone, as long as few other plans run.
func TestFactsAreDecodedOnce(t *testing.T) {
	t.Parallel()
	var cache factsCache
	p := planWithFacts(t, "p", "demo-w-1")
	first := mustFacts(t, &cache, p)
	if again := mustFacts(t, &cache, planWithFacts(t, "p", "demo-w-1")); &again.Nodes[0] != &first.Nodes[0] {
		t.Error("the second step's facts were decoded anew")
	}
	if other := mustFacts(t, &cache, planWithFacts(t, "p", "demo-w-2")); other.Nodes[0].Name != "demo-w-2" {
		t.Errorf("another content has the facts of %s", other.Nodes[0].Name)
	}
	for i := range mostFacts {
		mustFacts(t, &cache, planWithFacts(t, fmt.Sprintf("p%d", i), "x"))
	}
	if again := mustFacts(t, &cache, p); &again.Nodes[0] == &first.Nodes[0] || again.Nodes[0].Name != "demo-w-1" {
		t.Error("the facts of a plan are kept for ever, or wrong")
	}
	if len(cache.kept) > mostFacts {
		t.Errorf("%d plans' facts are kept", len(cache.kept))
	}
	p.Format, p.Hash = plan.Format+1, "newer"
	if _, err := cache.of(p); err == nil {
		t.Error("the facts of a newer format were read")
	}
}

func mustFacts(t *testing.T, c *factsCache, p *plan.Plan) step.Facts {
	t.Helper()
	f, err := c.of(p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

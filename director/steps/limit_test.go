package steps

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func TestARunReadsTheVariablesOfItsNodesAndOfMasters(t *testing.T) {
	t.Parallel()
	facts := step.Facts{Nodes: []plan.MachineSpec{
		{Name: "m1", Role: director.RoleMaster},
		{Name: "m2", Role: director.RoleMaster},
		{Name: "w1", Role: director.RoleWorker},
		{Name: "w2", Role: director.RoleWorker},
	}}
	for name, tt := range map[string]struct{ limit, want []string }{
		"no limit":                 {},
		"a worker":                 {limit: []string{"w2"}, want: []string{"w2", "m1", "m2"}},
		"a master":                 {limit: []string{"m2"}, want: []string{"m2", "m1", "m2"}},
		"a group":                  {limit: []string{"master"}},
		"a worker and a pattern":   {limit: []string{"w1", "!w2"}},
		"a node that was left out": {limit: []string{"w3"}},
	} {
		if d := cmp.Diff(tt.want, nodesOf(facts, tt.limit)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

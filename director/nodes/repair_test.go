package nodes

import (
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// At most one node at a time, the mildest first, and rather nothing than too much.
func TestDecideOnARepair(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ill := func(node string, mend plan.Operation, minutes int) ailing {
		return ailing{
			node: node, problem: "it is ill", mend: mend, since: now.Add(-time.Duration(minutes) * time.Minute),
		}
	}
	past := func(id, node string, op plan.Operation, hours int, status plan.Status) pastRepair {
		return pastRepair{plan: id, node: node, op: op, at: now.Add(-time.Duration(hours) * time.Hour), status: status}
	}
	const rejoin, replace = plan.NodeRejoin, plan.NodeReplace
	for name, tt := range map[string]struct {
		ill  []ailing
		past []pastRepair
		op   plan.Operation
		node string
		why  string
		stop bool
	}{
		"well": {why: "all nodes are well"},
		"not yet": {
			ill: []ailing{ill("w1", rejoin, 9)},
			why: "w1 is ill (it is ill); it is mended if that is so until 12:01:00",
		},
		"long enough":         {ill: []ailing{ill("w1", rejoin, 10)}, op: rejoin, node: "w1"},
		"the one that is due": {ill: []ailing{ill("w1", rejoin, 1), ill("w2", replace, 30)}, op: replace, node: "w2"},
		"one at a time":       {ill: []ailing{ill("w1", rejoin, 30), ill("w2", rejoin, 40)}, op: rejoin, node: "w1"},
		"too many": {
			ill: []ailing{ill("w1", rejoin, 30), ill("w2", rejoin, 1), ill("w3", rejoin, 1)}, stop: true,
			why: "3 of 5 nodes are ill at once",
		},
		"switching on was vain": {
			ill: []ailing{ill("w1", rejoin, 10)}, past: []pastRepair{past("p1", "w1", rejoin, 1, plan.StatusDone)},
			op: replace, node: "w1",
		},
		"switching on failed": {
			ill: []ailing{ill("w1", rejoin, 10)}, past: []pastRepair{past("p1", "w1", rejoin, 1, plan.StatusFailed)},
			op: replace, node: "w1",
		},
		"recreating was vain": {
			ill: []ailing{ill("w1", rejoin, 10)}, past: []pastRepair{past("p1", "w1", replace, 1, plan.StatusDone)},
			stop: true, why: "w1 was recreated by plan p1 and is ill again",
		},
		"another one is ill too": {
			ill:  []ailing{ill("w1", rejoin, 10), ill("w2", rejoin, 10)},
			past: []pastRepair{past("p1", "w1", replace, 1, plan.StatusDone)}, op: rejoin, node: "w2",
		},
		"a repair failed": {
			ill: []ailing{ill("w2", rejoin, 10)}, past: []pastRepair{past("p1", "w1", replace, 1, plan.StatusFailed)},
			stop: true, why: "plan p1, which was to mend w1, is failed",
		},
		"a person gave one up": {
			ill:  []ailing{ill("w2", rejoin, 10)},
			past: []pastRepair{past("p1", "w1", replace, 1, plan.StatusDiscarded)},
			op:   rejoin, node: "w2",
		},
		"a repair is to be approved": {
			ill: []ailing{ill("w1", replace, 10)}, past: []pastRepair{past("p1", "w1", replace, 0, plan.StatusPlanned)},
			stop: true, why: "plan p1 is to mend w1 and has to be approved",
		},
		"the budget is used up": {
			ill: []ailing{ill("w3", rejoin, 10)}, stop: true,
			why: "w3 is ill (it is ill), and the budget of 2 repairs a day is used up until 2026-03-02 08:00:00",
			past: []pastRepair{
				past("p2", "w2", replace, 1, plan.StatusDone), past("p1", "w1", replace, 4, plan.StatusDone),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			care := model.Repair{Auto: true, After: model.Duration(10 * time.Minute), MaxPerDay: 2, MaxUnhealthy: 40}
			got := ward{care: care, now: now, members: 5, ill: tt.ill, past: tt.past}.decide()
			if got.op != tt.op || got.node != tt.node || got.stop != tt.stop || !strings.HasPrefix(got.why, tt.why) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// What cannot be asked is not ill.
func TestUnsure(t *testing.T) {
	t.Parallel()
	on := []Node{{Name: "w1", Power: "on"}, {Name: "w2", Power: "missing"}}
	for name, tt := range map[string]struct {
		view View
		want string
	}{
		"sure":         {view: View{Nodes: on}},
		"pretended":    {view: View{Nodes: on, Unseen: pretends}},
		"a plan works": {view: View{Nodes: on, Plan: "p1"}, want: "plan p1 holds"},
		"the API is away": {
			view: View{Nodes: on, Unseen: "no answer"}, want: "the state of the nodes is unknown: no answer",
		},
		"the hypervisor is so": {
			view: View{Nodes: []Node{{Name: "w1"}}}, want: "the state of the VMs is unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := unsure(tt.view); (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

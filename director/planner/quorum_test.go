package planner

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// No strategy touches a master without whom etcd would lose its quorum, or while nobody sees the others, whichever
// master is the one that is not well.
func TestEveryStrategyKeepsTheQuorum(t *testing.T) {
	t.Parallel()
	sick := func(names ...string) func(*World) {
		return func(w *World) {
			for _, n := range names {
				w.Seen[n] = Seen{Ready: true} // the node is ready and its etcd member is not
			}
		}
	}
	blind := func(w *World) { w.Seen, w.Blind = nil, "connection refused" }
	gone := func(w *World) { w.Machines[2].Kubernetes, w.Machines[2].State = "", director.MachineDetached }
	const m1, m2, m3 = "demo-master-1", "demo-master-2", "demo-master-3"
	const refused, allowed = "lose its quorum", ""
	tests := map[string]struct {
		masters                        int
		change                         func(*World)
		inPlace, reconstitute, replace string // what the refusal says
	}{
		"all are well":        {3, func(*World) {}, allowed, allowed, allowed},
		"the first is not":    {3, sick(m1), refused, refused, allowed},
		"the second is not":   {3, sick(m2), refused, refused, allowed},
		"the last is not":     {3, sick(m3), refused, refused, allowed},
		"two are not":         {3, sick(m1, m3), refused, refused, refused},
		"one of five is not":  {5, sick(m2), allowed, allowed, allowed},
		"two of five are not": {5, sick(m2, m3), refused, refused, allowed},
		"nobody sees them":    {3, blind, "connection refused", "connection refused", "connection refused"},
		"one of three is out": {3, gone, allowed, "would have 1 of the 3 masters", allowed},
		"one of two is not": {3, func(w *World) {
			gone(w)
			sick(m2)(w)
		}, refused, refused, refused},
		"the only one": {1, func(*World) {}, allowed, allowed, allowed},
	}
	for name, tt := range tests {
		for strategy, says := range map[string]string{
			model.UpgradeInPlace: tt.inPlace, model.UpgradeReconstitute: tt.reconstitute,
			model.UpgradeReplace: tt.replace,
		} {
			t.Run(name+" "+strategy, func(t *testing.T) {
				t.Parallel()
				w := running(t, tt.masters, 1, v)
				release(&w, "v1.38.0")
				w.Cluster.Cluster.Maintenance.Strategy = strategy
				tt.change(&w)
				c, err := Apply(w, plan.Request{})
				if says == "" {
					ids(t, c, err)
					return
				}
				if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), says) ||
					director.HintOf(err) == "" {
					t.Errorf("got %v (hint %q), want a conflict that says %q", err, director.HintOf(err), says)
				}
			})
		}
	}
}

// A scale that adds masters and takes others out counts the new ones, and is refused like any other while the masters
// cannot be seen.
func TestQuorumBehindNewMasters(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 0, v)
	d := w.draft(plan.ClusterScale)
	if err := d.quorumWith(w.sized(w.Machines[0]), map[string]bool{}, 2); err != nil {
		t.Errorf("with two masters more: %v", err)
	}
	w.Seen, w.Blind = nil, "connection refused"
	d = w.draft(plan.ClusterScale)
	if err := d.quorumWith(
		w.sized(w.Machines[0]), map[string]bool{}, 2,
	); director.KindOf(err) != director.KindConflict {
		t.Errorf("while nobody sees the masters: %v", err)
	}
}

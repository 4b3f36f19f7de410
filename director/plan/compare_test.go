package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareNamesWhatIsNewAndWhatIsGone(t *testing.T) {
	t.Parallel()
	effect := func(verb, name string) Effect { return Effect{Verb: verb, Object: "vm", Name: name} }
	step := func(id string, all ...Effect) Step { return Step{ID: id, Effects: all} }
	was := Plan{Hash: "a", Content: Content{
		Models:    []ModelRef{{"Cluster", "demo", 1}, {"Network", "net", 4}},
		Approvals: []string{"one is deleted"},
		Machines:  []Machine{{Name: "one", Address: "10.0.0.1"}},
		Steps:     []Step{step("vm/one", effect("create", "one"), effect("keep", "disk")), step("check")},
	}}
	is := Plan{Hash: "b", Content: Content{
		Models:    []ModelRef{{"Cluster", "demo", 2}, {"Network", "net", 4}},
		Approvals: []string{"one is deleted", "two is deleted"},
		Machines:  []Machine{{Name: "one", Address: "10.0.0.2"}},
		Steps: []Step{
			step("vm/one", effect("create", "one")), step("vm/two", effect("delete", "two"), effect("delete", "two")),
			step("check"),
		},
	}}
	want := Comparison{
		Reasons: []string{
			"Cluster/demo has changed (now generation 2)", "one would get 10.0.0.2 instead of 10.0.0.1",
			"it would have 3 steps instead of 2",
		},
		EffectsGone: []Effect{effect("keep", "disk")}, EffectsNew: []Effect{effect("delete", "two")},
		ApprovalsNew: []string{"two is deleted"},
		StepsNew:     []Step{is.Steps[1]},
	}
	if diff := cmp.Diff(want, Compare(was, is)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Comparison{Same: true}, Compare(was, was)); diff != "" {
		t.Error(diff)
	}
}

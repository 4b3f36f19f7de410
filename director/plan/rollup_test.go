package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rolled is a plan of two nodes, of which the second has failed.
func rolled() (Plan, State) {
	p := Plan{Content: Content{Steps: []Step{
		{ID: "network.ensure/net", Kind: "network.ensure", Title: "Make network net"},
		{ID: "vm.ensure/a", Kind: "vm.ensure", Node: "a"},
		{ID: "vm.ensure/b", Kind: "vm.ensure", Node: "b"},
		{ID: "join/a", Kind: "ansible.play", Node: "a"},
		{ID: "join/b", Kind: "ansible.play", Node: "b"},
		{ID: "vm.ensure/a/2", Kind: "vm.ensure", Node: "a"},
	}}}
	s := NewState(&p)
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for i, status := range []StepStatus{Done, Done, Done, Pending, Failed, Done} {
		s.Steps[i].Status = status
		if status != Pending {
			s.Steps[i].StartedAt, s.Steps[i].FinishedAt = at(i+1), at(i+10)
		}
	}
	s.Steps[4].Message = "The node does not answer"
	return p, s
}

func TestRollup(t *testing.T) {
	t.Parallel()
	p, s := rolled()
	m := Rollup(&p, &s)
	var got []string
	for _, g := range m.Groups {
		got = append(got, fmt.Sprint(g.Name, " ", g.Kind, " ", g.Counts))
	}
	for _, r := range m.Rows {
		got = append(got, fmt.Sprintf("%q is %s", r.Node, r.Status))
		for _, c := range r.Cells {
			finished := int64(0)
			if !c.Finished.IsZero() {
				finished = c.Finished.Unix()
			}
			got = append(got, fmt.Sprintf(
				"  %s %s %d/%d %s %d", m.Groups[c.Group].Name, c.Status, c.Done, c.Steps, c.First, finished,
			))
		}
	}
	want := []string{
		"network.ensure network.ensure map[done:1]", "vm.ensure vm.ensure map[done:3]",
		"join ansible.play map[failed:1 pending:1]",
		`"" is done`, "  network.ensure done 1/1 network.ensure/net 10",
		`"a" is pending`, "  vm.ensure done 2/2 vm.ensure/a 15", "  join pending 0/1 join/a 0",
		`"b" is failed`, "  vm.ensure done 1/1 vm.ensure/b 12", "  join failed 0/1 join/b 14",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, status := range StepStatuses() {
		if worse(status, Done) != status || worse(Done, status) != status {
			t.Errorf("%s has no urgency", status)
		}
	}
}

func TestStepFilter(t *testing.T) {
	t.Parallel()
	p, s := rolled()
	for name, c := range map[string]struct {
		f    StepFilter
		want []int
	}{
		"all":         {StepFilter{}, []int{0, 1, 2, 3, 4, 5}},
		"a node":      {StepFilter{Nodes: []string{"b"}}, []int{2, 4}},
		"the cluster": {StepFilter{Nodes: []string{NoNode}}, []int{0}},
		"a group":     {StepFilter{Groups: []string{"join"}}, []int{3, 4}},
		"a kind":      {StepFilter{Kinds: []string{"ansible.play"}}, []int{3, 4}},
		"statuses":    {StepFilter{Statuses: []StepStatus{Failed, Pending}}, []int{3, 4}},
		"a message":   {StepFilter{Text: "DOES NOT"}, []int{4}},
		"a title":     {StepFilter{Text: "make network"}, []int{0}},
		"ids":         {StepFilter{IDs: []string{"join/b", "vm.ensure/a"}}, []int{1, 4}},
		"started":     {StepFilter{Started: true}, []int{0, 1, 2, 4, 5}},
		"nothing":     {StepFilter{Text: "nothing"}, nil},
	} {
		if diff := cmp.Diff(c.want, c.f.Select(&p, &s)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := (StepFilter{}).Select(&p, &State{}); len(got) != len(p.Steps) {
		t.Errorf("without a state: %v", got)
	}
}

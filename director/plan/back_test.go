package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// returning is a rolling plan in which each node has a way back: what an upgrade did, and what a drain did.
func returning(nodes int, w Window) *Plan {
	p := rolling(nodes, w)
	p.Cluster = "demo"
	var steps []Step
	for i := 0; i < len(p.Steps); i += 2 {
		drain, upgrade := p.Steps[i], p.Steps[i+1]
		name := drain.Node
		give := Step{ID: "uncordon/" + name, Node: name, Window: w.ID, Needs: []string{upgrade.ID}}
		remake := Step{ID: UndoID("remake", name), Node: name, Window: w.ID, Undoes: []string{upgrade.ID}}
		use := Step{
			ID: UndoID("uncordon", name), Node: name, Window: w.ID, Undoes: []string{drain.ID, upgrade.ID},
			Needs: []string{remake.ID},
		}
		steps = append(steps, drain, upgrade, give, remake, use)
	}
	p.Steps = append(steps, Step{ID: "verify", Needs: []string{"uncordon/n0"}})
	return p
}

func TestReturningPlansCheck(t *testing.T) {
	t.Parallel()
	good := returning(2, Window{ID: "w", Size: 1})
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		spoil func(steps []Step)
		want  string
	}{
		"of another node": {
			func(s []Step) { s[3].Undoes = []string{"upgrade/n1"} }, "no step of its node before it",
		},
		"of a rollback step": {
			func(s []Step) { s[4].Undoes = []string{s[3].ID} }, "no step of its node before it",
		},
		"needs what goes forward": {
			func(s []Step) { s[3].Needs = []string{"drain/n0"} }, "needs \"drain/n0\", which does not",
		},
		"needed by what continues": {func(s []Step) { s[10].Needs = []string{s[4].ID} }, "only runs after a failure"},
		"without the mark":         {func(s []Step) { s[4].ID = "use/n0" }, "if and only if"},
		"the mark and no way back": {func(s []Step) { s[10].ID = "verify-undo/x" }, "if and only if"},
		"outside of a window":      {func(s []Step) { s[3].Window = "" }, "of no node in a window"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := returning(2, Window{ID: "w", Size: 1})
			tt.spoil(p.Steps)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWayBack(t *testing.T) {
	t.Parallel()
	w := Window{ID: "w", Size: 2}
	for name, tt := range map[string]struct {
		status Status
		have   map[string]StepStatus
		want   []string
	}{
		"nothing goes back while all is well": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Running, "drain/n1": Done},
			[]string{"upgrade/n1"},
		},
		"from the first of what the failed step left; the neighbour continues": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "drain/n1": Done},
			[]string{"remake-undo/n0", "upgrade/n1"},
		},
		"what was not begun is not undone": {
			StatusRunning, map[string]StepStatus{"drain/n0": Failed}, []string{"uncordon-undo/n0"},
		},
		"one after the other": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Running},
			nil,
		},
		"to the end": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Done},
			[]string{"uncordon-undo/n0"},
		},
		"not past what a person has to mend": {
			StatusRunning, map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Parked}, nil,
		},
		"but past what a person leaves out": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Skipped},
			[]string{"uncordon-undo/n0"},
		},
		"what is through its gate stays": {
			StatusRunning, map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Done, "uncordon/n0": Failed}, nil,
		},
		"no step back begins of a person's skip": {
			StatusRunning,
			map[string]StepStatus{
				"remake-undo/n0": Skipped, "drain/n0": Done, "upgrade/n0": Running,
				"drain/n1": Running,
			},
			nil,
		},
		"a parked step waits for a person, and nothing goes back": {
			StatusRunning, map[string]StepStatus{"drain/n0": Parked, "drain/n1": Running}, nil,
		},
		"a plan that is undone brings back what is half way alone": {
			StatusUndoing,
			map[string]StepStatus{
				"drain/n0": Done, "upgrade/n0": Done, "uncordon/n0": Done, "drain/n1": Done, "upgrade/n1": Parked,
			},
			[]string{"remake-undo/n1"},
		},
		"and waits for what still runs": {
			StatusUndoing, map[string]StepStatus{"drain/n1": Done, "upgrade/n1": Running}, nil,
		},
		"a way back that was begun continues whatever status it was stopped in, and nothing new begins": {
			StatusRunning,
			map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Waiting, "remake-undo/n0": Done},
			[]string{"uncordon-undo/n0"},
		},
		"nothing while it is paused": {
			StatusPaused, map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := returning(2, w)
			s := moved(p, tt.status, tt.have)
			got := Ready(p, &s, time.Now())
			want := tt.want
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEndsAfterAWayBack(t *testing.T) {
	t.Parallel()
	p := returning(3, Window{ID: "w", Size: 1, Goal: "run v2"})
	through := map[string]StepStatus{
		"drain/n0": Done, "upgrade/n0": Done, "uncordon/n0": Done, "drain/n1": Done, "upgrade/n1": Failed,
		"verify": Done,
	}
	with := func(more map[string]StepStatus) map[string]StepStatus {
		out := map[string]StepStatus{}
		for _, m := range []map[string]StepStatus{through, more} {
			for k, v := range m {
				out[k] = v
			}
		}
		return out
	}
	for name, tt := range map[string]struct {
		status Status
		have   map[string]StepStatus
		want   EventKind
		text   string
	}{
		"it continues while it goes back": {StatusRunning, with(map[string]StepStatus{"remake-undo/n1": Done}), "", ""},
		"put back": {
			StatusRunning, with(map[string]StepStatus{"remake-undo/n1": Done, "uncordon-undo/n1": Done}), PlanFailed,
			"upgrade/n1: broke. n1: rolled back, and in use; of the w 1 run v2, 1 are not begun",
		},
		"a rollback step that failed": {
			StatusRunning, with(map[string]StepStatus{"remake-undo/n1": Parked}), PlanParked, "remake-undo/n1: broke",
		},
		"stopped by a person on its way": {
			StatusCancelling, with(map[string]StepStatus{"remake-undo/n1": Done}), PlanFailed,
			"upgrade/n1: broke. n1: not rolled back yet; of the w 1 run v2, 1 are not begun",
		},
		"a rollback step failed in an undo": {
			StatusUndoing, with(map[string]StepStatus{"remake-undo/n1": Parked}), PlanFailed, "remake-undo/n1: broke",
		},
		"undone": {
			StatusUndoing, with(map[string]StepStatus{"remake-undo/n1": Done, "uncordon-undo/n1": Done}), PlanUndone,
			"everything that can be undone is undone",
		},
		"rollback steps that were not needed": {
			StatusRunning, map[string]StepStatus{
				"drain/n0": Done, "upgrade/n0": Done, "uncordon/n0": Done, "drain/n1": Done, "upgrade/n1": Done,
				"uncordon/n1": Done,
				"drain/n2":    Done, "upgrade/n2": Done, "uncordon/n2": Done, "verify": Done,
			}, PlanDone, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := moved(p, tt.status, tt.have)
			for i := range s.Steps {
				if st := &s.Steps[i]; st.Status == Failed || st.Status == Parked {
					st.Message = "broke"
				}
			}
			ev, due := Settle(p, &s)
			if due != (tt.want != "") || ev.Kind != tt.want && due || ev.Message != tt.text && due {
				t.Errorf("got %v %s %q, want %s %q", due, ev.Kind, ev.Message, tt.want, tt.text)
			}
			if strings.Contains(tt.text, "put back") &&
				ev.Hint != "fix the cause; then go on from there: directorctl plan demo" {
				t.Errorf("the hint is %q", ev.Hint)
			}
		})
	}
}

func TestStepsBackCountWhenTheyAreNeeded(t *testing.T) {
	t.Parallel()
	p := returning(2, Window{ID: "w", Size: 1})
	for want, have := range map[[2]int]map[string]StepStatus{
		{1, 7}: {"drain/n0": Done},
		{2, 8}: {"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Done},
	} {
		s := moved(p, StatusRunning, have)
		if done, total := Count(p, &s); [2]int{done, total} != want {
			t.Errorf("got %d of %d, want %v", done, total, want)
		}
	}
	s := moved(p, StatusFailed, map[string]StepStatus{"drain/n0": Done, "upgrade/n0": Failed, "remake-undo/n0": Done})
	if got := Returning(p, &s); len(got) != 3 || !got["drain/n0"] || got["drain/n1"] {
		t.Errorf("returning are %v", got)
	}
	if !Resumable(p, &s) {
		t.Error("a way back that was stopped cannot continue")
	}
	s.Step("uncordon-undo/n0").Status = Done
	if Resumable(p, &s) {
		t.Error("a plan whose node was rolled back can continue")
	}
	if CriticalPath(p.Steps) != 0 || p.Steps[3].Class() != "remake" {
		t.Error("a rollback step is of another class, or counts in the estimate")
	}
}

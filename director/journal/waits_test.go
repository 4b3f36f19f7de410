package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// What plans wait for is listed over all of them, with who ends each wait; what can no longer be started waits for
// nothing.
func TestWaits(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx := t.Context()
	read := func(q WaitQuery) []string {
		t.Helper()
		list, err := s.Waits(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, w := range list {
			out = append(out, w.Plan+" "+w.Cluster+" "+w.Kind+" "+w.Step)
		}
		return out
	}
	mine, runs := "p2 other person ", "p1 demo director "+play
	for name, c := range map[string]struct {
		q    WaitQuery
		want []string
	}{
		"all":       {WaitQuery{}, []string{mine, runs}},
		"a person":  {WaitQuery{Owner: OwnerPerson}, []string{mine}},
		"director":  {WaitQuery{Owner: OwnerDirector}, []string{runs}},
		"plans":     {WaitQuery{Owner: OwnerPlan}, nil},
		"a cluster": {WaitQuery{Cluster: "demo"}, []string{runs}},
		"no grant":  {WaitQuery{Visible: &director.Visible{}}, nil},
	} {
		if diff := cmp.Diff(c.want, read(c.q)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	s.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	if diff := cmp.Diff([]string{runs}, read(WaitQuery{})); diff != "" {
		t.Errorf("after the life of a plan: %s", diff)
	}
	counts, err := s.PlanCounts(ctx, nil)
	if diff := cmp.Diff(map[string]int{"planned": 1, "running": 1}, counts); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}

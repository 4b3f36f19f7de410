package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

func TestServiceAccountKeyIsRotated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		names KeyNames
		key   string
		added bool
	}{
		"another key":             {KeyNames{Keys: []string{"key1"}}, "key2", true},
		"a name is used once":     {KeyNames{Keys: []string{"key2"}, Former: []string{"key1", "key3"}}, "key4", true},
		"stopped before its use":  {KeyNames{Keys: []string{"key1", "key2"}}, "key2", false},
		"stopped before the drop": {KeyNames{Keys: []string{"key2", "key1"}}, "key2", false},
	} {
		w := backedUp(t, 3, 1, "offsite")
		w.Signing = tt.names
		c, err := RotateServiceAccountKey(w, plan.Request{Operation: plan.ClusterSigningKey})
		want := []string{"backup/demo", "backup.store/offsite"}
		if tt.added {
			want = append(want, "signing.key/add")
		}
		each := func(id string) {
			for _, m := range []string{"demo-master-1", "demo-master-2", "demo-master-3"} {
				want = append(want, "service_account_"+id+"/"+m)
			}
		}
		each("accept")
		want = append(want, "signing.key/use")
		each("sign")
		want = append(want, "service_account_tokens/demo", "signing.key/drop")
		each("refuse")
		want = append(want, "kube.ready/demo")
		if got := ids(t, c, err); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		// One after another: each stage rests on the one before, and so does each master.
		for i, s := range c.Steps[1:] {
			if !slices.Equal(s.Needs, []string{c.Steps[i].ID}) {
				t.Errorf("%s: %s needs %v", name, s.ID, s.Needs)
			}
		}
		if use, _ := (&plan.Plan{Content: c}).Step("signing.key/use"); !strings.Contains(string(use.Params), tt.key) {
			t.Errorf("%s: %s", name, use.Params)
		}
	}
}

func TestServiceAccountKeyIsNotRotated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*World)
		want   string
	}{
		"not installed":      {func(w *World) { w.Installed = nil }, "is not installed"},
		"no answer":          {func(w *World) { w.Blind = "connection refused" }, "does not answer"},
		"a master is off":    {func(w *World) { w.Seen["demo-master-2"] = Seen{} }, "demo-master-2 is not ready"},
		"half of an upgrade": {func(w *World) { w.Machines[0].Kubernetes = "v1.36.4" }, "its document wants"},
	} {
		w := backedUp(t, 3, 1)
		w.Signing = KeyNames{Keys: []string{"key1"}}
		tt.change(&w)
		_, err := RotateServiceAccountKey(w, plan.Request{Operation: plan.ClusterSigningKey})
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

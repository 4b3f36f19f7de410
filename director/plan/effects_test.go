package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEffects tells each effect once, and what has the same name but is another thing as well.
func TestEffects(t *testing.T) {
	t.Parallel()
	p := Plan{Content: Content{Steps: []Step{
		{Effects: []Effect{{Verb: "create", Object: "vm", Name: "a"}, {Verb: "delete", Object: "vm", Name: "b"}}},
		{Effects: []Effect{{Verb: "create", Object: "vm", Name: "a"}}}, // of another step, told once
		{},
		{Effects: []Effect{{Verb: "create", Object: "address", Name: "a", Detail: "10.0.0.1"}}},
		{Effects: []Effect{{Verb: "create", Object: "vm", Name: "c"}}},
	}}}
	want := []EffectGroup{
		{Verb: "create", Object: "vm", Names: []string{"a", "c"}},
		{Verb: "delete", Object: "vm", Names: []string{"b"}},
		{Verb: "create", Object: "address", Names: []string{"a (10.0.0.1)"}},
	}
	if diff := cmp.Diff(want, p.Effects()); diff != "" {
		t.Error(diff)
	}
}

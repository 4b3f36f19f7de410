package hypervisor_test

import (
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func TestSnapshotGuard(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	aged := func(d ...time.Duration) (out []hypervisor.Snapshot) {
		for _, x := range d {
			out = append(out, hypervisor.Snapshot{Name: "s", Created: now.Add(-x)})
		}
		return out
	}
	for name, tt := range map[string]struct {
		have []hypervisor.Snapshot
		free int64
		kind director.Kind // empty if it may be taken
	}{
		"the first":       {nil, 10, ""},
		"one more":        {aged(time.Hour, 71*time.Hour), 10, ""},
		"one is old":      {aged(time.Hour, 73*time.Hour), 10, director.KindConflict},
		"too many":        {aged(1, 2, 3), 10, director.KindConflict},
		"too little room": {nil, 9, director.KindExhausted},
	} {
		err := hypervisor.DefaultSnapshotGuard().Check("test", "vm", tt.have, now, tt.free, 10)
		if (err == nil) != (tt.kind == "") ||
			err != nil && (director.KindOf(err) != tt.kind || director.HintOf(err) == "") {
			t.Errorf("%s: %v, want %s", name, err, tt.kind)
		}
	}
	both := []hypervisor.Snapshot{{Name: "a", Created: now}, {Name: "a", Ours: true}}
	if s, found := hypervisor.FindSnapshot(both, "a"); !found || !s.Ours {
		t.Errorf("found %+v, %t", s, found)
	}
	if _, found := hypervisor.FindSnapshot(both, "b"); found {
		t.Error("one that is not there was found")
	}
}

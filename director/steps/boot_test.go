package steps

import (
	"context"
	"errors"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// sight is what a hypervisor sees of a guest.
type sight struct {
	probes []hypervisor.Probe
	err    error
}

func (s sight) Diagnose(context.Context, hypervisor.ID) ([]hypervisor.Probe, error) {
	return s.probes, s.err
}

// What the hypervisor sees of a guest that does not come up is part of the error, and what to do about it comes first.
func TestBootIsDiagnosed(t *testing.T) {
	t.Parallel()
	wrong := func(msg, hint string) hypervisor.Probe {
		return hypervisor.Probe{
			What: "x", Err: director.Errorf(director.KindInvalid, "test", "%s", msg).WithHint("%s", hint),
		}
	}
	for name, tt := range map[string]struct {
		sight     sight
		msg, hint string
	}{
		"nothing": {
			sight{probes: []hypervisor.Probe{{What: "power", Found: "on"}}},
			"n1 did not come up",
			"look at the console",
		},
		"no look": {sight{err: errors.New("no")}, "n1 did not come up", "look at the console"},
		"tools": {
			sight{probes: []hypervisor.Probe{wrong("no tools", "install them")}},
			"n1 did not come up; no tools",
			"install them; look at the console",
		},
		"two": {
			sight{probes: []hypervisor.Probe{wrong("a", ""), wrong("b", "mend b"), wrong("c", "mend c")}},
			"n1 did not come up; a; b; c", "mend b; look at the console",
		},
		"another error": {
			sight{probes: []hypervisor.Probe{{What: "x", Err: errors.New("raw")}}},
			"n1 did not come up",
			"look at the console",
		},
	} {
		err := director.Errorf(director.KindUnavailable, "vm.boot", "n1 did not come up").
			WithHint("look at the console")
		diagnosed(t.Context(), err, tt.sight, "id")
		if err.Msg != tt.msg || err.Hint != tt.hint {
			t.Errorf("%s: %q (%s), want %q (%s)", name, err.Msg, err.Hint, tt.msg, tt.hint)
		}
	}
}

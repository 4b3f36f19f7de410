package steps

import (
	"context"
	"errors"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// diagnosis is what a hypervisor sees of a guest.
type diagnosis struct {
	probes []hypervisor.Probe
	err    error
}

func (s diagnosis) Diagnose(context.Context, hypervisor.ID) ([]hypervisor.Probe, error) {
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
		diagnosis diagnosis
		msg, hint string
	}{
		"nothing": {
			diagnosis{probes: []hypervisor.Probe{{What: "power", Found: "on"}}},
			"n1 did not come up",
			"look at the console",
		},
		"no look": {diagnosis{err: errors.New("no")}, "n1 did not come up", "look at the console"},
		"tools": {
			diagnosis{probes: []hypervisor.Probe{wrong("no tools", "install them")}},
			"n1 did not come up; no tools",
			"install them; look at the console",
		},
		"two": {
			diagnosis{probes: []hypervisor.Probe{wrong("a", ""), wrong("b", "mend b"), wrong("c", "mend c")}},
			"n1 did not come up; a; b; c", "mend b; look at the console",
		},
		"another error": {
			diagnosis{probes: []hypervisor.Probe{{What: "x", Err: errors.New("raw")}}},
			"n1 did not come up",
			"look at the console",
		},
	} {
		err := director.Errorf(director.KindUnavailable, "vm.boot", "n1 did not come up").
			WithHint("look at the console")
		diagnosed(t.Context(), err, tt.diagnosis, "id")
		if err.Msg != tt.msg || err.Hint != tt.hint {
			t.Errorf("%s: %q (%s), want %q (%s)", name, err.Msg, err.Hint, tt.msg, tt.hint)
		}
	}
}

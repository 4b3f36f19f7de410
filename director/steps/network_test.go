package steps

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

var prefix = netip.MustParsePrefix("10.88.0.0/24")

type oneBackend struct{ b hypervisor.Backend }

func (o oneBackend) Backend(context.Context, string) (hypervisor.Backend, error) { return o.b, nil }

// reserved is a ledger in which a cluster has machines on every network; "" for none.
type reserved struct {
	Ledger
	cluster string
}

func (r reserved) NetworkUser(context.Context, string, string) (string, error) { return r.cluster, nil }

// Whether a network can go is decided when it goes: a creation may have been started since the plan of the deletion was
// made.
func TestANetworkStaysForWhoeverUsesItNow(t *testing.T) {
	t.Parallel()
	world := sim.NewWorld(sim.Host{Name: "h1", CPUs: 8, Memory: 1 << 36, Disk: 1 << 40})
	p := step.NetworkParams{
		Provider: "lab", Name: "demo", UID: "u1",
		Network: model.Network{Mode: "nat", CIDR: prefix, Gateway: netip.MustParseAddr("10.88.0.1")},
	}
	var notes []string
	r := plan.Run{Note: func(_ context.Context, text string) { notes = append(notes, text) }}
	env := Env{
		Installation: Installation{Director: "d1"},
		Machines:     Machines{Backends: oneBackend{sim.Open(world)}, Ledger: reserved{cluster: "other"}},
	}
	there := func() bool { return strings.Contains(strings.Join(world.Inventory(""), "\n"), "network") }

	if err := env.sources().networkEnsure(t.Context(), r, p); err != nil || !there() {
		t.Fatalf("the network was not made: %v, %v", err, world.Inventory(""))
	}
	if err := env.sources().networkDelete(
		t.Context(), r, p,
	); err != nil || !there() || len(notes) != 1 || !strings.Contains(notes[0], "other") {
		t.Errorf("used by another cluster: %v, notes %q, %v", err, notes, world.Inventory(""))
	}
	env.Ledger = reserved{}
	if err := env.sources().networkDelete(t.Context(), r, p); err != nil || there() {
		t.Errorf("used by nobody: %v, %v", err, world.Inventory(""))
	}
}

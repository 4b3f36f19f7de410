package steps

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Nodes let the director in at each address that it reaches one of them from.
func TestDirectorAddresses(t *testing.T) {
	t.Parallel()
	facts := step.Facts{}
	for _, address := range []string{"10.0.1.7", "10.0.0.5", "10.0.1.8", "192.0.2.1", "not known yet"} {
		node := plan.MachineSpec{}
		node.Address = address
		facts.Nodes = append(facts.Nodes, node)
	}
	routes := func(other netip.Addr) (netip.Addr, bool) {
		for _, local := range []string{"10.0.0.1", "10.0.1.1"} {
			if netip.PrefixFrom(netip.MustParseAddr(local), 24).Masked().Contains(other) {
				return netip.MustParseAddr(local), true
			}
		}
		return netip.Addr{}, false
	}
	got := Env{Playbooks: Playbooks{LocalAddress: routes}}.plays().directorAddresses(facts)
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.1.1"}, got); diff != "" {
		t.Error(diff)
	}
	if got := (Env{}).plays().directorAddresses(facts); got != nil {
		t.Errorf("without routes: %v", got)
	}
}

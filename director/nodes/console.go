package nodes

import (
	"context"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// MostConsole is how much of a console can be asked for, in bytes.
const MostConsole = 256 << 10

// Console returns the end of what the node's VM has printed on its serial console, at most that many bytes of valid
// UTF-8. Control sequences are in it. It is empty for a VM that has printed nothing. Errors: not_found if there is no
// such node or VM, invalid if the provider keeps no consoles.
func (s *Service) Console(ctx context.Context, cluster, node string, most int) (string, error) {
	const op = "nodes.console"
	w, err := s.Worlds.Members(ctx, cluster)
	if err != nil {
		return "", err
	}
	for _, m := range w.Nodes() {
		if m.Name != node {
			continue
		}
		b, err := s.Worlds.View(ctx, w)
		if err != nil {
			return "", err
		}
		console, ok := hypervisor.Capability[hypervisor.Console](b)
		if !ok {
			return "", director.Errorf(
				director.KindInvalid, op, "provider %s keeps nothing of what VMs print", m.Provider,
			).
				WithHint("look at the console with the hypervisor's own tools")
		}
		vms, err := b.List(ctx, hypervisor.Filter{Director: s.Director, Machine: m.ID})
		if err != nil {
			return "", err
		}
		if len(vms) != 1 {
			return "", director.Errorf(
				director.KindNotFound, op, "provider %s has %d VMs of %s, and not one", m.Provider, len(vms), node,
			).
				WithHint("compare the ledger with the provider: directorctl vms audit")
		}
		text, err := console.ConsoleTail(ctx, vms[0].ID, min(most, MostConsole))
		return strings.ToValidUTF8(string(text), "\uFFFD"), err
	}
	return "", director.Errorf(director.KindNotFound, op, "cluster %s has no node %s", cluster, node).
		WithHint("directorctl nodes list %s", cluster)
}

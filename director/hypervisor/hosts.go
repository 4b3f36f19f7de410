package hypervisor

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// HostState says whether a host of a provider answers.
type HostState struct {
	Host string
	Err  error // why it does not answer; nil if it does
}

// Hosts is implemented by back ends whose hosts can be lost one by one.
type Hosts interface {
	// HostStates returns one row per host, ordered by name, also for hosts that Without leaves out. It asks every host
	// at once and gives up on a silent one after a few seconds. Errors: unavailable if what manages the hosts does not
	// answer.
	HostStates(ctx context.Context) ([]HostState, error)
	// Without returns the provider without the named hosts: it does not contact them, lists nothing of theirs and
	// places nothing on them. A VM on one of them is not_found, also for Delete, which treats it as gone: the caller
	// must know that its host is lost. Hosts that an earlier Without left out are included again; without names it is
	// the whole provider. It shares the connections of the Backend; its Close does nothing.
	Without(hosts ...string) Backend
	// Fence powers the VM off at once, and keeps the hypervisor from starting it by itself. It is idempotent. Errors:
	// not_found if there is no such VM, conflict if its stamp is not owner: then it is left as it is.
	Fence(ctx context.Context, id ID, owner director.Stamp) error
}

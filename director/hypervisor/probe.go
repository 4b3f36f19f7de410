package hypervisor

import "context"

// Probe is one thing that a connection test looked at.
type Probe struct {
	Host  string // which of the provider's hosts; empty for the provider as a whole
	What  string // what was looked at, in a few words: connection, storage pool default
	Found string // what was found, if it is well: libvirt 9.0.0, 120 GiB free
	Err   error  // what is wrong, with what to do; nil if it is well
}

// Diagnoser is implemented by back ends whose hypervisor sees something of why a guest does not come up.
type Diagnoser interface {
	// Diagnose looks at the VM and says of each thing whether it is well. Errors: not_found if there is no such VM.
	Diagnose(ctx context.Context, id ID) ([]Probe, error)
}

// Prober is implemented by back ends that can say more of a connection than whether a call works.
type Prober interface {
	// Probe connects with what the provider's document says, and looks at everything that the director needs there,
	// each thing by itself: one that is wrong hides no other that can be looked at without it. It changes nothing. An
	// error is returned only if the test itself could not be made.
	Probe(ctx context.Context) ([]Probe, error)
}

package steps

import (
	"context"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// contact looks how far the machine's first boot is, and returns its public host key. At the first contact the machine
// makes a host key of its own: the one that it was given lies in its seed, where others can read it.
func (e vmSteps) contact(ctx context.Context, m director.Machine) (result, hostKey string, adopted bool, err error) {
	if hostKey, err = e.adoptedKey(ctx, m.ID); err != nil {
		return "", "", false, err
	}
	if adopted = hostKey != ""; !adopted {
		if hostKey, err = e.ownHostKey(ctx, m); err != nil {
			return "", "", false, err
		}
	}
	result, err = e.Nodes.CloudInit(ctx, m, hostKey)
	return result, hostKey, adopted, err
}

// ownHostKey returns the host key that the machine has made itself, and has it make one if it has not. The director
// keeps the public part alone, first as the next one: until the machine has shown it, both are accepted. So it can be
// killed at any line.
func (e vmSteps) ownHostKey(ctx context.Context, m director.Machine) (string, error) {
	keys := keyring(e.Keys)
	given, err := keys.ensure(ctx, m.ID, SecretHostKey)
	if err != nil {
		return "", err
	}
	if given.Private == "" {
		return given.Public, e.Secrets.SetSecret(ctx, m.ID, SecretNextHostKey, nil)
	}
	next, err := keys.read(ctx, m.ID, SecretNextHostKey)
	if err != nil {
		return "", err
	}
	if next == nil {
		made, err := e.Nodes.NextHostKey(ctx, m, given.Public)
		if err != nil {
			return "", err
		}
		next = []byte(made)
		if err := keys.write(ctx, m.ID, SecretNextHostKey, next); err != nil {
			return "", err
		}
	}
	certificate, err := e.hostCertificate(ctx, m.ID, string(next))
	if err != nil {
		return "", err
	}
	if err := e.takeHostKey(ctx, m, given.Public, string(next), certificate); err != nil {
		return "", err
	}
	if err := keys.set(ctx, m.ID, SecretHostKey, cloudinit.HostKey{Public: string(next)}); err != nil {
		return "", err
	}
	return string(next), e.Secrets.SetSecret(ctx, m.ID, SecretNextHostKey, nil)
}

// takeHostKey returns when the machine has shown its next key. It gets the certificate of that before it shows it.
func (e vmSteps) takeHostKey(ctx context.Context, m director.Machine, given, next, certificate string) error {
	shown := func() error { return e.Nodes.Script(ctx, m, next, "true") }
	err := shown()
	if !errors.Is(err, errHostKey) {
		return err
	}
	// it may have switched meanwhile
	if err := e.Nodes.TakeHostKey(ctx, m, given, certificate); err != nil && !errors.Is(err, errHostKey) {
		return err
	}
	if err = shown(); errors.Is(err, errHostKey) {
		if another := e.Nodes.Script(ctx, m, given, "true"); errors.Is(another, errHostKey) {
			return err // neither: this is another host
		}
		return director.Errorf(director.KindUnavailable, "vm.boot", "%s does not show its new host key yet", m.Name)
	}
	return err
}

// forgetSeed takes away what the machine has read at its first boot: it holds scripts and a host key, and everyone who
// may look at the hypervisor can read it.
func (e vmSteps) forgetSeed(ctx context.Context, r plan.Run, p step.VMParams, hostKey string) error {
	b, err := e.backend(ctx, p.Machine.Provider)
	if err != nil {
		return err
	}
	if _, ok := hypervisor.Capability[hypervisor.Seeds](b); !ok {
		return nil
	}
	if err := e.Nodes.Script(ctx, p.Machine.Row(), hostKey, cloudinit.KeepScript); err != nil {
		return err
	}
	return e.dropSeed(ctx, r, p.Machine)
}

// dropSeed takes the seed away from the machine's VM, where the back end can.
func (e vmSteps) dropSeed(ctx context.Context, r plan.Run, m plan.MachineSpec) error {
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return err
	}
	seeds, ok := hypervisor.Capability[hypervisor.Seeds](b)
	if !ok {
		return nil
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: m.ID})
	if err != nil {
		return err
	}
	for _, vm := range vms {
		r.Note(ctx, "removing the seed of "+vm.Name)
		if err := seeds.RemoveSeed(ctx, vm.ID, e.stamp(m.ID)); err != nil {
			return err
		}
	}
	return nil
}

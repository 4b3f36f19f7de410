package steps

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
)

// adoptPatience is how long people may take to make a VM.
const adoptPatience = 7 * 24 * time.Hour

// vmAdopt takes over the VM that somebody else has made for the machine. It waits until there is one.
func (e Env) vmAdopt(ctx context.Context, _ plan.Run, p planner.AdoptParams) error {
	const again, op = 10 * time.Second, "vm.adopt"
	m := p.Machine
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return err
	}
	a, ok := hypervisor.Capability[hypervisor.Adopter](b)
	if !ok {
		return director.Errorf(director.KindInvalid, op, "provider %s cannot take over a VM that somebody else has made", m.Provider).
			WithHint("have the director make it: discard this plan and rejoin the node without a host key")
	}
	disks, err := e.dataDisks(ctx, p.VMParams)
	if err != nil {
		return err
	}
	vm, err := a.Adopt(ctx, e.stamp(m.ID), m.Name, disks)
	if err != nil && director.KindOf(err) == director.KindNotFound {
		return plan.AfterWithin(adoptPatience, again, "waits for somebody to make VM "+m.Name)
	}
	if err != nil {
		return err
	}
	sealed, err := e.Sealer.Seal(m.ID, SecretAdopted, []byte(p.HostKey))
	if err != nil {
		return err
	}
	if err := e.Secrets.SetSecret(ctx, m.ID, SecretAdopted, sealed); err != nil {
		return err
	}
	return e.Ledger.SetMachine(ctx, m.ID, director.MachinePresent, vm.Host, string(vm.ID))
}

// adoptedKey returns the host key of the VM that somebody else has made for the machine, and "" if its VM is our own.
func (e Env) adoptedKey(ctx context.Context, machine string) (string, error) {
	sealed, err := e.Secrets.Secret(ctx, machine, SecretAdopted)
	if err != nil || sealed == nil {
		return "", err
	}
	key, err := e.Sealer.Unseal(machine, SecretAdopted, sealed)
	return string(key), err
}

// disown forgets that somebody else has made the machine's VM: it is gone, and the next one has the key that we give it.
func (e Env) disown(ctx context.Context, machine string) error {
	return e.Secrets.SetSecret(ctx, machine, SecretAdopted, nil)
}

// nodeKey returns the public host key with which the machine proves itself.
func (e Env) nodeKey(ctx context.Context, machine string) (public string, adopted bool, err error) {
	if public, err = e.adoptedKey(ctx, machine); err != nil || public != "" {
		return public, public != "", err
	}
	key, err := e.HostKey(ctx, machine)
	return key.Public, false, err
}

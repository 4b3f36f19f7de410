package steps

import (
	"context"
	"errors"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// adoptPatience is how long people may take to make a VM.
const adoptPatience = 7 * 24 * time.Hour

// vmAdopt takes over the VM made by others for the machine. It waits until there is one.
func (e vmSteps) vmAdopt(ctx context.Context, r plan.Run, p step.AdoptParams) error {
	const again, op = 10 * time.Second, "vm.adopt"
	m := p.Machine
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return err
	}
	a, ok := hypervisor.Capability[hypervisor.Adopter](b)
	if !ok {
		return director.Errorf(
			director.KindInvalid, op, "provider %s cannot take over a VM made by others", m.Provider,
		).
			WithHint("let the director make it: discard this plan and rejoin the node without a host key")
	}
	disks, err := e.disk().dataDisks(ctx, p.VMParams)
	if err != nil {
		return err
	}
	vm, err := a.Adopt(ctx, e.stamp(m.ID), m.Name, disks)
	if err != nil && director.KindOf(err) == director.KindNotFound {
		return plan.AfterWithin(adoptPatience, again, "waits until others have made VM "+m.Name)
	}
	if err != nil {
		return err
	}
	keys := keyring(e.Keys)
	if err := keys.write(ctx, m.ID, SecretAdopted, []byte(p.HostKey)); err != nil {
		return err
	}
	uid, err := clusterUID(r, m)
	if err != nil {
		return err
	}
	if err := e.trusted(ctx, m.ID, trust{Cluster: uid, Adopted: true}); err != nil {
		return err
	}
	return e.Ledger.SetMachine(ctx, m.ID, director.MachinePresent, vm.Host, string(vm.ID))
}

// adoptedKey returns the host key of the VM made by others for the machine, and "" if its VM is our own.
func (e Keys) adoptedKey(ctx context.Context, machine string) (string, error) {
	key, err := keyring(e).read(ctx, machine, SecretAdopted)
	return string(key), err
}

// disown forgets what was known of the machine's VM alone: it is gone, and the next one has a host key that we give it.
func (e Keys) disown(ctx context.Context, machine string) error {
	names := []string{SecretAdopted, SecretTrust, SecretNextHostKey}
	key, err := keyring(e).known(ctx, machine, SecretHostKey)
	if err != nil {
		return err
	}
	if key.Private == "" { // the VM had made it
		names = append(names, SecretHostKey)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, e.Secrets.SetSecret(ctx, machine, name, nil))
	}
	return errors.Join(errs...)
}

// nodeKey returns the public host key with which the machine proves itself.
func (e Keys) nodeKey(ctx context.Context, machine string) (public string, adopted bool, err error) {
	if public, err = e.adoptedKey(ctx, machine); err != nil || public != "" {
		return public, public != "", err
	}
	public, err = keyring(e).public(ctx, machine)
	return public, false, err
}

package steps

import (
	"context"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
)

// LearnHostKey takes the host key of the machine that the cluster with that uid has with the signature of one of its
// SSH authorities, which the machine trusts. A key that the machine has proven before stays. Errors: conflict if the
// node has no such record, or another address.
func (e Env) LearnHostKey(ctx context.Context, uid string, m director.Machine, node kube.Node) error {
	const op = "steps.host_key"
	if node.InternalIP != m.Address {
		return director.Errorf(
			director.KindConflict, op, "the node has the address %q, and the machine %s", node.InternalIP, m.Address,
		)
	}
	if node.HostKey == "" {
		return director.Errorf(director.KindConflict, op, "the cluster has no record of it")
	}
	keys := keyring{e.Secrets, e.Sealer}
	if have, err := keys.known(ctx, m.ID, SecretHostKey); err != nil || have.Public != "" && have.Private == "" {
		return err
	}
	if adopted, err := e.adoptedKey(ctx, m.ID); err != nil || adopted != "" {
		return err
	}
	authorities, err := e.SSH().authorities(ctx, uid)
	if err != nil {
		return err
	}
	var last error
	for _, a := range authorities.Keys {
		key, err := pki.SSHAuthority{Public: a.Public}.VouchedHost(m.ID, node.HostKey)
		if err == nil {
			return errors.Join(
				e.SSH().trusted(ctx, m.ID, trust{Cluster: uid}), e.Secrets.SetSecret(ctx, m.ID, SecretNextHostKey, nil),
				keys.set(ctx, m.ID, SecretHostKey, cloudinit.HostKey{Public: key}),
			)
		}
		last = err
	}
	return last
}

// signedHostKey returns the host key that the machine has proven, with the signature of the cluster's SSH authority;
// "" for a machine that has proven none yet.
func (e Env) signedHostKey(ctx context.Context, uid, machine string) (string, error) {
	key, err := e.KnownHostKey(ctx, machine)
	if err != nil || key.Public == "" || key.Private != "" {
		return "", err
	}
	authorities, err := e.SSH().authorities(ctx, uid)
	if err != nil {
		return "", err
	}
	return authorities.first().VouchForHost(machine, key.Public)
}

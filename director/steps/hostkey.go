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
func (e Keys) LearnHostKey(ctx context.Context, uid string, m director.Machine, node kube.Node) error {
	const op = "steps.host_key"
	if node.InternalIP != m.Address {
		return director.Errorf(
			director.KindConflict, op, "the node has the address %q, and the machine %s", node.InternalIP, m.Address,
		)
	}
	if node.HostKey == "" {
		return director.Errorf(director.KindConflict, op, "the cluster has no record of it")
	}
	keys := keyring(e)
	if have, err := keys.known(ctx, m.ID, SecretHostKey); err != nil || have.Public != "" && have.Private == "" {
		return err
	}
	if adopted, err := e.adoptedKey(ctx, m.ID); err != nil || adopted != "" {
		return err
	}
	return e.takeVouched(ctx, uid, m.ID, node.HostKey)
}

// takeVouched takes the host key of the machine that has the signature of one of the cluster's SSH authorities, which
// the machine trusts, as its own. Errors: conflict if no authority has signed it.
func (e Keys) takeVouched(ctx context.Context, uid, machine, certificate string) error {
	authorities, err := e.sshAuthorities(ctx, uid)
	if err != nil {
		return err
	}
	var last error
	for _, a := range authorities.Keys {
		key, err := pki.SSHAuthority{Public: a.Public}.VouchedHost(machine, certificate)
		if err == nil {
			return errors.Join(
				e.trusted(ctx, machine, trust{Cluster: uid}),
				e.Secrets.SetSecret(ctx, machine, SecretNextHostKey, nil),
				keyring(e).set(ctx, machine, SecretHostKey, cloudinit.HostKey{Public: key}),
			)
		}
		last = err
	}
	return last
}

// hostCertificate is the certificate of the machine's host key by the SSH authority of its cluster; "" for a machine
// that trusts none. A director that is restored from a bundle of before knows the machine by it.
func (e Keys) hostCertificate(ctx context.Context, machine, hostKey string) (string, error) {
	t, err := e.trust(ctx, machine)
	if err != nil || t.Cluster == "" {
		return "", err
	}
	authority, err := e.Authority(ctx, t.Cluster)
	if err != nil {
		return "", err
	}
	return authority.VouchForHost(machine, hostKey)
}

// signedHostKey returns the host key that the machine has proven, with the signature of the cluster's SSH authority;
// "" for a machine that has proven none yet.
func (e Keys) signedHostKey(ctx context.Context, uid, machine string) (string, error) {
	key, err := e.KnownHostKey(ctx, machine)
	if err != nil || key.Public == "" || key.Private != "" {
		return "", err
	}
	authority, err := e.Authority(ctx, uid)
	if err != nil {
		return "", err
	}
	return authority.VouchForHost(machine, key.Public)
}

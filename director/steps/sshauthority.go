package steps

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// secretSSHAuthorities are the SSH authorities of a cluster, once they were changed; the first one is in
// SecretSSHAuthority.
const secretSSHAuthorities = "ssh-user-cas"

// sshAuthorities are the SSH authorities of one cluster. Nodes trust all.
type sshAuthorities struct{ pki.Ring[namedSSHAuthority] }

type namedSSHAuthority struct {
	Name string `json:"name"`
	storedKey
	Made time.Time `json:"made,omitzero"` // zero for the first, and if that is not known
}

// KeyName implements pki.Named.
func (k namedSSHAuthority) KeyName() string { return k.Name }

// first is the authority that signs.
func (s sshAuthorities) first() pki.SSHAuthority {
	return pki.SSHAuthority{Private: director.Secret(s.Keys[0].Private), Public: s.Keys[0].Public}
}

// public is what nodes trust: a line of each authority.
func (s sshAuthorities) public() string {
	var lines strings.Builder
	for _, k := range s.Keys {
		lines.WriteString(strings.TrimSpace(k.Public) + "\n")
	}
	return lines.String()
}

// sshAuthorities returns the SSH authorities of the cluster with that uid, and makes the first at the first call.
func (e Keys) sshAuthorities(ctx context.Context, uid string) (sshAuthorities, error) {
	plain, err := keyring(e).read(ctx, uid, secretSSHAuthorities)
	if err != nil {
		return sshAuthorities{}, err
	}
	if plain == nil {
		key, err := keyring(e).ensure(ctx, uid, SecretSSHAuthority)
		return sshAuthorities{pki.Ring[namedSSHAuthority]{
			Keys: []namedSSHAuthority{{Name: "key1", storedKey: stored(key)}},
		}}, err
	}
	var s sshAuthorities
	if json.Unmarshal(plain, &s) != nil || len(s.Keys) == 0 {
		// the cause may quote a key
		return sshAuthorities{}, director.Errorf(
			director.KindInternal, "steps.ssh", "the stored SSH authorities of the cluster cannot be read",
		)
	}
	return s, nil
}

func stored(key cloudinit.HostKey) storedKey {
	return storedKey{Private: key.Private.Reveal(), Public: key.Public}
}

// SSHAuthorities returns the names of the SSH authorities of the cluster, the one that signs first, and of those that
// it had.
func (e Keys) SSHAuthorities(ctx context.Context, uid string) (keys, former []string, err error) {
	s, err := e.sshAuthorities(ctx, uid)
	return s.Names(), s.Former, err
}

// changeSSHAuthority changes the SSH authorities that the director gives to nodes, and the one that it logs in by.
func (e keySteps) changeSSHAuthority(ctx context.Context, _ plan.Run, p step.SigningParams) error {
	s, err := e.sshAuthorities(ctx, p.UID)
	if err != nil {
		return err
	}
	switch p.Do {
	case step.SigningAdd:
		key, err := cloudinit.NewHostKey()
		if err != nil {
			return err
		}
		s.Add(namedSSHAuthority{p.Key, stored(key), time.Now().UTC().Truncate(time.Second)})
	case step.SigningUse:
		if !s.Use(p.Key) {
			return plan.Abort(director.Errorf(
				director.KindConflict, step.SSHAuthority, "cluster %s has no SSH authority %s", p.Cluster, p.Key,
			).WithHint("plan again"))
		}
	case step.SigningDrop:
		s.Drop()
	}
	plain, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = keyring(e.Keys).write(ctx, p.UID, secretSSHAuthorities, plain)
	if err == nil && p.Do == step.SigningDrop {
		err = keyring(e.Keys).write(ctx, p.UID, SecretSSHAuthority, nil) // the first one is forgotten too
	}
	return err
}

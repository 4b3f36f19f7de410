package steps

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// secretSSHAuthorities are the SSH authorities of a cluster, once they were changed; the first one is in
// SecretSSHAuthority.
const secretSSHAuthorities = "ssh-user-cas"

// sshAuthorities are the SSH authorities of one cluster. A name is never used again.
type sshAuthorities struct {
	Keys   []namedSSHAuthority `json:"keys"` // the first signs; nodes trust all
	Former []string            `json:"former,omitempty"`
}

type namedSSHAuthority struct {
	Name string `json:"name"`
	storedKey
}

func (s sshAuthorities) index(name string) int {
	return slices.IndexFunc(s.Keys, func(k namedSSHAuthority) bool { return k.Name == name })
}

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

// authorities returns the authorities of the cluster with that uid, and makes the first at the first call.
func (a SSHAccess) authorities(ctx context.Context, uid string) (sshAuthorities, error) {
	plain, err := a.keys().read(ctx, uid, secretSSHAuthorities)
	if err != nil {
		return sshAuthorities{}, err
	}
	if plain == nil {
		key, err := a.keys().ensure(ctx, uid, SecretSSHAuthority)
		return sshAuthorities{Keys: []namedSSHAuthority{{"key1", stored(key)}}}, err
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
func (e Env) SSHAuthorities(ctx context.Context, uid string) (keys, former []string, err error) {
	s, err := e.SSH().authorities(ctx, uid)
	for _, k := range s.Keys {
		keys = append(keys, k.Name)
	}
	return keys, s.Former, err
}

// changeSSHAuthority changes the SSH authorities that the director gives to nodes, and the one that it logs in by.
func (e Env) changeSSHAuthority(ctx context.Context, _ plan.Run, p step.SigningParams) error {
	access := e.SSH()
	s, err := access.authorities(ctx, p.UID)
	if err != nil {
		return err
	}
	i := s.index(p.Key)
	switch {
	case p.Do == step.SigningAdd && i < 0:
		key, err := cloudinit.NewHostKey()
		if err != nil {
			return err
		}
		s.Keys = append(s.Keys, namedSSHAuthority{p.Key, stored(key)})
	case p.Do == step.SigningUse && i < 0:
		return plan.Abort(director.Errorf(
			director.KindConflict, step.SSHAuthority, "cluster %s has no SSH authority %s", p.Cluster, p.Key,
		).WithHint("plan again"))
	case p.Do == step.SigningUse:
		s.Keys = slices.Concat(s.Keys[i:i+1], s.Keys[:i], s.Keys[i+1:])
	case p.Do == step.SigningDrop:
		for _, k := range s.Keys[1:] {
			s.Former = append(s.Former, k.Name)
		}
		s.Keys = s.Keys[:1]
	}
	plain, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = access.keys().write(ctx, p.UID, secretSSHAuthorities, plain)
	if err == nil && p.Do == step.SigningDrop {
		err = access.keys().write(ctx, p.UID, SecretSSHAuthority, nil) // the first one is forgotten too
	}
	return err
}

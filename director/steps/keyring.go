package steps

import (
	"context"
	"encoding/json"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
)

// keyring is Keys as texts and SSH key pairs, by owner and name.
type keyring Keys

// storedKey is the form of a key pair before it is sealed. A host key that its machine has made itself has no private
// part here.
type storedKey struct {
	Private string `json:"private"`
	Public  string `json:"public"`
}

// read returns what was sealed, and nil if there is nothing.
func (k keyring) read(ctx context.Context, owner, name string) ([]byte, error) {
	sealed, err := k.Secrets.Secret(ctx, owner, name)
	if err != nil || sealed == nil {
		return nil, err
	}
	return k.Sealer.Unseal(owner, name, sealed)
}

// write seals and stores the text, and removes what there is if it is nil.
func (k keyring) write(ctx context.Context, owner, name string, plain []byte) error {
	if plain == nil {
		return k.Secrets.SetSecret(ctx, owner, name, nil)
	}
	sealed, err := k.Sealer.Seal(owner, name, plain)
	if err != nil {
		return err
	}
	return k.Secrets.SetSecret(ctx, owner, name, sealed)
}

// add seals and stores the text unless there is one, and returns the one that is stored then.
func (k keyring) add(ctx context.Context, owner, name string, plain []byte) ([]byte, error) {
	sealed, err := k.Sealer.Seal(owner, name, plain)
	if err != nil {
		return nil, err
	}
	if sealed, err = k.Secrets.AddSecret(ctx, owner, name, sealed); err != nil {
		return nil, err
	}
	return k.Sealer.Unseal(owner, name, sealed)
}

// known returns the key pair, and an empty one if there is none.
func (k keyring) known(ctx context.Context, owner, name string) (cloudinit.HostKey, error) {
	plain, err := k.read(ctx, owner, name)
	if err != nil || plain == nil {
		return cloudinit.HostKey{}, err
	}
	return decodeKey(owner, name, plain)
}

// public returns the public part of a machine's host key, and makes the key at the first call.
func (k keyring) public(ctx context.Context, machine string) (string, error) {
	if u, ok := k.Sealer.(*unsealed); ok {
		sealed, err := k.Secrets.Secret(ctx, machine, SecretHostKey)
		if err != nil {
			return "", err
		}
		if sealed != nil {
			if public, err := u.hostKey(machine, sealed); err != nil || public != "" {
				return public, err
			}
		}
	}
	key, err := k.ensure(ctx, machine, SecretHostKey)
	return key.Public, err
}

// ensure returns the key pair, and makes it at the first call. It is safe to call concurrently.
func (k keyring) ensure(ctx context.Context, owner, name string) (cloudinit.HostKey, error) {
	if key, err := k.known(ctx, owner, name); err != nil || key.Public != "" {
		return key, err
	}
	key, err := cloudinit.NewHostKey()
	if err != nil {
		return cloudinit.HostKey{}, err
	}
	plain, err := encodeKey(key)
	if err != nil {
		return cloudinit.HostKey{}, err
	}
	if plain, err = k.add(ctx, owner, name, plain); err != nil {
		return cloudinit.HostKey{}, err
	}
	return decodeKey(owner, name, plain)
}

// set replaces the key pair.
func (k keyring) set(ctx context.Context, owner, name string, key cloudinit.HostKey) error {
	plain, err := encodeKey(key)
	if err != nil {
		return err
	}
	return k.write(ctx, owner, name, plain)
}

func encodeKey(key cloudinit.HostKey) ([]byte, error) {
	return json.Marshal(storedKey{Private: key.Private.Reveal(), Public: key.Public})
}

func decodeKey(owner, name string, plain []byte) (cloudinit.HostKey, error) {
	var s storedKey
	if err := json.Unmarshal(plain, &s); err != nil {
		return cloudinit.HostKey{}, director.Errorf(
			director.KindInternal, "steps.keys", "the SSH key %s of %s cannot be read", name, owner,
		)
	}
	return cloudinit.HostKey{Private: director.Secret(s.Private), Public: s.Public}, nil
}

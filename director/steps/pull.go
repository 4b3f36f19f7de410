package steps

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"

	"github.com/director-kaas/kaas/director"
)

const (
	// SecretPull is the password with which the nodes of a cluster pull from the director. The user is the cluster's
	// uid.
	SecretPull = "registry-pull"
	// SecretPullNext is the password that the nodes are being given in its place. Both are accepted meanwhile.
	SecretPullNext = "registry-pull-next"
)

// PullPasswords returns the passwords that are accepted from the nodes of the cluster with that uid: none, one, or two
// while they are given another one.
func (e Keys) PullPasswords(ctx context.Context, uid string) ([]director.Secret, error) {
	var out []director.Secret
	for _, name := range []string{SecretPull, SecretPullNext} {
		password, err := e.pullSecret(ctx, uid, name)
		if err != nil {
			return nil, err
		}
		if password != "" {
			out = append(out, password)
		}
	}
	return out, nil
}

func (e Keys) pullSecret(ctx context.Context, uid, name string) (director.Secret, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, name)
	if err != nil || sealed == nil {
		return "", err
	}
	plain, err := e.Sealer.Unseal(uid, name, sealed)
	return director.Secret(plain), err
}

// pullAuthorization returns the header with which the nodes of the cluster pull: with the next password if there is
// one. The first call makes the password.
func (e Keys) pullAuthorization(ctx context.Context, uid string) (director.Secret, error) {
	next, err := e.pullSecret(ctx, uid, SecretPullNext)
	if err != nil {
		return "", err
	}
	password, err := e.makePull(ctx, uid, SecretPull)
	if err != nil {
		return "", err
	}
	password = cmp.Or(next, password)
	return director.Secret("Basic " + base64.StdEncoding.EncodeToString([]byte(uid+":"+password.Reveal()))), nil
}

// makePull returns the password of that name, and makes it if there is none. Of two that make one, both get the same.
func (e Keys) makePull(ctx context.Context, uid, name string) (director.Secret, error) {
	password, err := e.pullSecret(ctx, uid, name)
	if err != nil || password != "" {
		return password, err
	}
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // crypto/rand.Read never fails
	sealed, err := e.Sealer.Seal(uid, name, []byte(base64.RawURLEncoding.EncodeToString(fresh)))
	if err != nil {
		return "", err
	}
	if _, err = e.Secrets.AddSecret(ctx, uid, name, sealed); err != nil {
		return "", err
	}
	return e.pullSecret(ctx, uid, name)
}

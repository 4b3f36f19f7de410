package steps

import (
	"context"
	"crypto/rand"
	"encoding/base64"

	"github.com/director-kaas/kaas/director"
)

// SecretPull is the password with which the nodes of a cluster pull from the director. The user is the cluster's uid.
const SecretPull = "registry-pull"

// PullPassword returns the password of the cluster with that uid, and "" if it has none.
func (e Env) PullPassword(ctx context.Context, uid string) (director.Secret, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretPull)
	if err != nil || sealed == nil {
		return "", err
	}
	plain, err := e.Sealer.Unseal(uid, SecretPull, sealed)
	return director.Secret(plain), err
}

// pullAuthorization returns the header with which the nodes of the cluster pull, and makes the password at the first call.
func (e Env) pullAuthorization(ctx context.Context, uid string) (director.Secret, error) {
	password, err := e.PullPassword(ctx, uid)
	if err != nil {
		return "", err
	}
	if password == "" {
		fresh := make([]byte, 32)
		_, _ = rand.Read(fresh) // crypto/rand.Read never fails
		sealed, err := e.Sealer.Seal(uid, SecretPull, []byte(base64.RawURLEncoding.EncodeToString(fresh)))
		if err != nil {
			return "", err
		}
		if _, err = e.Secrets.AddSecret(ctx, uid, SecretPull, sealed); err != nil {
			return "", err
		}
		if password, err = e.PullPassword(ctx, uid); err != nil { // of two that make one, both get the same
			return "", err
		}
	}
	return director.Secret("Basic " + base64.StdEncoding.EncodeToString([]byte(uid+":"+password.Reveal()))), nil
}

package pki

import (
	"crypto/rand"
	"math/big"

	"github.com/director-kaas/kaas/director"
)

const (
	tokenAlphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
	tokenIDLength     = 6
	tokenSecretLength = 16
)

// NewBootstrapToken returns a random token as kubeadm join takes it: an id of six and a secret of sixteen lower-case
// letters and digits, with a full stop between.
func NewBootstrapToken() (director.Secret, error) {
	t := make([]byte, 0, tokenIDLength+1+tokenSecretLength)
	for i := range cap(t) {
		if i == tokenIDLength {
			t = append(t, '.')
			continue
		}
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(tokenAlphabet))))
		if err != nil {
			return "", director.Errorf(director.KindInternal, "pki.new_bootstrap_token", "no randomness: %w", err)
		}
		t = append(t, tokenAlphabet[n.Int64()])
	}
	return director.Secret(t), nil
}

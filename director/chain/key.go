package chain

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
)

// Key is what an auditor keeps to verify the trail of one installation without asking it.
type Key struct {
	Installation string
	Public       ed25519.PublicKey
}

const keyPrefix = "director-audit"

// String returns the key in one word: director-audit:INSTALLATION:BASE64. It is no secret.
func (k Key) String() string {
	return keyPrefix + ":" + k.Installation + ":" + base64.RawURLEncoding.EncodeToString(k.Public)
}

// ParseKey reads what String writes, and nothing else.
func ParseKey(text string) (Key, error) {
	parts := strings.Split(strings.TrimSpace(text), ":")
	if len(parts) != 3 || parts[0] != keyPrefix || parts[1] == "" {
		return Key{}, fmt.Errorf("a key of the audit trail looks like %s:INSTALLATION:KEY", keyPrefix)
	}
	public, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(public) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("the last part of a key of the audit trail has %d bytes in base64",
			ed25519.PublicKeySize)
	}
	return Key{Installation: parts[1], Public: public}, nil
}

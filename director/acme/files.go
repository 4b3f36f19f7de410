package acme

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

const (
	accountFile = "account.key"
	typeKey     = "EC PRIVATE KEY"
	typeCert    = "CERTIFICATE"
	// origin begins the first line of CertificateFile, which says whose certificate it is. PEM has room for text before
	// its blocks.
	origin = "Directory: "
)

func (m *Manager) makeDir() error {
	err := os.MkdirAll(m.Dir, 0o700)
	if err == nil {
		err = os.Chmod(m.Dir, 0o700)
	}
	if err != nil {
		return director.Errorf(director.KindInternal, "acme.open", "%s cannot be made: %w", m.Dir, err).
			WithHint("check the space and the permissions there")
	}
	return nil
}

// load returns the certificate in the directory if it is of this server, for these names, and has not ended; nil
// otherwise: another one replaces it, whatever is wrong with it.
func (m *Manager) load() *tls.Certificate {
	text, err := os.ReadFile(filepath.Join(m.Dir, CertificateFile))
	if err != nil {
		return nil
	}
	line, _, _ := strings.Cut(string(text), "\n")
	c, err := tls.X509KeyPair(text, text)
	if err != nil || line != origin+m.Directory || m.missing(c.Leaf) != "" || m.Now().After(c.Leaf.NotAfter) {
		return nil
	}
	return &c
}

// save writes the certificate, so that it is there after a restart.
func (m *Manager) save(c *tls.Certificate) error {
	var b bytes.Buffer
	b.WriteString(origin + m.Directory + "\n")
	key, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return director.Errorf(director.KindInternal, "acme.save", "the key of the certificate cannot be written")
	}
	b.Write(pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: key}))
	for _, der := range c.Certificate {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: typeCert, Bytes: der}))
	}
	return m.write(CertificateFile, b.Bytes())
}

// accountKey returns the key of the account, which is made once. One that cannot be read is an error: another key would
// be another account.
func (m *Manager) accountKey() (*ecdsa.PrivateKey, error) {
	const op = "acme.account"
	path := filepath.Join(m.Dir, accountFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		return key, m.write(accountFile, pem.EncodeToMemory(&pem.Block{Type: typeKey, Bytes: der}))
	}
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the key of the ACME account cannot be read: %w", err).
			WithHint("check the permissions of %s", path)
	}
	if b, _ := pem.Decode(text); b != nil && b.Type == typeKey {
		if key, err := x509.ParseECPrivateKey(b.Bytes); err == nil { // an error may quote the key
			return key, nil
		}
	}
	return nil, director.Errorf(director.KindInternal, op, "%s is no key of an ACME account", path).
		WithHint("restore it from a backup, or remove it: the director then makes another account")
}

// write replaces a file, which only the director can read.
func (m *Manager) write(name string, text []byte) error {
	if err := whole.Write(filepath.Join(m.Dir, name), text, 0o600); err != nil {
		return director.Errorf(director.KindInternal, "acme.write", "%s cannot be written into %s: %w", name, m.Dir,
			err).
			WithHint("check the space and the permissions there")
	}
	return nil
}

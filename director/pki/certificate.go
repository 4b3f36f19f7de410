package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
)

const (
	// AuthorityLife is how long a certificate authority made here is valid.
	AuthorityLife = 20 * 365 * 24 * time.Hour

	skew = time.Hour // how far in the past certificates begin

	minRSABits = 2048
)

const (
	pemCertificate = "CERTIFICATE"
	pemECKey       = "EC PRIVATE KEY"
	pemRSAKey      = "RSA PRIVATE KEY"
	pemPKCS8Key    = "PRIVATE KEY"
	pemPublicKey   = "PUBLIC KEY"
)

// Pair is a certificate and its private key, both PEM. Cert may be followed by the certificates that signed it.
type Pair struct {
	Cert string
	Key  director.Secret
}

// NewCA returns a self-signed certificate authority with an ECDSA P-256 key, valid for AuthorityLife.
func NewCA(commonName string) (Pair, error) { return newCA(commonName, time.Now(), AuthorityLife) }

func newCA(commonName string, now time.Time, life time.Duration) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, director.Errorf(director.KindInternal, "pki.new_ca", "cannot make a key: %w", err)
	}
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	return sign("pki.new_ca", t, t, key, key)
}

// ValidateCA checks that a pair can sign for a cluster at the time now: its certificate is one of an authority, is
// valid, has a strong enough key of a kind that kubeadm takes, and its private key belongs to it. The error is invalid
// and names everything that is wrong, with the paths "cert" and "key".
func ValidateCA(ca Pair, now time.Time) error {
	var fields []director.Field
	bad := func(path, msg, hint string) {
		fields = append(fields, director.Field{Path: path, Msg: msg, Hint: hint})
	}

	cert, err := ParseCert(ca.Cert)
	if err != nil {
		bad("cert", "is not a PEM certificate", "it begins with -----BEGIN CERTIFICATE-----")
	} else {
		if !cert.BasicConstraintsValid || !cert.IsCA {
			bad("cert", "is not the certificate of an authority", "its basic constraints say CA:TRUE")
		}
		if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
			bad("cert", "may not sign certificates", "its key usage has keyCertSign")
		}
		if now.After(cert.NotAfter) {
			bad(
				"cert", "expired at "+cert.NotAfter.UTC().Format(time.RFC3339),
				"renew it with the same key, or give another",
			)
		}
		if now.Before(cert.NotBefore) {
			bad(
				"cert", "is valid only from "+cert.NotBefore.UTC().Format(time.RFC3339),
				"check the clock of this machine",
			)
		}
		switch pub := cert.PublicKey.(type) {
		case *rsa.PublicKey:
			if pub.N.BitLen() < minRSABits {
				bad("cert", "has an RSA key that is too short", "at least 2048 bits")
			}
		case *ecdsa.PublicKey:
		default:
			bad("cert", "has a key that is neither RSA nor ECDSA", "kubeadm takes these two")
		}
	}

	key, err := parseKey(ca.Key)
	switch {
	case err != nil:
		bad("key", "is not an unencrypted PEM private key", "RSA or ECDSA, in PKCS#8, PKCS#1 or SEC 1 form")
	case cert != nil && !samePublic(key.Public(), cert.PublicKey):
		bad("key", "does not belong to the certificate", "")
	}
	return director.Invalid("pki.validate_ca", "the certificate authority cannot be used", fields)
}

// ClientCert returns a client certificate that the authority vouches for: commonName is the user, orgs are its groups.
// It lives for ttl, or as long as the authority when that is shorter.
func ClientCert(ca Pair, commonName string, orgs []string, ttl time.Duration) (Pair, error) {
	now := time.Now()
	return issue("pki.client_cert", ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: orgs},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(ttl),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now)
}

// ServerCert returns a server certificate for the names and addresses, with the first of them as its common name. It
// lives for ttl, or as long as the authority when that is shorter.
func ServerCert(ca Pair, names []string, ips []netip.Addr, ttl time.Duration) (Pair, error) {
	return serverCert(ca, names, ips, ttl, time.Now())
}

func serverCert(ca Pair, names []string, ips []netip.Addr, ttl time.Duration, now time.Time) (Pair, error) {
	t := &x509.Certificate{
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(ttl),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
	}
	for _, ip := range ips {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.Unmap().AsSlice()))
	}
	switch {
	case len(names) > 0:
		t.Subject.CommonName = names[0]
	case len(ips) > 0:
		t.Subject.CommonName = ips[0].String()
	default:
		return Pair{}, director.Errorf(
			director.KindInvalid, "pki.server_cert", "a server certificate needs a name or an address",
		)
	}
	return issue("pki.server_cert", ca, t, now)
}

// Expiry returns when the first of the certificates in a PEM text expires. Other blocks are skipped; a text without a
// certificate is invalid.
func Expiry(certs string) (time.Time, error) {
	var first time.Time
	for rest := []byte(certs); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != pemCertificate {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return time.Time{}, director.Errorf(
				director.KindInvalid, "pki.expiry", "a certificate cannot be read: %w", err,
			)
		}
		if first.IsZero() || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	if first.IsZero() {
		return time.Time{}, director.Errorf(director.KindInvalid, "pki.expiry", "there is no PEM certificate")
	}
	return first, nil
}

// PublicKeyPin returns the pin of an authority's public key, "sha256:" and 64 hex digits, as kubeadm join takes it in
// --discovery-token-ca-cert-hash.
func PublicKeyPin(caCert string) (string, error) {
	c, err := ParseCert(caCert)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// ParseCert returns the first certificate of a PEM text. A text that does not begin with one is invalid.
func ParseCert(cert string) (*x509.Certificate, error) {
	b, _ := pem.Decode([]byte(cert))
	if b == nil || b.Type != pemCertificate {
		return nil, director.Errorf(director.KindInvalid, "pki.parse_cert", "there is no PEM certificate")
	}
	c, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "pki.parse_cert", "the certificate cannot be read: %w", err)
	}
	return c, nil
}

// issue makes a key for the template and has the authority sign it.
func issue(op string, ca Pair, t *x509.Certificate, now time.Time) (Pair, error) {
	if err := ValidateCA(ca, now); err != nil {
		return Pair{}, err
	}
	parent, err := ParseCert(ca.Cert)
	if err != nil {
		return Pair{}, err
	}
	signer, err := parseKey(ca.Key)
	if err != nil {
		return Pair{}, err
	}
	if t.NotAfter.After(parent.NotAfter) {
		t.NotAfter = parent.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, director.Errorf(director.KindInternal, op, "cannot make a key: %w", err)
	}
	return sign(op, t, parent, key, signer)
}

func sign(op string, t, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (Pair, error) {
	cert, err := signFor(op, t, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, director.Errorf(director.KindInternal, op, "cannot encode a key: %w", err)
	}
	return Pair{Cert: cert, Key: director.Secret(encode(pemECKey, keyDER))}, nil
}

// signFor returns the signed certificate of the public key.
func signFor(op string, t, parent *x509.Certificate, public any, signer crypto.Signer) (string, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return "", director.Errorf(director.KindInternal, op, "cannot make a serial number: %w", err)
	}
	t.SerialNumber = serial.Add(serial, big.NewInt(1))
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, signer)
	if err != nil {
		return "", director.Errorf(director.KindInternal, op, "cannot sign a certificate: %w", err)
	}
	return encode(pemCertificate, der), nil
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// parseKey reads the first private key of a PEM text and skips the curve parameters that openssl puts before it. Its
// errors never quote the text.
func parseKey(key director.Secret) (crypto.Signer, error) {
	const op = "pki.parse_key"
	for rest := []byte(key.Reveal()); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return nil, director.Errorf(director.KindInvalid, op, "there is no PEM private key")
		}
		var k any
		var err error
		switch b.Type {
		case pemECKey:
			k, err = x509.ParseECPrivateKey(b.Bytes)
		case pemRSAKey:
			k, err = x509.ParsePKCS1PrivateKey(b.Bytes)
		case pemPKCS8Key:
			k, err = x509.ParsePKCS8PrivateKey(b.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, op, "the private key cannot be read")
		}
		switch k := k.(type) {
		case *ecdsa.PrivateKey:
			return k, nil
		case *rsa.PrivateKey:
			return k, nil
		}
		return nil, director.Errorf(director.KindInvalid, op, "the private key is neither RSA nor ECDSA")
	}
}

func samePublic(a, b any) bool {
	x, err := x509.MarshalPKIXPublicKey(a)
	if err != nil {
		return false
	}
	y, err := x509.MarshalPKIXPublicKey(b)
	return err == nil && bytes.Equal(x, y)
}

// covers reports whether a certificate names exactly these names and addresses.
func covers(c *x509.Certificate, names []string, ips []netip.Addr) bool {
	have := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		have = append(have, ip.String())
	}
	want := slices.Clone(names)
	for _, ip := range ips {
		want = append(want, ip.Unmap().String())
	}
	slices.Sort(have)
	slices.Sort(want)
	return slices.Equal(slices.Compact(have), slices.Compact(want))
}

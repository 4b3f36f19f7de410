package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"

	"github.com/director-kaas/kaas/director"
)

// Serving connects to the address, as the client where that is not empty, and returns the certificate that is shown
// there. Nothing is sent. With ca, a certificate that it has not signed is a conflict; one that has ended, or is not
// valid yet, is none, since that is what callers want to know. Errors: unavailable if no TLS server answers.
func Serving(ctx context.Context, address, ca string, client Pair) (*x509.Certificate, error) {
	const op = "pki.serving"
	var leaf *x509.Certificate
	var stranger error
	config := &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, // looked at below
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf = s.PeerCertificates[0]
			if ca != "" {
				stranger = signedBy(leaf, s.PeerCertificates[1:], ca)
			}
			return stranger
		},
	}
	if client.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(client.Cert), []byte(client.Key.Reveal()))
		if err != nil {
			// the cause may quote the key
			return nil, director.Errorf(director.KindInternal, op, "the client certificate cannot be used")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: config}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // nothing was sent that could be lost
		return leaf, nil
	}
	if stranger != nil {
		return nil, director.Errorf(
			director.KindConflict, op, "the certificate at %s is not signed by the cluster's authority: %w", address,
			stranger,
		).
			WithHint("another host has the address, or the node belongs to another cluster")
	}
	if leaf != nil {
		return leaf, nil // the server has proved itself and wants another client
	}
	return nil, director.Errorf(director.KindUnavailable, op, "no TLS server answers at %s: %w", address, err)
}

// signedBy verifies the chain at a time at which it was valid.
func signedBy(leaf *x509.Certificate, between []*x509.Certificate, ca string) error {
	authority, err := ParseCert(ca)
	if err != nil {
		return err
	}
	at := leaf.NotBefore
	if authority.NotBefore.After(at) {
		at = authority.NotBefore
	}
	roots, middle := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority)
	for _, c := range between {
		middle.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: middle, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

// Signed reports whether one of the authorities in the PEM text has signed the certificate itself.
func Signed(cas string, c *x509.Certificate) bool {
	for rest := []byte(cas); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return false
		}
		parent, err := x509.ParseCertificate(b.Bytes)
		if err == nil && c.CheckSignatureFrom(parent) == nil {
			return true
		}
	}
}

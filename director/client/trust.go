package client

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

const fingerprintPrefix = "SHA256:"

// Fingerprint returns the SHA-256 of a certificate in the form that Config takes.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return fingerprintPrefix + hex.EncodeToString(sum[:])
}

// ParseFingerprint checks a fingerprint and returns it in its one form: colons and case do not matter, as other tools
// print them.
func ParseFingerprint(s string) (string, error) {
	rest := s
	if len(rest) > len(fingerprintPrefix) && strings.EqualFold(rest[:len(fingerprintPrefix)], fingerprintPrefix) {
		rest = rest[len(fingerprintPrefix):]
	}
	rest = strings.ToLower(strings.ReplaceAll(rest, ":", ""))
	if raw, err := hex.DecodeString(rest); err != nil || len(raw) != sha256.Size {
		return "", director.Errorf(director.KindInvalid, "client.fingerprint", "%q is not a fingerprint", s).
			WithHint("write SHA256: and 64 hexadecimal digits, as the director prints them at its start")
	}
	return fingerprintPrefix + rest, nil
}

func tlsConfig(c Config, host string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Fingerprint != "" {
		want, err := ParseFingerprint(c.Fingerprint)
		if err != nil {
			return nil, err
		}
		// The usual check is replaced by a stricter one: exactly this certificate, or an authority of exactly this
		// certificate.
		conf.InsecureSkipVerify = true
		conf.VerifyConnection = func(s tls.ConnectionState) error { return checkPin(want, host, s) }
		return conf, nil
	}
	if len(c.CA) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, director.Errorf(director.KindInvalid, "client.ca", "the CA file holds no certificate").
				WithHint("it must be PEM: -----BEGIN CERTIFICATE-----")
		}
	}
	return conf, nil
}

// checkPin takes the host from the address: the connection's own state leaves it empty for IP addresses.
func checkPin(want, host string, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return changed("")
	}
	leaf := s.PeerCertificates[0]
	if Fingerprint(leaf) == want {
		return nil
	}
	for _, authority := range s.PeerCertificates[1:] {
		if Fingerprint(authority) != want {
			continue
		}
		roots, between := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(authority)
		for _, cert := range s.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host})
		if err != nil {
			return director.Errorf(
				director.KindUnavailable, "client.tls", "the director's certificate is not valid: %w", err,
			)
		}
		return nil
	}
	return changed(Fingerprint(leaf))
}

func changed(got string) error {
	return director.Errorf(
		director.KindUnavailable, "client.tls",
		"the director's certificate is not the trusted one; it has the fingerprint %s", got,
	).
		WithHint(
			"if the director has a new certificate, log in again with --fingerprint; otherwise someone may be " +
				"intercepting the connection",
		)
}

// certificateError says in plain words why a certificate was not accepted, or returns nil for other errors.
func certificateError(base *url.URL, err error) error {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	e := &director.Error{Kind: director.KindUnavailable, Op: "client.tls", Err: err}
	switch {
	case errors.As(err, &unknown):
		e.Msg = "the certificate of " + base.String() + " is signed by an unknown authority"
		e.Hint = "log in with --ca-file or --fingerprint"
	case errors.As(err, &host):
		e.Msg = "the certificate of " + base.String() + " is for another name"
		e.Hint = "use a name or address that is in the certificate, or log in with --fingerprint"
	case errors.As(err, &invalid):
		e.Msg = "the certificate of " + base.String() + " is not valid: " + invalid.Error()
	default:
		return nil
	}
	return e
}

// Probe returns the certificates that the server shows, the server's own first, without trusting them and without
// sending anything. A person compares the fingerprint with what the director printed at its start.
func Probe(ctx context.Context, server string) ([]*x509.Certificate, error) {
	base, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	host := base.Host
	if base.Port() == "" {
		host = net.JoinHostPort(base.Hostname(), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	// Nothing but the handshake happens on this connection.
	d := tls.Dialer{
		Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, ServerName: base.Hostname()},
	}
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindUnavailable, Op: "client.probe",
			Msg:  "the director at " + base.String() + " does not answer: " + rootCause(err),
			Hint: "check the address and that the director runs", Err: err,
		}
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}

// Trusted reports whether the system trusts the certificates for the server.
func Trusted(server string, certs []*x509.Certificate) bool {
	base, err := parseServer(server)
	if err != nil || len(certs) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err = certs[0].Verify(x509.VerifyOptions{Intermediates: between, DNSName: base.Hostname()})
	return err == nil
}

package daemon

import (
	"crypto/tls"
	"os"
	"time"

	"github.com/director-kaas/kaas/director"
)

// apiTLS returns the TLS settings of the API. The certificates of the ACME server and of the configuration are shown to
// clients that ask for one of their names; others get the director's own: nodes and programs trust the director's
// authority, and connect to its address.
func (d *Daemon) apiTLS(own *tls.Config) (*tls.Config, error) {
	config, err := d.givenTLS(own)
	if err != nil || d.acme == nil {
		return config, err
	}
	return d.acme.TLS(config), nil
}

// givenTLS returns the settings with the certificate of the configuration, if there is one.
func (d *Daemon) givenTLS(own *tls.Config) (*tls.Config, error) {
	if d.cfg.CertificateFile == "" {
		return own, nil
	}
	given, err := loadCertificate(d.cfg.CertificateFile, d.cfg.CertificateKeyFile)
	if err != nil {
		return nil, err
	}
	if left := time.Until(given.Leaf.NotAfter); left < 30*24*time.Hour {
		d.log.Warn(
			"the certificate of the configuration ends soon, or has ended; replace the file and restart the director",
			"file", d.cfg.CertificateFile, "notAfter", given.Leaf.NotAfter,
		)
	}
	config := own.Clone()
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName != "" && given.Leaf.VerifyHostname(hello.ServerName) == nil {
			return given, nil
		}
		return own.GetCertificate(hello)
	}
	return config, nil
}

// loadCertificate reads a certificate with its chain, and its key. Errors: invalid; they hold nothing of the key.
func loadCertificate(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "daemon.config", "certificateFile: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "daemon.config", "certificateKeyFile: %w", err)
	}
	given, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, director.Errorf(
			director.KindInvalid, "daemon.config", "certificateFile %s and certificateKeyFile do not fit: %w", certFile,
			err,
		).WithHint("name a certificate in PEM, the server's own first, and its key without a password")
	}
	return &given, nil
}

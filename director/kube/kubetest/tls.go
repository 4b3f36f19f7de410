package kubetest

import (
	"crypto/tls"
	"crypto/x509"
)

func (s *Server) clientTLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.PKI.CA.Cert))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

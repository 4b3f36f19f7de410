// Package webhooktest has endpoints for tests: real HTTPS servers with an authority of their own.
package webhooktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  string // its own certificate
}

// NewAuthority returns an authority that lives for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	var der []byte
	der, a.key = sign(t, nil, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.PEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func sign(t testing.TB, by *Authority, c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

// Issue returns a certificate with its key in PEM, for servers of the names or addresses, and for clients.
func (a *Authority) Issue(t testing.TB, names ...string) (cert, key []byte) {
	t.Helper()
	c := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "test"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	der, private := sign(t, a, c)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// Roots returns the authority as a pool.
func (a *Authority) Roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Request is one that an endpoint has got.
type Request struct {
	ID     string
	At     time.Time
	Header http.Header
	Body   []byte
}

// Endpoint is an HTTPS server that keeps what it gets.
type Endpoint struct {
	*httptest.Server
	Authority *Authority

	mu   sync.Mutex
	got  []Request
	open int // connections that were ever made
}

// Start returns an endpoint on the address, such as 127.0.0.1:0, that answers by answer. It wants a client certificate
// of its authority if mutual.
func Start(t testing.TB, address string, a *Authority, mutual bool, answer http.HandlerFunc) *Endpoint {
	t.Helper()
	e := &Endpoint{Authority: a}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ := net.SplitHostPort(l.Addr().String())
	cert, key := a.Issue(t, host, "hook.test")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	e.Server = &httptest.Server{Listener: l, Config: &http.Server{
		ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0), // refused clients are expected
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			e.mu.Lock()
			e.got = append(e.got, Request{r.Header.Get("Webhook-Id"), time.Now(), r.Header.Clone(), body})
			e.mu.Unlock()
			answer(w, r)
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				e.mu.Lock()
				e.open++
				e.mu.Unlock()
			}
		},
	}}
	e.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if mutual {
		e.TLS.ClientAuth, e.TLS.ClientCAs = tls.RequireAndVerifyClientCert, a.Roots()
	}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

// Got returns the requests so far.
func (e *Endpoint) Got() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Request(nil), e.got...)
}

// Connections returns how many connections were made so far.
func (e *Endpoint) Connections() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// JSON answers with the status and the text.
func JSON(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

package controller

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

const (
	dialLimit  = 5 * time.Second
	callLimit  = 30 * time.Second
	pingAfter  = 5 * time.Second
	maxAnswer  = 64 << 20 // bytes; 10,000 entries with long meta need half of it
	maxToken   = 4 << 10
	tokenRetry = time.Second // how long a token is used before its file is read again
)

// newClient returns a client of Consul, and what reads long lists of it. Both use the first address that answers, and
// the next one when that server hangs or has no leader. They follow no redirects, take nothing from the environment but
// their own fields, and read the token and the certificate again when they change.
func newClient(cfg consulsync.Consul) (*api.Client, *lists, error) {
	const op = "consulsync.consul"
	hosts := make([]string, 0, len(cfg.Addresses))
	var scheme string
	for _, a := range cfg.Addresses {
		u, err := url.Parse(a)
		if err != nil {
			return nil, nil, director.Errorf(director.KindInvalid, op, "%w", err)
		}
		hosts, scheme = append(hosts, u.Host), u.Scheme
	}
	tlsConfig, err := clientTLS(cfg)
	if err != nil {
		return nil, nil, err
	}
	if _, err := (&tokenFile{path: cfg.TokenFile}).read(); err != nil {
		return nil, nil, err
	}
	to := newServers(hosts, func(d *dialer) *http.Transport { return transport(d, scheme, tlsConfig, cfg.ServerName) })
	asks := &http.Client{
		Transport: &guarded{next: to, token: &tokenFile{path: cfg.TokenFile}},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("consul answered with a redirect")
		},
	}
	client, err := api.NewClient(&api.Config{
		Address: hosts[0], Scheme: scheme, Datacenter: cfg.Datacenter, HttpClient: asks,
	})
	if err != nil {
		return nil, nil, director.Errorf(director.KindInvalid, op, "the client of Consul: %w", err)
	}
	return client, &lists{asks, scheme + "://" + hosts[0], cfg.Datacenter}, nil
}

// transport returns connections to one of the hosts of the dialer.
func transport(d *dialer, scheme string, secure *tls.Config, name string) *http.Transport {
	t := &http.Transport{
		DialContext: d.dial, TLSClientConfig: secure, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true,
	}
	if scheme == "https" {
		// Consul allows 200 connections from one address, and each import has a query that waits. Over HTTP/2 they
		// share one; its pings notice a server that is gone without a word.
		t.DialTLSContext = d.dialTLS(secure, name)
		t.ForceAttemptHTTP2 = true
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: dialLimit}
	}
	return t
}

func clientTLS(cfg consulsync.Consul) (*tls.Config, error) {
	const op = "consulsync.consul"
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if cfg.CAFile != "" {
		text, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, op, "consul.caFile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, director.Errorf(director.KindInvalid, op, "consul.caFile: %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile == "" {
		return c, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		return &cert, err
	}
	if _, err := load(); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "consul.certFile and consul.keyFile: %w", err)
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, nil
}

// guarded gives every request the token and bounds every answer.
type guarded struct {
	next  http.RoundTripper
	token *tokenFile
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := g.token.read()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token") // one of the environment
	if token != "" {
		r.Header.Set("X-Consul-Token", token.Reveal())
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, err
}

type bounded struct {
	io.ReadCloser
	left int
}

// Read fails when more was sent than is taken.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("consul answered with more than %d bytes", maxAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// tokenFile reads a token. An empty path is no token.
type tokenFile struct {
	path string

	mu    sync.Mutex
	token director.Secret
	until time.Time
}

func (f *tokenFile) read() (director.Secret, error) {
	const op = "consulsync.token"
	if f.path == "" {
		return "", nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.until) {
		return f.token, nil
	}
	file, err := os.Open(f.path)
	if err != nil {
		return "", director.Errorf(director.KindInvalid, op, "consul.tokenFile: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return "", director.Errorf(director.KindInvalid, op, "consul.tokenFile: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", director.Errorf(director.KindInvalid, op, "consul.tokenFile: %s holds no token", f.path)
	}
	f.token, f.until = director.Secret(token), time.Now().Add(tokenRetry)
	return f.token, nil
}

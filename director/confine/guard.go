package confine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// ErrOwn says that an address is where the director listens.
var ErrOwn = errors.New("the director itself listens there")

// Guard says where the director may connect to for an address that a person has named: to allowed ranges, and never to
// itself.
type Guard struct {
	Allow   Networks
	Own     []netip.AddrPort // where the director itself listens; an unspecified address is every one of this machine
	Resolve *net.Resolver    // the system's if nil
}

// Dialer returns a dialer that looks at each address after it was resolved and before anything is sent to it.
func (g Guard) Dialer() *net.Dialer {
	dialer := g.Allow.Dialer()
	dialer.Resolver = g.Resolve
	check := dialer.ControlContext
	dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := check(ctx, network, address, c); err != nil {
			return err
		}
		return g.notOwn(address)
	}
	return dialer
}

// Client returns a client that dials so, with at most the timeout for a connection. It uses no proxy, follows no
// redirect, keeps no connection, and speaks TLS 1.2 or newer with servers of the roots, or of the system's if roots is
// nil. It shows its own certificate if there is one. The time of a request is the caller's to bound.
func (g Guard) Client(timeout time.Duration, roots *x509.CertPool, own *tls.Certificate) *http.Client {
	const mostHeader = 64 << 10
	dialer := g.Dialer()
	dialer.Timeout = timeout
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if own != nil {
		conf.Certificates = []tls.Certificate{*own}
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: conf, TLSHandshakeTimeout: timeout,
			ResponseHeaderTimeout: timeout, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: mostHeader, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// notOwn refuses the addresses on which the director listens, whatever is allowed.
func (g Guard) notOwn(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := to.Addr().Unmap().WithZone("")
	for _, own := range g.Own {
		if own.Port() != to.Port() {
			continue
		}
		if own.Addr().Unmap() == ip || own.Addr().IsUnspecified() && local(ip) {
			return fmt.Errorf("%s is not allowed: %w", to, ErrOwn)
		}
	}
	return nil
}

// local reports whether the address is one of this machine's.
func local(ip netip.Addr) bool {
	if ip.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // rather none than the director
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == ip {
			return true
		}
	}
	return false
}

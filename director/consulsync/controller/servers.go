package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// servers sends requests to one of several servers of Consul. After an answer that none can work with, the requests
// that follow go to the next server: one may be cut off from the others, and still answer. What waits at a server that
// was left is not ended.
type servers struct {
	dialer *dialer
	make   func(*dialer) *http.Transport

	mu   sync.Mutex
	used *http.Transport
}

func newServers(hosts []string, connect func(*dialer) *http.Transport) *servers {
	s := &servers{dialer: &dialer{hosts: hosts}, make: connect}
	s.used = s.make(s.dialer)
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *servers) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	used := s.used
	s.mu.Unlock()
	resp, err := used.RoundTrip(r)
	if err != nil && !errors.Is(err, context.Canceled) || err == nil && resp.StatusCode >= 500 {
		s.leave(used)
	}
	return resp, err
}

// leave lets requests go to the next server, unless they do so by now.
func (s *servers) leave(used *http.Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used != used || len(s.dialer.hosts) == 1 {
		return
	}
	s.dialer.begin.Add(1)
	s.used = s.make(s.dialer)
	used.CloseIdleConnections()
}

// dialer connects to the first of several hosts that answers.
type dialer struct {
	hosts []string
	begin atomic.Uint32 // which one is asked first: the one that answered last, or that after a server which was left
}

// dial ignores the address that it is given: it is always that of the first host.
func (d *dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	plain := func(_ context.Context, conn net.Conn, _ string) (net.Conn, error) { return conn, nil }
	return d.first(ctx, network, plain)
}

// dialTLS checks the certificate against the name that is configured, or else against the host that answered.
func (d *dialer) dialTLS(base *tls.Config, name string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return d.first(ctx, network, func(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
			c := base.Clone()
			if c.ServerName = name; name == "" {
				c.ServerName, _, _ = net.SplitHostPort(host)
			}
			secured := tls.Client(conn, c)
			ctx, cancel := context.WithTimeout(ctx, dialLimit)
			defer cancel()
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = conn.Close()
				return nil, err
			}
			return secured, nil
		})
	}
}

// first returns the connection to the first host with which it is ready.
func (d *dialer) first(
	ctx context.Context, network string, ready func(context.Context, net.Conn, string) (net.Conn, error),
) (net.Conn, error) {
	var errs []error
	begin := d.begin.Load()
	for n := range uint32(len(d.hosts)) {
		i := (begin + n) % uint32(len(d.hosts))
		conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, d.hosts[i])
		if err == nil {
			conn, err = ready(ctx, conn, d.hosts[i])
		}
		if err == nil {
			d.begin.CompareAndSwap(begin, i)
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", d.hosts[i], err))
	}
	return nil, errors.Join(errs...)
}

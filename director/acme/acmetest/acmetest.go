// Package acmetest starts a real ACME server for tests: step-ca, with names that the test decides on.
package acmetest

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/director-kaas/kaas/director/authorities/stepcatest"
)

// Options are what a test changes about the server.
type Options struct {
	TLSPort, HTTPPort int    // where the server asks for proofs
	Life              string // of certificates, such as 10m; a day if empty
	Away              bool   // the server is not started yet
}

// Server is an ACME server.
type Server struct {
	*stepcatest.Server
	Directory string // URL of the directory
	names     *names
}

// Start starts a server, and ends it with the test.
func Start(t *testing.T, o Options) *Server {
	t.Helper()
	n := serveNames(t)
	p := stepcatest.Provisioner{Name: "acme", Type: "ACME", Life: o.Life}
	s := stepcatest.Start(t, stepcatest.Options{
		PathLength: 1, Provisioners: []stepcatest.Provisioner{p}, Away: o.Away, Flags: []string{
			"--insecure", "--resolver", n.address, "--acme-tls-port", strconv.Itoa(o.TLSPort),
			"--acme-http-port", strconv.Itoa(o.HTTPPort),
		},
	})
	return &Server{Server: s, Directory: s.URL + "/acme/acme/directory", names: n}
}

// Name has the name lead to 127.0.0.1. Names that were not given lead nowhere.
func (s *Server) Name(name string) {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	s.names.known[name+"."] = true
}

// Port returns a port of 127.0.0.1 that is free.
func Port(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return int(l.Addr().(*net.TCPAddr).AddrPort().Port())
}

// names is a server of DNS.
type names struct {
	address string
	mu      sync.Mutex
	known   map[string]bool
}

func serveNames(t *testing.T) *names {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{address: c.LocalAddr().String(), known: map[string]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			size, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := n.answer(buffer[:size]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return n
}

// answer returns the answer to a question, or nil if it is none.
func (n *names) answer(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	n.mu.Lock()
	known := n.known[q.Name.String()]
	n.mu.Unlock()
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{
				Name: q.Name, Type: q.Type, Class: q.Class, TTL: uint32(time.Minute / time.Second),
			},
			Body: &dnsmessage.AResource{A: netip.MustParseAddr("127.0.0.1").As4()},
		}}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

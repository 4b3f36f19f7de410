package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
)

const (
	dialLimit  = 5 * time.Second
	firstLimit = 8 * time.Second // in which a host says who leads, or the next one is asked
	callLimit  = 20 * time.Second
	mostAnswer = 64 << 20 // bytes
	writers    = 8        // requests that change the catalog at the same time
)

// client speaks to a Consul as its document says. It follows no redirects, bounds answers, and sends the token to
// allowed networks alone.
type client struct {
	print [sha256.Size]byte // of what it was made from
	hosts []host
}

// host is one address of a Consul.
type host struct {
	name string // host and port, as in the document
	api  *api.Client
	http *http.Client
	base string
	tls  *tls.Config
}

func (c *client) close() {
	for _, h := range c.hosts {
		h.http.CloseIdleConnections()
	}
}

// client returns the client of a Consul; the one that it had, if nothing of it has changed.
func (s *Service) client(ctx context.Context, doc model.Stored) (*client, error) {
	var token director.Secret
	if doc.Consul.Credentials != "" {
		account, err := s.Accounts.OpenConsul(ctx, doc.Metadata.Name, doc.Consul.Credentials, *doc.Consul)
		if err != nil {
			return nil, err
		}
		token = account.Password
	}
	spec, err := json.Marshal(doc.Consul)
	if err != nil {
		return nil, err
	}
	print := sha256.Sum256(append(append(spec, 0), token.Reveal()...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.clients[doc.Metadata.Name]; have != nil {
		if have.print == print {
			return have, nil
		}
		have.close()
	}
	made, err := newClient(*doc.Consul, token, s.Networks)
	if err != nil {
		return nil, err
	}
	made.print = print
	s.clients[doc.Metadata.Name] = made
	return made, nil
}

func newClient(c model.Consul, token director.Secret, networks confine.Networks) (*client, error) {
	const op = "discovery.client"
	out := &client{}
	for _, a := range c.Addresses {
		u, err := url.Parse(a)
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, op, "an address of the Consul cannot be read")
		}
		port := u.Port()
		if port == "" {
			port = model.ConsulPort
		}
		secure, err := tlsOf(c, u.Hostname())
		if err != nil {
			return nil, err
		}
		name := net.JoinHostPort(u.Hostname(), port)
		dialer := networks.Dialer()
		h := &http.Client{
			Timeout: callLimit,
			Transport: &guarded{token: token, next: &http.Transport{
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					ctx, cancel := context.WithTimeout(ctx, dialLimit)
					defer cancel()
					return dialer.DialContext(ctx, network, addr)
				},
				TLSClientConfig: secure, TLSHandshakeTimeout: dialLimit, MaxIdleConnsPerHost: writers,
				IdleConnTimeout: time.Minute,
			}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
		}
		consul, err := api.NewClient(&api.Config{
			Address: name, Scheme: "https", Datacenter: c.Datacenter, HttpClient: h,
		})
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, op, "the Consul cannot be asked: %w", err)
		}
		out.hosts = append(out.hosts, host{
			name: name, api: consul, http: h, base: "https://" + name, tls: secure.Clone(),
		})
	}
	return out, nil
}

var errRedirect = errors.New("it answers with a redirect, which is not followed")

// tlsOf says what the certificate of the host is trusted by.
func tlsOf(c model.Consul, name string) (*tls.Config, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if c.TLS.ServerName != "" {
		secure.ServerName = c.TLS.ServerName
	}
	if c.TLS.CA != "" {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM([]byte(c.TLS.CA)) {
			return nil, director.Errorf(director.KindInvalid, "discovery.client", "spec.tls.ca holds no certificate").
				WithHint("write the certificates of the authority in PEM form")
		}
	}
	return secure, nil
}

// guarded gives every request the token and bounds every answer. A token of the environment is taken off.
type guarded struct {
	token director.Secret
	next  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token")
	if g.token != "" {
		r.Header.Set("X-Consul-Token", g.token.Reveal())
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil {
		resp.Body = bounded{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	}
	return resp, err
}

// CloseIdleConnections is what http.Client looks for.
func (g *guarded) CloseIdleConnections() { g.next.CloseIdleConnections() }

type bounded struct {
	io.Reader
	io.Closer
}

// first returns the first host that answers and knows a leader. The error says why none does: a server without a leader
// says more of it than one that does not answer.
func (c *client) first(ctx context.Context) (host, error) {
	var last, leaderless error
	for _, h := range c.hosts {
		leader, err := h.leader(ctx)
		if err == nil && leader != "" {
			return h, nil
		}
		if err == nil {
			leaderless = director.Errorf(
				director.KindUnavailable, "discovery.consul", "%s has no leader", h.name,
			).WithHint("a majority of the servers must run: see consul operator raft list-peers")
			continue
		}
		last = explain(h.name, err)
	}
	return host{}, cmp.Or(leaderless, last)
}

// leader asks who leads. A host that hangs takes the connections that it is asked over, and says nothing.
func (h host) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, firstLimit)
	defer cancel()
	return h.api.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
}

// explain turns an error of the client into one that says what to do.
func explain(name string, err error) error {
	if _, ours := errors.AsType[*director.Error](err); ours {
		return err
	}
	const op = "discovery.consul"
	e := &director.Error{Kind: director.KindUnavailable, Op: op, Err: err}
	var unknown x509.UnknownAuthorityError
	var wrong x509.HostnameError
	var invalid x509.CertificateInvalidError
	status, answered := errors.AsType[api.StatusError](err)
	switch {
	case errors.Is(err, confine.ErrAddress):
		e.Kind, e.Msg = director.KindForbidden, name+" is at an address that is not allowed"
		e.Hint = "add its range to providerNetworks of the director's configuration"
	case errors.As(err, &unknown):
		e.Msg = "the certificate of " + name + " is from an authority that is not trusted"
		e.Hint = "put the certificate of the authority into spec.tls.ca"
	case errors.As(err, &wrong):
		e.Msg = "the certificate of " + name + " is for another name"
		e.Hint = "set spec.tls.serverName, such as server.dc1.consul"
	case errors.As(err, &invalid):
		e.Msg = "the certificate of " + name + " is not valid: " + invalid.Error()
		e.Hint = "renew it, and compare the clocks"
	case answered:
		return refused(e, name, status)
	default:
		e.Msg = name + " does not answer"
		e.Hint = "check that its HTTPS port is open (ports.https of the agent) and firewalls; then directorctl " +
			"consul test"
	}
	return e
}

// refused explains an answer that is an error.
func refused(e *director.Error, name string, status api.StatusError) error {
	body := strings.TrimSpace(status.Body)
	switch {
	case strings.Contains(body, "ACL not found"):
		e.Kind, e.Msg = director.KindUnauthenticated, "Consul does not know the token, or it has expired"
		e.Hint = "make another one, and store it: directorctl provider credentials set"
	case strings.Contains(body, "Permission denied"):
		e.Kind, e.Msg = director.KindForbidden, "the token lacks a right: "+clean(body)
		e.Hint = "see which one: directorctl consul test"
	case strings.Contains(body, "No path to datacenter"):
		e.Kind, e.Msg = director.KindInvalid, name+" knows no datacenter of the name in spec.datacenter"
		e.Hint = "compare spec.datacenter with consul members"
	case strings.Contains(body, "No cluster leader"):
		e.Msg = name + " has no leader"
		e.Hint = "a majority of the servers must run: see consul operator raft list-peers"
	case strings.Contains(body, "rpc error"), strings.Contains(body, "leadership lost"):
		// That is so for some seconds after the server that leads has gone.
		e.Msg = name + " does not reach a server that leads"
		e.Hint = "wait for another leader; a majority of the servers must run: see consul operator raft list-peers"
	default:
		e.Msg = fmt.Sprintf("%s answers with %d: %s", name, status.Code, clean(body))
	}
	return e
}

// clean keeps what a server says on one line, and short.
func clean(text string) string {
	const most = 300
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), most)]
}

package discovery

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Finding is one thing that a test of a Consul looked at.
type Finding struct {
	Host  string // which address; empty for the Consul as a whole
	What  string
	Found string // what was found, if it is well
	Err   error  // what is wrong, with what to do; nil if it is well
}

// tester collects findings.
type tester struct {
	doc      model.Stored
	director string
	tokens   bool // it makes tokens for clusters there
	found    []Finding
}

func (t *tester) add(at, what, found string, err error) bool {
	if err != nil {
		found = ""
	}
	t.found = append(t.found, Finding{Host: at, What: what, Found: found, Err: err})
	return err == nil
}

// Test looks at everything that the director needs of the Consul, each thing by itself: one that is wrong hides no
// other that can be looked at without it. Nothing is changed.
func (s *Service) Test(ctx context.Context, name string) ([]Finding, error) {
	doc, err := s.consul(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	world, err := s.world(ctx)
	if err != nil {
		return nil, err
	}
	t := &tester{doc: doc, director: s.Director, tokens: slices.ContainsFunc(world.Clusters, func(c Cluster) bool {
		return c.Consul == name && (c.Syncs || c.WantsAgents)
	}) || doc.Consul.Agents.Director}
	for _, account := range []string{doc.Consul.Credentials, doc.Consul.Gossip} {
		if account == "" {
			continue
		}
		secret, err := s.Accounts.OpenConsul(ctx, name, account, *doc.Consul)
		if err == nil && account == doc.Consul.Gossip {
			err = gossipKey(secret)
		}
		if !t.add("", "credentials "+account, "they can be read", err) && account == doc.Consul.Credentials {
			return t.found, nil // no token may be sent
		}
	}
	c, err := s.client(ctx, doc)
	if err != nil {
		t.add("", "settings", "", err)
		return t.found, nil
	}
	var well []host
	for _, h := range c.hosts {
		if s.reach(ctx, t, h) {
			well = append(well, h)
		}
	}
	if len(well) > 0 {
		t.ask(ctx, well[0])
		if clusters := world.named(name); len(clusters) > 0 {
			t.names(ctx, well[0], clusters)
		}
		s.own().testOwnAgent(ctx, t, well[0])
	}
	return t.found, ctx.Err()
}

// reach looks at one address: its name, its certificate, and whether a Consul answers.
func (s *Service) reach(ctx context.Context, t *tester, h host) bool {
	name, _, err := net.SplitHostPort(h.name)
	if err != nil {
		return t.add(h.name, "address", "", err)
	}
	addresses, err := s.Networks.Resolve(ctx, name)
	if err != nil {
		var lookup *net.DNSError
		if errors.As(err, &lookup) {
			err = director.Errorf(
				director.KindUnavailable, "discovery.test", "the name %s cannot be resolved: %w", name, err,
			).WithHint("check the name, and the name servers of the director")
		} else {
			err = explain(h.name, err)
		}
	}
	if !t.add(h.name, "address", fmt.Sprint(addresses), err) {
		return false
	}
	state, err := h.handshake(ctx, s)
	if err != nil {
		var tlsErr *tls.CertificateVerificationError
		what := "connection"
		if errors.As(err, &tlsErr) {
			what = "certificate"
		}
		return t.add(h.name, what, "", explain(h.name, err))
	}
	t.add(h.name, "certificate", "valid until "+state.PeerCertificates[0].NotAfter.UTC().Format(time.DateOnly), nil)
	return t.add(h.name, "answer", "it is Consul", h.answers(ctx))
}

func (h host) handshake(ctx context.Context, s *Service) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := s.Networks.Dialer().DialContext(ctx, "tcp", h.name)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = conn.Close() }()
	secured := tls.Client(conn, h.tls)
	err = secured.HandshakeContext(ctx)
	return secured.ConnectionState(), err
}

func (h host) answers(ctx context.Context) error {
	_, err := h.api.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	status, said := errors.AsType[api.StatusError](err)
	switch {
	case err == nil, said && strings.Contains(status.Body, "No path to datacenter"),
		said && strings.Contains(status.Body, "No cluster leader"):
		return nil // said below, in better words
	case said:
		return director.Errorf(
			director.KindUnavailable, "discovery.test", "what answers at %s is no Consul: %d %s", h.name, status.Code,
			clean(status.Body),
		).WithHint("name the HTTPS port of a Consul agent or server, 8501 unless it was changed")
	}
	return explain(h.name, err)
}

// ask looks at the Consul behind the first address that works.
func (t *tester) ask(ctx context.Context, h host) {
	self, selfErr := h.self(ctx)
	if !t.datacenter(ctx, h, self) {
		return
	}
	leader, err := h.api.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	if err == nil && leader == "" {
		err = api.StatusError{Code: http.StatusInternalServerError, Body: "No cluster leader"}
	}
	if err != nil {
		err = explain(h.name, err)
	}
	if !t.add("", "leader", leader, err) || !t.token(ctx, h) {
		return
	}
	t.add("", "right agent:read", "the token has it", right(selfErr, h.name, "agent:read",
		`agent_prefix "" { policy = "read" }`))
	t.rights(ctx, h)
	if selfErr == nil {
		t.domain(self)
	}
}

// self is what an agent says of itself.
type self struct{ datacenter, domain, version string }

func (h host) self(ctx context.Context) (self, error) {
	var body struct {
		Config      struct{ Datacenter, Version string }
		DebugConfig struct{ DNSDomain string }
	}
	err := h.call(ctx, http.MethodGet, "/v1/agent/self", nil, &body)
	return self{body.Config.Datacenter, strings.TrimSuffix(body.DebugConfig.DNSDomain, "."), body.Config.Version}, err
}

// call asks for what the client library does not know, or reads with fields that it does not have.
func (h host) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, body)
	if err != nil {
		return err
	}
	resp, err := h.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return api.StatusError{Code: resp.StatusCode, Body: string(text)}
	}
	return json.Unmarshal(text, out)
}

func (t *tester) datacenter(ctx context.Context, h host, s self) bool {
	want := t.doc.Consul.Datacenter
	const what = "datacenter"
	var all []string
	err := h.call(ctx, http.MethodGet, "/v1/catalog/datacenters", nil, &all)
	if err != nil {
		return t.add("", what, "", explain(h.name, err))
	}
	if !slices.Contains(all, want) {
		return t.add("", what, "", director.Errorf(
			director.KindInvalid, "discovery.test", "it is %s, and spec.datacenter is %s",
			clean(strings.Join(all, ", ")), want,
		).WithHint("correct spec.datacenter, or spec.addresses"))
	}
	found := want
	if s.version != "" {
		found += ", Consul " + clean(s.version)
	}
	if s.datacenter != "" && s.datacenter != want {
		found += ", by way of " + clean(s.datacenter)
	}
	return t.add("", what, found, nil)
}

// token asks whether Consul knows the token.
func (t *tester) token(ctx context.Context, h host) bool {
	const what = "token"
	if t.doc.Consul.Credentials == "" {
		t.found = append(t.found, Finding{What: what, Found: "none is sent"})
		return true
	}
	token, _, err := h.api.ACL().TokenReadSelf((&api.QueryOptions{}).WithContext(ctx))
	status, said := errors.AsType[api.StatusError](err)
	switch {
	case said && strings.Contains(status.Body, "ACL support disabled"):
		t.found = append(t.found, Finding{What: what, Found: "Consul does not ask for one: its ACLs are off"})
		return true
	case err != nil:
		return t.add("", what, "", explain(h.name, err))
	}
	found := "Consul knows it"
	if token.ExpirationTime != nil {
		found += "; it ends at " + token.ExpirationTime.UTC().Format(time.RFC3339)
	}
	return t.add("", what, found, nil)
}

// authorization is one question of Consul's own console.
type authorization struct {
	Resource string
	Segment  string
	Access   string
	Allow    bool `json:",omitempty"`
}

// rights asks for each right by itself.
func (t *tester) rights(ctx context.Context, h host) {
	const sample = "00000000-0000-0000-0000-000000000000" // the uid of no cluster
	type question struct {
		name, rule string
		authorization
	}
	asked := []question{
		{
			"node:write " + Node(t.director), `node_prefix "kaas-" { policy = "write" }`,
			authorization{Resource: "node", Segment: Node(t.director), Access: "write"},
		},
		{
			"node:write " + nodePrefix + "UID", `node_prefix "kaas-" { policy = "write" }`,
			authorization{Resource: "node", Segment: Node(sample), Access: "write"},
		},
		{
			"service:write " + ServiceDirector, `service_prefix "kaas-" { policy = "write" }`,
			authorization{Resource: "service", Segment: ServiceDirector, Access: "write"},
		},
		{
			"service:write " + service("CLUSTER"), `service_prefix "kaas-" { policy = "write" }`,
			authorization{Resource: "service", Segment: service(sample), Access: "write"},
		},
		{
			"service:read", `service_prefix "" { policy = "read" }`,
			authorization{Resource: "service", Segment: sample, Access: "read"},
		},
	}
	if t.tokens {
		asked = append(asked, question{"acl:write", aclRule, authorization{Resource: "acl", Access: "write"}})
	}
	questions := make([]authorization, len(asked))
	for i, a := range asked {
		questions[i] = a.authorization
	}
	var answers []authorization
	err := h.call(ctx, http.MethodPost, "/v1/internal/acl/authorize", questions, &answers)
	if status, said := errors.AsType[api.StatusError](err); said &&
		strings.Contains(status.Body, "ACL support disabled") {
		t.found = append(t.found, Finding{What: "rights", Found: "its ACLs are off: everyone has all"})
		return
	}
	if err == nil && len(answers) != len(asked) {
		err = errors.New("it does not answer all questions")
	}
	if err != nil {
		t.add("", "rights", "", explain(h.name, err))
		return
	}
	for i, a := range asked {
		var denied error
		if !answers[i].Allow {
			denied = director.Errorf(
				director.KindForbidden, "discovery.test", "the token does not have it",
			).WithHint("add to its policy: %s", a.rule)
		}
		t.add("", "right "+a.name, "the token has it", denied)
	}
}

// right says that a right is missing if Consul denied what needs it.
func right(err error, name, what, rule string) error {
	status, said := errors.AsType[api.StatusError](err)
	if said && status.Code == http.StatusForbidden {
		return director.Errorf(director.KindForbidden, "discovery.test", "the token does not have it").
			WithHint("add to its policy: %s (%s tells what the agent is)", rule, what)
	}
	if err != nil {
		return explain(name, err)
	}
	return nil
}

func (t *tester) domain(s self) {
	want := t.doc.Consul.Domain
	var err error
	if !strings.EqualFold(s.domain, want) {
		err = director.Errorf(
			director.KindInvalid, "discovery.test", "Consul answers for %s, and spec.domain is %s", clean(s.domain),
			want,
		).WithHint("correct spec.domain, or domain in the configuration of the agents")
	}
	t.add("", "domain", want, err)
}

// gossipKey checks what consul keygen prints: 16, 24 or 32 bytes.
func gossipKey(c director.Credentials) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(c.Password.Reveal()))
	if n := len(key); err == nil && (n == 16 || n == 24 || n == 32) {
		return nil
	}
	return director.Errorf(
		director.KindInvalid, "discovery.test", "the password of the credentials %s is no gossip key", c.Name,
	).WithHint("store what consul keygen prints: directorctl provider credentials set %s --user gossip "+
		"--password-file FILE", c.Name)
}

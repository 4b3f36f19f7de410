package acme

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

const (
	mostAnswer = 1 << 20 // bytes
	mostWords  = 300     // of what a server says
	mostTries  = 3       // of one request that the server answers with a failure of its own
)

const (
	askLimit  = 90 * time.Second // step-ca answers when it has tried to connect
	pollEvery = time.Second      // that the server is asked whether it has validated a name
)

// How a name is proved.
const (
	byTLS  = "tls-alpn-01"
	byHTTP = "http-01"
)

// client follows no redirects, has no proxy, speaks https alone, and reaches allowed networks alone: the server says at
// which addresses the client asks next.
func (m *Manager) client() *http.Client {
	return &http.Client{
		Timeout: askLimit,
		Transport: secure{confine.Answers(&http.Transport{
			DialContext:     m.Networks.Dialer().DialContext,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: m.Roots}, DisableKeepAlives: true,
			DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: mostAnswer,
		}, mostAnswer)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// secure refuses all but https.
type secure struct{ next http.RoundTripper }

func (b secure) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, director.Errorf(director.KindInvalid, "acme.ask", "the ACME server leads to %s", r.URL.Redacted())
	}
	return b.next.RoundTrip(r)
}

// obtain gets another certificate with another key.
func (m *Manager) obtain(ctx context.Context) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	account, err := m.accountKey()
	if err != nil {
		return nil, err
	}
	c := &acme.Client{
		Key: account, HTTPClient: m.http, DirectoryURL: m.Directory, UserAgent: "director",
		RetryBackoff: func(n int, _ *http.Request, _ *http.Response) time.Duration {
			if n > mostTries {
				return -1
			}
			return time.Duration(n) * time.Second
		},
	}
	if err := m.register(ctx, c); err != nil {
		return nil, err
	}
	order, err := c.AuthorizeOrder(ctx, acme.DomainIDs(m.Names...))
	if err != nil {
		return nil, err
	}
	for _, at := range order.AuthzURLs {
		if err := m.prove(ctx, c, at); err != nil {
			return nil, err
		}
	}
	if order, err = c.WaitOrder(ctx, order.URI); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: m.Names}, key)
	if err != nil {
		return nil, err
	}
	chain, _, err := c.CreateCertFromOrder(ctx, order, csr, true)
	if err != nil {
		return nil, err
	}
	return m.check(chain, key)
}

// register makes the account, or finds it.
func (m *Manager) register(ctx context.Context, c *acme.Client) error {
	a := &acme.Account{}
	if m.Email != "" {
		a.Contact = []string{"mailto:" + m.Email}
	}
	if m.KeyID != "" {
		a.ExternalAccountBinding = &acme.ExternalAccountBinding{KID: m.KeyID, Key: m.Key}
	}
	_, err := c.Register(ctx, a, acme.AcceptTOS)
	if errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil
	}
	return err
}

// prove proves that the director has the name of the authorization.
func (m *Manager) prove(ctx context.Context, c *acme.Client, at string) error {
	a, err := c.GetAuthorization(ctx, at)
	if err != nil {
		return err
	}
	if a.Status == acme.StatusValid { // proved for an earlier order
		return nil
	}
	name := strings.ToLower(a.Identifier.Value)
	if a.Identifier.Type != "dns" || !slices.Contains(m.Names, name) {
		return refusal("asks for a proof of a name that was not asked for")
	}
	challenge, err := m.choose(a)
	if err != nil {
		return err
	}
	put, drop, err := m.proof(c, name, challenge)
	if err != nil {
		return err
	}
	put()
	defer drop()
	if _, err := c.Accept(ctx, challenge); err != nil {
		return err
	}
	return validated(ctx, c, at)
}

// validated waits until the server has validated the name. The library's own wait is not used: step-ca leaves an
// authorization pending that it could not validate, with the reason, and waits to be asked again.
func validated(ctx context.Context, c *acme.Client, at string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		a, err := c.GetAuthorization(ctx, at)
		if err != nil {
			return err
		}
		if a.Status == acme.StatusValid {
			return nil
		}
		var why []error
		for _, challenge := range a.Challenges {
			if challenge.Error != nil {
				why = append(why, challenge.Error)
			}
		}
		if len(why) > 0 || a.Status != acme.StatusPending && a.Status != acme.StatusProcessing {
			return &acme.AuthorizationError{URI: at, Identifier: a.Identifier.Value, Errors: why}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// choose returns the challenge that the director can meet.
func (m *Manager) choose(a *acme.Authorization) (*acme.Challenge, error) {
	var offered []string
	var found *acme.Challenge
	for _, c := range a.Challenges {
		offered = append(offered, words(c.Type))
		if c.Type == byHTTP && m.HTTP || c.Type == byTLS && found == nil {
			found = c
		}
	}
	if found == nil {
		return nil, refusal("offers no way to prove a name that the director knows, but " + strings.Join(offered, ", "))
	}
	return found, nil
}

// proof returns what shows the proof, and what takes it away.
func (m *Manager) proof(c *acme.Client, name string, challenge *acme.Challenge) (put, drop func(), err error) {
	locked := func(do func()) func() {
		return func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			do()
		}
	}
	if challenge.Type == byHTTP {
		text, err := c.HTTP01ChallengeResponse(challenge.Token)
		at := c.HTTP01ChallengePath(challenge.Token)
		return locked(func() { m.response[at] = text }), locked(func() { delete(m.response, at) }), err
	}
	cert, err := c.TLSALPN01ChallengeCert(challenge.Token, name)
	return locked(func() { m.alpn[name] = &cert }), locked(func() { delete(m.alpn, name) }), err
}

// check looks whether the chain is what was asked for.
func (m *Manager) check(chain [][]byte, key crypto.Signer) (*tls.Certificate, error) {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, refusal("has sent a certificate that cannot be read")
	}
	public, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || !public.Equal(key.Public()) {
		return nil, refusal("has sent a certificate for another key")
	}
	if now := m.Now(); now.After(leaf.NotAfter) {
		return nil, refusal("has sent a certificate that has ended on " + leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if name := m.missing(leaf); name != "" {
		return nil, refusal("has sent a certificate without the name " + name)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// missing returns a name that the certificate is not for, or "".
func (m *Manager) missing(leaf *x509.Certificate) string {
	for _, name := range m.Names {
		if leaf.VerifyHostname(name) != nil {
			return name
		}
	}
	return ""
}

// refusal is what the server did wrong.
type refusal string

// Error says it with its subject.
func (r refusal) Error() string { return "the ACME server " + string(r) }

// failure is what people are told of an attempt that failed.
type failure struct {
	what, next string
	away       bool          // the server was not reached, or has failed itself
	after      time.Duration // when the server wants to be asked again, if it says so
}

// explain says what went wrong and what to do. What a server says is bounded, and printable.
func explain(err error) failure {
	f := failure{what: words(err.Error())}
	if own, ok := errors.AsType[*director.Error](err); ok {
		return failure{what: words(own.Msg), next: director.HintOf(err), away: true}
	}
	answer, ok := errors.AsType[*acme.Error](err)
	if ok {
		f.after, _ = acme.RateLimit(answer)
		f.away = answer.StatusCode >= http.StatusInternalServerError
		f.what = words(fmt.Sprintf("the ACME server has refused: %s (%s)", answer.Detail, answer.ProblemType))
		f.next = "correct acme in the director's configuration, or allow the names on the ACME server"
	}
	var unproved *acme.AuthorizationError
	var order *acme.OrderError
	var syntax *json.SyntaxError
	var network net.Error
	var wrong *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unproved):
		var why []string
		for _, e := range unproved.Errors {
			if p, ok := errors.AsType[*acme.Error](e); ok {
				why = append(why, p.Detail)
			} else {
				why = append(why, e.Error())
			}
		}
		f.what = words("the ACME server could not validate " + unproved.Identifier + ": " + strings.Join(why, "; "))
		f.next = "see that the name leads to the director, and that the ACME server reaches port 443 of it, or port " +
			"80 with acme.httpListen"
	case errors.As(err, &order):
		f.next = "look at the log of the ACME server"
	case errors.Is(err, confine.ErrAddress):
		f.what, f.away = "the address of the ACME server is not allowed: "+words(reason(err).Error()), true
		f.next = "name its range in acme.networks of the director's configuration"
	case errors.As(err, &wrong):
		f.what, f.away = "the certificate of the ACME server is not trusted: "+words(wrong.Err.Error()), true
		f.next = "name the file with the authority of its certificate in acme.caFile"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		f.what, f.away = "the ACME server does not answer: "+words(reason(err).Error()), true
		f.next = "see whether it runs, and acme.directory is its address"
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		answer != nil && answer.ProblemType == "" && !f.away:
		f.what, f.away = "what answers there is no ACME server", true
		f.next = "see that acme.directory is the address of its directory"
	}
	return f
}

// reason leaves out the address that http's errors repeat.
func reason(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// words makes what a server says fit for people to read.
func words(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	if len(text) > mostWords {
		text = text[:mostWords] + "..."
	}
	return text
}

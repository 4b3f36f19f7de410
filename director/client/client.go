// Package client speaks the director's HTTP API. Every error that it returns is a *director.Error with the kind, the
// hint and the fields that the director gave it, or unavailable when there was no answer.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Config says which director to speak to, and how to know that it is the one.
type Config struct {
	Server string // https://host:port
	Token  director.Secret
	// CA holds PEM certificates that alone are trusted; empty means the system's.
	CA []byte
	// Fingerprint pins the server's certificate, or an authority in its chain: SHA256:hex. It takes the place of CA.
	Fingerprint string
	UserAgent   string
}

// Client is a connection to a director. It is safe for concurrent use.
type Client struct {
	*connection
	accountCalls
	documentCalls
	clusterCalls
	planCalls
	campaignCalls
	receiverCalls
	imageCalls
	providerCalls
	userCalls
	auditCalls
}

// accountCalls log in and out.
type accountCalls struct{ *connection }

// documentCalls read and write documents.
type documentCalls struct{ *connection }

// clusterCalls ask about clusters and their nodes, and for what gives access to them.
type clusterCalls struct{ *connection }

// planCalls make plans, move them on and follow them.
type planCalls struct{ *connection }

// campaignCalls bring one change to many clusters.
type campaignCalls struct{ *connection }

// receiverCalls ask about hooks and notifications: who receives what, and the keys of their requests.
type receiverCalls struct{ *connection }

// imageCalls bring images to the director.
type imageCalls struct{ *connection }

// providerCalls ask about hypervisors, VMs and disks, and run schedules.
type providerCalls struct{ *connection }

// connection sends requests and reads answers.
type connection struct {
	base  *url.URL
	token director.Secret
	agent string
	http  *http.Client
	// backoff waits before the n-th try to take a stream up again; a test makes it short.
	backoff func(n int) time.Duration
}

// New returns a client. It does not connect.
func New(c Config) (*Client, error) {
	base, err := parseServer(c.Server)
	if err != nil {
		return nil, err
	}
	conf, err := tlsConfig(c, base.Hostname())
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = conf
	transport.ForceAttemptHTTP2 = true
	transport.ResponseHeaderTimeout = 11 * time.Minute // a plan reads gigabytes, which may lie on a slow disk
	// A stopped director keeps its connections. A silent connection is probed and closed, so that the next try reaches
	// another director.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	conn := &connection{
		base: base, token: c.Token, agent: c.UserAgent,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the API never redirects; a token must not follow one
		}},
		backoff: func(n int) time.Duration { return min(time.Duration(n)*500*time.Millisecond, 5*time.Second) },
	}
	return &Client{
		conn,
		accountCalls{conn},
		documentCalls{conn},
		clusterCalls{conn},
		planCalls{conn},
		campaignCalls{conn},
		receiverCalls{conn},
		imageCalls{conn},
		providerCalls{conn},
		userCalls{conn},
		auditCalls{conn},
	}, nil
}

// Close ends idle connections.
func (c *connection) Close() { c.http.CloseIdleConnections() }

func parseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.User != nil ||
		u.RawQuery != "" {
		return nil, director.Errorf(
			director.KindInvalid, "client.server", "%q is not the address of a director", server,
		).
			WithHint("write https://host:port")
	}
	u.Path = ""
	return u, nil
}

type request struct {
	method, path string
	query        url.Values
	body         any    // encoded as JSON unless it is []byte or a part of a file
	contentType  string // of a body that is not encoded
	accept       string
	header       http.Header
	once         bool // carries a key, so that it can be sent again when the answer is lost
}

// tries is how often a request with a key is sent when its answer is lost: with the default backoff for over 20 s, in
// which a director restarts, or another one answers instead of a dead one.
const tries = 10

// errAtWork says that the first try of a request with a key is not known to have ended.
var errAtWork = errors.New("client: the first try is at work")

// open sends the request and returns the answer if its status is good; the caller closes its body. What must happen
// once is sent again with its key when the connection breaks: the director answers it from memory if it was done.
func (c *connection) open(ctx context.Context, r request) (*http.Response, error) {
	if !r.once {
		return c.send(ctx, r)
	}
	r.header = r.header.Clone()
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set("Idempotency-Key", rand.Text())
	for n := 1; ; n++ {
		resp, err := c.send(ctx, r)
		if err == nil || n == tries || !lostAnswer(err) && (n == 1 || !passes(err)) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(c.backoff(n)):
		}
	}
}

// lostAnswer reports whether the request may have arrived although there was no answer. A request that could not even
// be sent is not tried again: a person at a terminal wants to know at once.
func lostAnswer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, http.ErrServerClosed) ||
		// no answer to a ping; net/http has no name for it
		err != nil && strings.HasSuffix(err.Error(), "http2: client connection lost")
}

// passes reports whether another try after a lost answer may find out more: the director is not back yet, or the lost
// try is still at work.
func passes(err error) bool {
	return director.KindOf(err) == director.KindUnavailable || errors.Is(err, errAtWork)
}

func (c *connection) send(ctx context.Context, r request) (*http.Response, error) {
	op := "client." + strings.ToLower(r.method)
	u := *c.base
	u.Path = wire.Prefix + r.path
	u.RawPath = ""
	u.RawQuery = r.query.Encode()
	var body io.Reader
	contentType := r.contentType
	switch b := r.body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	case *io.SectionReader:
		body = b
	default:
		raw, err := wire.Marshal(b)
		if err != nil {
			return nil, director.Errorf(director.KindInternal, op, "encoding the request: %w", err)
		}
		body, contentType = bytes.NewReader(raw), "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "making the request: %w", err)
	}
	if b, ok := r.body.(*io.SectionReader); ok {
		req.ContentLength = b.Size()
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, op, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		if r.once {
			return c.whole(ctx, op, resp)
		}
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, errorOf(op, resp)
}

// whole reads the answer to its end: one that breaks off in its middle is lost, too.
func (c *connection) whole(ctx context.Context, op string, resp *http.Response) (*http.Response, error) {
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.unreachable(ctx, op, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	return resp, nil
}

func (c *connection) unreachable(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := errors.AsType[*director.Error](err); ok {
		return e // of the certificate check
	}
	if e := certificateError(c.base, err); e != nil {
		return e
	}
	return &director.Error{
		Kind: director.KindUnavailable, Op: op,
		Msg:  "the director at " + c.base.String() + " does not answer: " + rootCause(err),
		Hint: "check the address and that the director runs", Err: err,
	}
}

// rootCause is the innermost message: the outer ones repeat the method and the address.
func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

func errorOf(op string, resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came is shown as far as it came
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p wire.Problem
	if media == "application/problem+json" && json.Unmarshal(raw, &p) == nil && p.Kind != "" {
		e := p.AsError(op)
		if p.Kind == string(director.KindInternal) && p.RequestID != "" {
			e.Msg += " (request " + p.RequestID + ")"
		}
		if resp.StatusCode == http.StatusConflict && resp.Header.Get("Retry-After") != "" {
			e.Err = errAtWork
		}
		return e
	}
	return &director.Error{
		Kind: director.KindUnavailable, Op: op,
		Msg:  fmt.Sprintf("the answer is not a director's: HTTP status %s", resp.Status),
		Hint: "check the address; a proxy may be in front of it",
	}
}

// call sends the request and decodes a JSON answer into out, which may be nil.
func (c *connection) call(ctx context.Context, r request, out any) error {
	resp, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return director.Errorf(director.KindUnavailable, "client.decode", "the answer broke off: %w", err).
			WithHint("try again")
	}
	return nil
}

func (c *connection) text(ctx context.Context, r request) ([]byte, error) {
	resp, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, director.Errorf(director.KindUnavailable, "client.read", "the answer broke off: %w", err).
			WithHint("try again")
	}
	return b, nil
}

func documentPath(ref model.Ref) string { return "/documents/" + string(ref.Kind) + "/" + ref.Name }

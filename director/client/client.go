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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
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
	transport.ResponseHeaderTimeout = 90 * time.Second
	// A stopped director keeps its connections. A silent connection is probed and closed, so that the next try reaches
	// another director.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return &Client{
		base: base, token: c.Token, agent: c.UserAgent,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the API never redirects; a token must not follow one
		}},
		backoff: func(n int) time.Duration { return min(time.Duration(n)*500*time.Millisecond, 5*time.Second) },
	}, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

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
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
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

func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
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
		raw, err := json.Marshal(b)
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
func (c *Client) whole(ctx context.Context, op string, resp *http.Response) (*http.Response, error) {
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, c.unreachable(ctx, op, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	return resp, nil
}

func (c *Client) unreachable(ctx context.Context, op string, err error) error {
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
		Hint: "check the address; a proxy may stand before it",
	}
}

// call sends the request and decodes a JSON answer into out, which may be nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
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

func (c *Client) text(ctx context.Context, r request) ([]byte, error) {
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

// Login returns a new session. The client itself does not use its token.
func (c *Client) Login(ctx context.Context, user string, password director.Secret) (wire.Session, error) {
	var s wire.Session
	err := c.call(
		ctx,
		request{method: http.MethodPost, path: "/login", body: wire.Login{User: user, Password: password.Reveal()}}, &s,
	)
	return s, err
}

// Logout ends the client's token.
func (c *Client) Logout(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodPost, path: "/logout"}, nil)
}

// Me says whose token the client has.
func (c *Client) Me(ctx context.Context) (wire.Me, error) {
	var m wire.Me
	err := c.call(ctx, request{method: http.MethodGet, path: "/me"}, &m)
	return m, err
}

// ChangePassword replaces the user's password.
func (c *Client) ChangePassword(ctx context.Context, current, next director.Secret) error {
	return c.call(ctx, request{
		method: http.MethodPost, path: "/password",
		body: wire.PasswordChange{Current: current.Reveal(), New: next.Reveal()},
	}, nil)
}

// Version returns what runs on the server. It needs no token.
func (c *Client) Version(ctx context.Context) (wire.Version, error) {
	var v wire.Version
	err := c.call(ctx, request{method: http.MethodGet, path: "/version"}, &v)
	return v, err
}

// Ready returns nil when the director can work. It needs no token.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodGet, path: "/readyz"}, nil)
}

// Apply stores the documents of a YAML stream, all or none. source is what errors call the text.
func (c *Client) Apply(ctx context.Context, text []byte, source string, dryRun bool) (wire.Applied, error) {
	return c.ApplyIf(ctx, text, source, dryRun, "")
}

// ApplyIf is Apply of a single document if it still is at the version that the tag names; the tag "" is no condition.
func (c *Client) ApplyIf(
	ctx context.Context, text []byte, source string, dryRun bool, tag string,
) (wire.Applied, error) {
	q := url.Values{}
	if dryRun {
		q.Set("dry_run", "true")
	}
	header := http.Header{}
	if tag != "" {
		header.Set("If-Match", tag)
	}
	if source != "" {
		q.Set("source", source)
	}
	var a wire.Applied
	err := c.call(
		ctx,
		request{
			method: http.MethodPost, path: "/apply", query: q, body: text, contentType: "application/yaml",
			header: header, once: true,
		},
		&a,
	)
	return a, err
}

func documentPath(ref model.Ref) string { return "/documents/" + string(ref.Kind) + "/" + ref.Name }

// Documents lists documents of a kind.
func (c *Client) Documents(ctx context.Context, kind model.Kind) ([]wire.Document, error) {
	return all(func(q url.Values) ([]wire.Document, string, error) {
		var d wire.Documents
		err := c.call(ctx, request{method: http.MethodGet, path: "/documents/" + string(kind), query: q}, &d)
		return d.Items, d.Continue, err
	})
}

// Document returns one document.
func (c *Client) Document(ctx context.Context, ref model.Ref) (wire.Document, error) {
	var d wire.Document
	err := c.call(ctx, request{method: http.MethodGet, path: documentPath(ref)}, &d)
	return d, err
}

// DocumentYAML returns one document, or all of a kind if ref has no name, as a text that can be applied again.
func (c *Client) DocumentYAML(ctx context.Context, ref model.Ref) ([]byte, error) {
	path := documentPath(ref)
	if ref.Name == "" {
		path = "/documents/" + string(ref.Kind)
	}
	return c.text(ctx, request{method: http.MethodGet, path: path, accept: "application/yaml"})
}

// DeleteDocument removes a document that nothing uses.
func (c *Client) DeleteDocument(ctx context.Context, ref model.Ref) error {
	return c.call(ctx, request{method: http.MethodDelete, path: documentPath(ref)}, nil)
}

// Clusters lists the clusters with their state, or the named fields of it.
func (c *Client) Clusters(ctx context.Context, fields ...string) ([]wire.Cluster, error) {
	var items []wire.Cluster
	for after := ""; ; {
		part, err := c.ClusterPage(ctx, after, fields...)
		if err != nil {
			return items, err
		}
		items = append(items, part.Items...)
		if after = part.Continue; after == "" {
			return items, nil
		}
	}
}

// ClusterPage returns the part of the list of clusters that an earlier part names as its continue; the first one for
// "".
func (c *Client) ClusterPage(ctx context.Context, after string, fields ...string) (wire.Clusters, error) {
	q := url.Values{"limit": {strconv.Itoa(mostPerPage)}}
	if len(fields) > 0 {
		q.Set("fields", strings.Join(fields, ","))
	}
	if after != "" {
		q.Set("continue", after)
	}
	var l wire.Clusters
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters", query: q}, &l)
	return l, err
}

// Cluster returns the state of one cluster.
func (c *Client) Cluster(ctx context.Context, name string) (wire.Cluster, error) {
	var v wire.Cluster
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + name}, &v)
	return v, err
}

// Nodes shows the nodes of the cluster. The cluster itself is asked.
func (c *Client) Nodes(ctx context.Context, cluster string) (wire.Nodes, error) {
	var v wire.Nodes
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/nodes"}, &v)
	return v, err
}

// Rehearse is a dry run of a drain: it returns the pods that would be evicted, and what would block them.
func (c *Client) Rehearse(ctx context.Context, cluster, node string) ([]wire.Eviction, error) {
	var v wire.Evictions
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/nodes/" + node + "/drain"}, &v)
	return v.Items, err
}

// MakePlan freezes a plan for the cluster. Without an operation it is what brings the cluster to its document.
func (c *Client) MakePlan(ctx context.Context, cluster string, r plan.Request) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/plans", body: wire.PlanRequestOf(r), once: true,
	}, &p)
	return p, err
}

// Kubeconfig mints a kubeconfig; ttl 0 lets the director choose.
func (c *Client) Kubeconfig(ctx context.Context, cluster string, ttl time.Duration) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/kubeconfig",
		body: wire.KubeconfigRequest{TTLSeconds: int64(ttl / time.Second)}, accept: "application/yaml",
	})
}

// Inventory returns what a playbook run of the cluster would get, by path, without secrets.
func (c *Client) Inventory(ctx context.Context, cluster string) (map[string]string, error) {
	var i wire.Inventory
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/inventory"}, &i)
	return i.Files, err
}

// ExportInventory is Inventory with the cluster's secrets and an SSH key with a certificate; ttl 0 lets the director
// choose how long that is good for.
func (c *Client) ExportInventory(
	ctx context.Context, cluster string, password director.Secret, ttl time.Duration,
) (map[string]string, error) {
	var i wire.Inventory
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/inventory",
		body: wire.InventoryExport{Password: password.Reveal(), TTLSeconds: int64(ttl / time.Second)},
	}, &i)
	return i.Files, err
}

// Plan returns one plan with the state of its run.
func (c *Client) Plan(ctx context.Context, id string) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodGet, path: "/plans/" + id}, &p)
	return p, err
}

func (c *Client) verb(ctx context.Context, id, verb string, body any) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodPost, path: "/plans/" + id + "/" + verb, body: body, once: true}, &p)
	return p, err
}

// StartPlan starts the plan with the hash.
func (c *Client) StartPlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "start", wire.PlanStart{Hash: hash})
}

// CancelPlan stops the plan between steps, or ends its running steps too.
func (c *Client) CancelPlan(ctx context.Context, id string, now bool) (wire.Plan, error) {
	return c.verb(ctx, id, "cancel", wire.PlanCancel{Now: now})
}

// ApprovePlan agrees to the start of the plan with the hash.
func (c *Client) ApprovePlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "approve", wire.PlanStart{Hash: hash})
}

// PausePlan keeps further steps from starting.
func (c *Client) PausePlan(ctx context.Context, id, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "pause", wire.PlanPause{Reason: reason})
}

// RetryPlan continues a stopped plan: with step only that one runs again, otherwise every step that failed, was parked
// or was undone.
func (c *Client) RetryPlan(ctx context.Context, id, step string) (wire.Plan, error) {
	return c.verb(ctx, id, "retry", wire.PlanRetry{Step: step})
}

// SkipStep leaves the step out of the plan.
func (c *Client) SkipStep(ctx context.Context, id, step, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "skip", wire.PlanSkip{Step: step, Reason: reason})
}

// UndoPlan undoes what the stopped plan did.
func (c *Client) UndoPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "undo", nil)
}

// DiscardPlan gives up a plan that does not run.
func (c *Client) DiscardPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "discard", nil)
}

// StepLog opens the log of a step from a byte offset to where it ends now; attempt 0 is the latest. The caller closes
// it.
func (c *Client) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	q := url.Values{"step": {step}}
	if attempt > 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	if offset > 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/log", query: q, accept: "application/x-ndjson",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Archive opens the archive of a plan, a tar.gz. The caller closes it.
func (c *Client) Archive(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/archive", accept: "application/gzip",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
)

const op = "peers.log"

const (
	// patience is how long a peer may take to begin an answer.
	patience = 10 * time.Second
	// mostAnswer is how large a window or the hits of a search may be: twice what the journal sends.
	mostAnswer = 16 << 20
)

// Addresses finds directors. *store.Store implements it.
type Addresses interface {
	// Peer returns where the director with the instance answers, and its host; not_found if it is away.
	Peer(ctx context.Context, instance string) (address, host string, err error)
}

// Client asks other directors for their logs. It is safe for concurrent use.
type Client struct {
	key       []byte
	addresses Addresses
	http      *http.Client
	now       func() time.Time
}

var _ journal.Peers = (*Client)(nil)

// NewClient returns a client. trust says which certificates peers have to have, and is asked for each connection.
func NewClient(key []byte, addresses Addresses, trust func() *tls.Config, now func() time.Time) *Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience / 2}, Config: trust()}
		return d.DialContext(ctx, network, address)
	}
	return &Client{key, addresses, &http.Client{
		Transport: &http.Transport{
			DialTLSContext:        dial,
			ResponseHeaderTimeout: patience,
			IdleConnTimeout:       time.Minute,
			MaxConnsPerHost:       atOnce,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, now}
}

// LogLines implements journal.Peers.
func (c *Client) LogLines(ctx context.Context, instance, plan string, q journal.LogQuery) (journal.LogWindow, error) {
	var w journal.LogWindow
	err := c.read(ctx, instance, url.Values{
		"want": {wantLines}, "plan": {plan}, "step": {q.Step}, "attempt": {strconv.Itoa(q.Attempt)},
		"from": {strconv.FormatInt(q.From, 10)}, "tail": {strconv.FormatInt(q.Tail, 10)},
		"limit": {strconv.Itoa(q.Limit)},
	}, &w)
	return w, err
}

// SearchLog implements journal.Peers.
func (c *Client) SearchLog(ctx context.Context, instance, plan string, q journal.LogSearch) (journal.Hits, error) {
	var h journal.Hits
	err := c.read(ctx, instance, url.Values{
		"want": {wantSearch}, "plan": {plan}, "step": {q.Step}, "attempt": {strconv.Itoa(q.Attempt)},
		"text": {q.Text}, "failed": {strconv.FormatBool(q.Failed)}, "from": {strconv.FormatInt(q.From, 10)},
		"limit": {strconv.Itoa(q.Limit)},
	}, &h)
	return h, err
}

// StepLog implements journal.Peers. The log ends where the file ends now.
func (c *Client) StepLog(
	ctx context.Context, instance, plan, step string, attempt int, offset int64,
) (io.ReadCloser, error) {
	res, err := c.ask(ctx, instance, url.Values{
		"want": {wantBytes}, "plan": {plan}, "step": {step}, "attempt": {strconv.Itoa(attempt)},
		"offset": {strconv.FormatInt(offset, 10)},
	})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

func (c *Client) read(ctx context.Context, instance string, q url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	res, err := c.ask(ctx, instance, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(into); err != nil {
		return away(instance, "", err)
	}
	return nil
}

// ask sends the question. The body of the answer is the caller's to close.
func (c *Client) ask(ctx context.Context, instance string, q url.Values) (*http.Response, error) {
	address, host, err := c.addresses.Peer(ctx, instance)
	if director.KindOf(err) == director.KindNotFound && err != nil || err == nil && address == "" {
		return nil, away(instance, host, err)
	}
	if err != nil {
		return nil, err
	}
	res, err := c.get(ctx, instance, address, Path, q)
	if err != nil {
		return nil, away(instance, host, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	var p problem
	if res.StatusCode != http.StatusConflict ||
		json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&p) != nil || p.Msg == "" {
		return nil, director.Errorf(
			director.KindUnavailable, op, "the director on %s (%s) that has the log does not show it: %s", host,
			instance, res.Status,
		).
			WithHint("compare sealing.key and the clocks of the directors, and upgrade older ones")
	}
	return nil, &director.Error{Kind: p.Kind, Op: op, Msg: p.Msg, Hint: p.Hint}
}

// get sends a question with its proof to the instance, which is at the address.
func (c *Client) get(ctx context.Context, instance, address, path string, q url.Values) (*http.Response, error) {
	u := url.URL{Scheme: "https", Host: address, Path: path, RawQuery: q.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", proof(c.key, instance, r.URL.RequestURI(), c.now().Add(life)))
	return c.http.Do(r)
}

// away says that the director that has a log does not answer.
func away(instance, host string, err error) error {
	who := instance
	if host != "" {
		who = host + " (" + instance + ")"
	}
	return (&director.Error{
		Kind: director.KindUnavailable, Op: op, Err: err,
		Msg: "the log is on the director that ran it, " + who + ", which does not answer",
	}).WithHint(
		"start that director again; peerAddress in its configuration is where others reach it; or let the directors " +
			"have the directory runs in common: docs/operate/high-availability.md",
	)
}

// Package webhook is how an event gets to an endpoint: as a CloudEvent, signed as Standard Webhooks say, over a
// connection that leads only where it may. It knows nothing of plans.
package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/confine"
)

// What a request and its answer may hold.
const (
	MostEvent    = 20_000   // bytes of an event
	MostAnswer   = 64 << 10 // bytes of an answer that are read; a longer one is refused
	MostReason   = 1000     // characters of a reason
	contentType  = "application/cloudevents+json; charset=utf-8"
	specVersion  = "1.0"
	maxRetry     = 24 * time.Hour
	headerID     = "Webhook-Id"
	headerTime   = "Webhook-Timestamp"
	headerSign   = "Webhook-Signature"
	publicPrefix = "whpk_" // of a public key, and of a shared secret, in the form of Standard Webhooks
	secretPrefix = "whsec_"
)

// Event is a CloudEvent in the structured form of JSON, version 1.0 of the specification.
type Event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            any       `json:"data"`
}

// Encode returns the body of a request. The same event gives the same bytes.
func (e Event) Encode() ([]byte, error) {
	e.SpecVersion, e.DataContentType = specVersion, "application/json"
	b, err := json.Marshal(e)
	if err == nil && len(b) > MostEvent {
		err = fmt.Errorf("webhook: the event has %d bytes, and may have %d", len(b), MostEvent)
	}
	return b, err
}

// Key signs. Secret is the private half of a pair, or what both sides share.
type Key struct {
	Secret []byte
	Pair   bool // ed25519, and not HMAC
}

// NewKey returns a key, and the text with which others verify it if it is a pair.
func NewKey(pair bool) (k Key, public string, err error) {
	if !pair {
		k.Secret = make([]byte, 32)
		_, _ = rand.Read(k.Secret) // crypto/rand.Read never fails
		return k, "", nil
	}
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return k, "", err
	}
	return Key{Secret: private.Seed(), Pair: true}, publicPrefix + base64.StdEncoding.EncodeToString(pub), nil
}

// Shared returns the secret as receivers take it; only for a key that is no pair.
func (k Key) Shared() string { return secretPrefix + base64.StdEncoding.EncodeToString(k.Secret) }

// Sign returns the signature of the body: Standard Webhooks sign ID.TIMESTAMP.BODY.
func (k Key) Sign(id string, at time.Time, body []byte) string {
	text := signed(id, strconv.FormatInt(at.Unix(), 10), body)
	if k.Pair {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(ed25519.NewKeyFromSeed(k.Secret), text))
	}
	return "v1," + base64.StdEncoding.EncodeToString(mac(k.Secret, text))
}

func signed(id, at string, body []byte) []byte {
	return append([]byte(id+"."+at+"."), body...)
}

func mac(secret, text []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write(text)
	return h.Sum(nil)
}

// tolerance is how far the clocks of both sides may differ.
const tolerance = 5 * time.Minute

// Verify is the receiver's side: it returns an error unless one of the signatures in the header is the body's by key, a
// public key or a shared secret in the form of Standard Webhooks.
func Verify(key string, h http.Header, body []byte, now time.Time) error {
	id, at := h.Get(headerID), h.Get(headerTime)
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return errors.New("webhook: the headers are incomplete")
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("webhook: the timestamp is too old, or in the future")
	}
	text, pair := strings.CutPrefix(key, publicPrefix)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || pair && len(raw) != ed25519.PublicKeySize {
		return errors.New("webhook: the key cannot be read")
	}
	for _, s := range strings.Fields(h.Get(headerSign)) {
		version, sum, _ := strings.Cut(s, ",")
		sig, err := base64.StdEncoding.DecodeString(sum)
		switch {
		case err != nil:
		case pair && version == "v1a" && ed25519.Verify(raw, signed(id, at, body), sig):
			return nil
		case !pair && version == "v1" && subtle.ConstantTimeCompare(mac(raw, signed(id, at, body)), sig) == 1:
			return nil
		}
	}
	return errors.New("webhook: no signature is by the key")
}

// Endpoint is where requests go, and how.
type Endpoint struct {
	URL     string
	Allow   confine.Networks // ranges that it may lead to
	Own     []netip.AddrPort // where the director itself listens; an unspecified address is every one of this machine
	Roots   *x509.CertPool   // those of the system if nil
	Client  *tls.Certificate // none if nil
	Timeout time.Duration
	Agent   string
	Resolve *net.Resolver // the system's if nil
}

// client returns a client for one request.
func (e Endpoint) client() *http.Client {
	c := confine.Guard{Allow: e.Allow, Own: e.Own, Resolve: e.Resolve}.Client(e.Timeout, e.Roots, e.Client)
	c.Timeout = e.Timeout
	return c
}

// Request is one attempt to deliver an event.
type Request struct {
	ID   string
	Body []byte
	Keys []Key // each signs
	At   time.Time
}

// Outcome is what came of an attempt.
type Outcome struct {
	Status   int           // of HTTP; 0 if there was no answer
	Received bool          // a status of 2xx
	Gone     bool          // the endpoint asks for nothing any more
	Retry    time.Duration // what it asks to wait; 0 if it does not say
	Answer   Answer        // of a status 200 with a body
	Problem  string        // why it was not received, or why its answer cannot be used; for people
	Blocked  bool          // the address is not allowed
}

// Answer is the body of an answer.
type Answer struct {
	Decision string `json:"decision"` // continue, wait or refuse; empty if there was none
	// RetryAfter is in how many seconds a waiting endpoint is to be asked again.
	RetryAfter int    `json:"retryAfter"`
	Reason     string `json:"reason"`
}

// Send posts the event once.
func (e Endpoint) Send(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Outcome{Problem: "the address cannot be used"}
	}
	signatures := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		signatures[i] = k.Sign(r.ID, r.At, r.Body)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", e.Agent)
	req.Header.Set(headerID, r.ID)
	req.Header.Set(headerTime, strconv.FormatInt(r.At.Unix(), 10))
	req.Header.Set(headerSign, strings.Join(signatures, " "))
	client := e.client()
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return failed(err, e.Timeout)
	}
	defer func() { _ = res.Body.Close() }()
	return read(res)
}

// failed explains an attempt without an answer.
func failed(err error, timeout time.Duration) Outcome {
	o := Outcome{Problem: err.Error()}
	var timed net.Error
	switch {
	case errors.Is(err, confine.ErrAddress), errors.Is(err, confine.ErrOwn):
		o.Blocked = true
	case errors.As(err, &timed) && timed.Timeout():
		o.Problem = fmt.Sprintf("no answer within %s", timeout)
	}
	if i := strings.Index(o.Problem, `": `); i >= 0 { // without the address, which the reader knows
		o.Problem = o.Problem[i+3:]
	}
	o.Problem = Clip(o.Problem, MostReason)
	return o
}

func read(res *http.Response) Outcome {
	o := Outcome{Status: res.StatusCode, Retry: retryAfter(res.Header.Get("Retry-After"))}
	body, err := io.ReadAll(io.LimitReader(res.Body, MostAnswer+1))
	switch {
	case res.StatusCode == http.StatusGone:
		o.Gone, o.Problem = true, "the endpoint says that it is gone (410)"
		return o
	case res.StatusCode >= 300 && res.StatusCode < 400:
		o.Problem = fmt.Sprintf("it redirects (%d), which is not followed", res.StatusCode)
		return o
	case res.StatusCode < 200 || res.StatusCode >= 300:
		o.Problem = fmt.Sprintf("the status is %d", res.StatusCode)
		return o
	case err != nil:
		o.Problem = "the answer ended too early"
		return o
	case len(body) > MostAnswer:
		o.Problem = fmt.Sprintf("the answer is longer than %d KiB", MostAnswer>>10)
		return o
	}
	o.Received = true
	if res.StatusCode != http.StatusOK || len(bytes.TrimSpace(body)) == 0 {
		return o
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/json" {
		o.Problem = "the answer is not application/json"
		return o
	}
	if err := json.Unmarshal(body, &o.Answer); err != nil {
		o.Answer, o.Problem = Answer{}, "the answer is not JSON with a decision"
		return o
	}
	o.Answer.Reason = Clip(o.Answer.Reason, MostReason)
	if o.Answer.RetryAfter > 0 {
		o.Retry = min(time.Duration(min(o.Answer.RetryAfter, int(maxRetry/time.Second)))*time.Second, maxRetry)
	}
	switch o.Answer.Decision {
	case "continue", "wait", "refuse":
	default:
		o.Problem = fmt.Sprintf("the decision %q is not continue, wait or refuse", Clip(o.Answer.Decision, 40))
		o.Answer = Answer{}
	}
	return o
}

// retryAfter reads the header: seconds, or a time.
func retryAfter(text string) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(min(n, int(maxRetry/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(at)), maxRetry)
	}
	return 0
}

// Clip returns text of a program that is not ours as at most n bytes of one line of characters that can be shown.
func Clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

package peers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/peers"
	"github.com/director-kaas/kaas/director/pki"
)

// logs has one log of three lines.
type logs struct{ asked atomic.Int32 }

func (l *logs) check(plan, step string, attempt int) error {
	l.asked.Add(1)
	if plan != "p1" || step != "a b&c" || attempt != 2 {
		return director.Errorf(director.KindNotFound, "test", "no log %s %s %d", plan, step, attempt).
			WithHint("look elsewhere")
	}
	return nil
}

func (l *logs) StepLog(_ context.Context, plan, step string, attempt int, offset int64) (io.ReadCloser, error) {
	if err := l.check(plan, step, attempt); err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader("one two three"[offset:])), nil
}

func (l *logs) LogLines(_ context.Context, plan string, q journal.LogQuery) (journal.LogWindow, error) {
	if err := l.check(plan, q.Step, q.Attempt); err != nil {
		return journal.LogWindow{}, err
	}
	return journal.LogWindow{
		Lines:   []journal.LogLine{{Line: q.From, Record: json.RawMessage(`{"msg":"x"}`)}},
		Attempt: q.Attempt, Total: q.Tail, Next: int64(q.Limit), Growing: true,
	}, nil
}

func (l *logs) SearchLog(_ context.Context, plan string, q journal.LogSearch) (journal.Hits, error) {
	if err := l.check(plan, q.Step, q.Attempt); err != nil {
		return journal.Hits{}, err
	}
	return journal.Hits{
		Items: []journal.Hit{{Line: q.From, Text: q.Text + fmt.Sprint(q.Failed)}}, Total: int64(q.Limit),
	}, nil
}

type addresses map[string]string

func (a addresses) Peer(_ context.Context, instance string) (address, host string, err error) {
	at, ok := a[instance]
	if !ok {
		return "", "", director.Errorf(director.KindNotFound, "test", "no director %s", instance)
	}
	return at, "first", nil
}

type fixture struct {
	*testing.T
	logs   logs
	server *httptest.Server
	trust  *tls.Config
}

var key = []byte("the key of both")

// open starts a director with its own certificate of the shared authority.
func open(t *testing.T) *fixture {
	t.Helper()
	identity, err := pki.EnsureServer(
		t.TempDir(), []string{"localhost", "director"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t}
	f.server = httptest.NewUnstartedServer(peers.NewHandler(key, "i1", &f.logs, time.Now))
	f.server.TLS = identity.TLSConfig()
	f.server.StartTLS()
	t.Cleanup(f.server.Close)
	f.trust = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "director", MinVersion: tls.VersionTLS13}
	f.trust.RootCAs.AppendCertsFromPEM([]byte(identity.CA()))
	return f
}

func (f *fixture) trusting() *tls.Config { return f.trust }

func (f *fixture) client(k []byte, now func() time.Time) *peers.Client {
	at := f.server.Listener.Addr().String()
	return peers.NewClient(k, addresses{"i1": at, "i2": at, "silent": "", "down": "127.0.0.1:1"}, f.trusting, now)
}

func wantKind(t *testing.T, err error, kind director.Kind, words ...string) {
	t.Helper()
	if err == nil || director.KindOf(err) != kind {
		t.Errorf("got %v, want %s", err, kind)
		return
	}
	for _, w := range words {
		if text := err.Error() + " " + director.HintOf(err); !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func TestLogsOfAPeer(t *testing.T) {
	t.Parallel()
	f := open(t)
	c, ctx := f.client(key, time.Now), t.Context()
	w, err := c.LogLines(ctx, "i1", "p1", journal.LogQuery{Step: "a b&c", Attempt: 2, From: 7, Tail: 9, Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(journal.LogWindow{
		Lines:   []journal.LogLine{{Line: 7, Record: json.RawMessage(`{"msg":"x"}`)}},
		Attempt: 2, Total: 9, Next: 5, Growing: true,
	}, w); diff != "" {
		t.Error(diff)
	}
	h, err := c.SearchLog(ctx, "i1", "p1", journal.LogSearch{
		Step: "a b&c", Attempt: 2, Text: "ü&%", Failed: true, From: 3, Limit: 1 << 30,
	})
	if err != nil || h.Items[0] != (journal.Hit{Line: 3, Text: "ü&%true"}) || h.Total != 10_000 {
		t.Errorf("got %+v, %v", h, err)
	}
	r, err := c.StepLog(ctx, "i1", "p1", "a b&c", 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(text) != "two three" {
		t.Errorf("got %q, %v", text, err)
	}
	// The peer's own refusal comes through.
	_, err = c.LogLines(ctx, "i1", "p1", journal.LogQuery{Step: "other"})
	wantKind(t, err, director.KindNotFound, "no log p1 other 0", "look elsewhere")
}

// A peer that is away is named, with what to do.
func TestPeerIsAway(t *testing.T) {
	t.Parallel()
	f := open(t)
	c := f.client(key, time.Now)
	for _, instance := range []string{"down", "silent", "unknown"} {
		_, err := c.LogLines(t.Context(), instance, "p1", journal.LogQuery{})
		wantKind(t, err, director.KindUnavailable, instance, "does not answer", "peerAddress")
		_, err = c.StepLog(t.Context(), instance, "p1", "a", 1, 0)
		wantKind(t, err, director.KindUnavailable, instance)
	}
}

// Who has no key gets nothing, nor who comes with a proof for another director, another question or another time.
func TestStrangersGetNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	ctx := t.Context()
	q := journal.LogQuery{Step: "a b&c", Attempt: 2}
	_, err := f.client([]byte("another key"), time.Now).LogLines(ctx, "i1", "p1", q)
	wantKind(t, err, director.KindUnavailable, "404", "compare sealing.key and the clocks")
	_, err = f.client(key, time.Now).LogLines(ctx, "i2", "p1", q) // i1 answers at the address of i2
	wantKind(t, err, director.KindUnavailable, "404")
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		_, err = f.client(key, func() time.Time { return time.Now().Add(off) }).LogLines(ctx, "i1", "p1", q)
		wantKind(t, err, director.KindUnavailable, "404")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: f.trust}}
	for _, header := range []string{
		"", "Bearer x", "Director-Peer ", "Director-Peer 1.",
		"Director-Peer 99999999999.ab",
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.server.URL+peers.Path+"?want=lines", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%q: %s", header, res.Status)
		}
	}
	if n := f.logs.asked.Load(); n != 0 {
		t.Errorf("logs were asked %d times", n)
	}
	// Nor does a director talk to one that another authority vouches for.
	other := open(t)
	c := peers.NewClient(key, addresses{"i1": other.server.Listener.Addr().String()}, f.trusting, time.Now)
	_, err = c.LogLines(ctx, "i1", "p1", q)
	wantKind(t, err, director.KindUnavailable, "does not answer")
}

package syslog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/syslog/syslogtest"
)

// rig is a trail in a database, and a clock that the test moves.
type rig struct {
	*store.Store
	clock atomic.Int64 // nanoseconds
	added atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{Store: s}
	r.clock.Store(at.UnixNano())
	return r
}

func (r *rig) now() time.Time { return time.Unix(0, r.clock.Load()) }

func (r *rig) pass(d time.Duration) { r.clock.Add(int64(d)) }

// add adds entries, whose numbers in the chain continue.
func (r *rig) add(t *testing.T, n int) {
	t.Helper()
	var entries []chain.Entry
	for range n {
		entries = append(entries, chain.Entry{
			At: r.now(), Actor: "ann", Action: "apply", Object: fmt.Sprintf("Network/n%d", r.added.Add(1)),
			Outcome: chain.OK,
		})
	}
	if err := r.AddAudit(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) unsent(t *testing.T) int {
	t.Helper()
	n, err := r.AuditUnsent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// sender is one director's sender with what it said last.
type sender struct {
	*Sender
	t *testing.T

	tries, sent int
	err         error // of the last try
}

func (r *rig) sender(t *testing.T, owner, address string, conf *tls.Config) *sender {
	t.Helper()
	s := &sender{t: t}
	s.Sender = New(Config{
		Trail: r, Owner: owner, Address: address, TLS: conf, Now: r.now, Log: slog.New(slog.DiscardHandler),
		Origin: Origin{Host: "director1", Version: "v1", Facility: LogAudit, Process: 7},
		Observe: func(n int, err error) {
			s.tries++
			s.sent += n
			s.err = err
		},
	})
	t.Cleanup(s.Close)
	return s
}

func (s *sender) tick() {
	s.t.Helper()
	if err := s.Tick(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// fails ticks until a try fails, and returns its error. The clock does not move, so no entry counts as arrived.
func (s *sender) fails() error {
	s.t.Helper()
	eventually(s.t, func() bool { s.tick(); return s.err != nil }, func() string {
		return fmt.Sprintf("all %d tries worked", s.tries)
	})
	return s.err
}

// eventually waits for the condition.
func eventually(t *testing.T, met func() bool, problem func() string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); !met(); <-look.C {
		if time.Now().After(end) {
			t.Fatal(problem())
		}
	}
}

// received waits until the server has written n lines, and returns the numbers of their entries.
func received(t *testing.T, server *syslogtest.Server, n int) []int64 {
	t.Helper()
	var lines []string
	eventually(t, func() bool { lines = server.Lines(t); return len(lines) >= n }, func() string {
		return fmt.Sprintf("the server has %d lines, not %d: %q", len(lines), n, lines)
	})
	return numbers(t, lines)
}

func numbers(t *testing.T, lines []string) (out []int64) {
	t.Helper()
	for _, line := range lines {
		out = append(out, entryOf(t, line).Seq)
	}
	return out
}

func entryOf(t *testing.T, line string) (e chain.Entry) {
	t.Helper()
	_, text, _ := strings.Cut(line, "\xEF\xBB\xBF")
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatalf("%v: %q", err, line)
	}
	return e
}

func upTo(from, to int64) (out []int64) {
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

// same compares the numbers of received entries.
func same(t *testing.T, got []int64, want ...[]int64) {
	t.Helper()
	if diff := cmp.Diff(slices.Concat(want...), got); diff != "" {
		t.Errorf("received (-want +got)\n%s", diff)
	}
}

// Everything is received in order, as it is in the database. It counts as arrived after a while.
func TestEntriesArrive(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	strange := chain.Entry{
		At: r.now(), Actor: "ann@Größe", Action: "set credentials", Object: "Credentials/x", Outcome: chain.Refused,
		Problem: "forbidden", Source: "2001:db8::1", Request: "r-1", Count: 3,
		Diff: "-a: \"é\"\n+a:\t<b>\r\x01 100%n %s \u2028\\" + strings.Repeat("]x", 400),
	}
	long := chain.Entry{At: r.now(), Actor: "ann", Action: "apply", Diff: strings.Repeat("x", 7750)}
	if n := len((Origin{Host: "director1", Version: "v1"}).Message(long)); n < 7900 {
		t.Fatalf("the long message has %d bytes", n)
	}
	if err := r.AddAudit(t.Context(), strange, long); err != nil {
		t.Fatal(err)
	}
	r.add(t, 2*batch+50)
	s := r.sender(t, "a", server.Address, server.TLS())
	s.tick()
	const all = 2*batch + 52
	same(t, received(t, server, all), upTo(1, all))
	want, err := r.AuditAfter(t.Context(), 0, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range server.Lines(t) {
		if diff := cmp.Diff(want[i], entryOf(t, line)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
		if !header.MatchString(line) {
			t.Fatalf("not as RFC 5424 has it: %q", line)
		}
	}
	head := `<108>1 2026-11-24T02:04:05.000006Z director1 director 7 set-credentials [meta sequenceId="1"]` +
		`[origin software="director" swVersion="v1"] `
	if line := server.Lines(t)[0]; !strings.HasPrefix(line, head) {
		t.Errorf("got  %s\nwant %s", line, head)
	}
	if n := r.unsent(t); n != all {
		t.Errorf("%d entries have not arrived, before this is certain; want %d", n, all)
	}
	r.pass(certain)
	if s.tick(); r.unsent(t) != 0 || s.sent != all || s.err != nil {
		t.Errorf("%d entries have not arrived, %d were sent, %v", r.unsent(t), s.sent, s.err)
	}
}

// The manual shows the configuration of the server that these tests use.
func TestManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/operate/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	conf := syslogtest.Config("/etc/director-logs", syslogtest.Named, `port="6514"`, "/var/log/director-audit.log")
	if !strings.Contains(string(manual), conf) {
		t.Errorf("docs/operate/audit.md does not have:\n%s", conf)
	}
}

// What may be lost with a server that ends is sent again, once it is there again, and what comes meanwhile behind it.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	s := r.sender(t, "a", server.Address, server.TLS())
	r.add(t, 10)
	s.tick()
	received(t, server, 10)
	r.pass(certain)
	r.add(t, 10)
	s.tick()
	received(t, server, 20)
	server.Stop()
	if err := s.fails(); err == nil {
		t.Fatal("no failure")
	}
	r.add(t, 10)
	for range 5 {
		r.pass(longestPause)
		if s.tick(); s.err == nil {
			t.Fatal("a try worked without a server")
		}
	}
	if n := r.unsent(t); n != 20 {
		t.Errorf("%d entries have not arrived, want 20", n)
	}
	server.Restart(t)
	tries := s.tries
	if s.tick(); s.tries != tries {
		t.Error("the sender tries again without a pause")
	}
	r.pass(longestPause)
	s.tick()
	same(t, received(t, server, 40), upTo(1, 20), upTo(11, 30))
	r.pass(certain)
	if s.tick(); r.unsent(t) != 0 {
		t.Errorf("%d entries have not arrived", r.unsent(t))
	}
}

// A server that restarts again and again while entries come loses none, and gets them in order.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	s := r.sender(t, "a", server.Address, server.TLS())
	s.Now, s.Certain = time.Now, 5*time.Second // longer than the server needs to stop
	const all, restarts = 1500, 3
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if err := s.Tick(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for n := range restarts {
		for range all / restarts / 50 {
			r.add(t, 50)
		}
		received(t, server, (n+1)*all/restarts-200) // somewhere in the middle
		server.Stop()
		server.Restart(t)
	}
	eventually(t, func() bool { return r.unsent(t) == 0 }, func() string {
		return fmt.Sprintf("%d entries have not arrived", r.unsent(t))
	})
	stop()
	running.Wait()
	last := int64(0)
	for _, n := range numbers(t, server.Lines(t)) {
		if n > last+1 {
			t.Fatalf("entry %d follows entry %d", n, last)
		}
		last = max(last, n)
	}
	if last != all {
		t.Errorf("the last entry is %d, want %d", last, all)
	}
}

// A director that starts again sends again what may not have arrived, and nothing else.
func TestSenderRestarts(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	s := r.sender(t, "a", server.Address, server.TLS())
	r.add(t, 10)
	s.tick()
	r.pass(certain)
	r.add(t, 5)
	s.tick()
	received(t, server, 15)
	s.Close()
	s = r.sender(t, "a", server.Address, server.TLS())
	s.tick()
	same(t, received(t, server, 20), upTo(1, 15), upTo(11, 15))
	r.pass(certain)
	s.tick()
	s.Close()
	s = r.sender(t, "a", server.Address, server.TLS())
	r.add(t, 1)
	s.tick()
	same(t, received(t, server, 21)[20:], upTo(16, 16))
}

// A server that wants a certificate gets it. Without it, or with another one, nothing arrives.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Named), newRig(t)
	with := func(ca *syslogtest.CA, name string) *tls.Config {
		cert, err := tls.X509KeyPair(ca.Issue(t, name, x509.ExtKeyUsageClientAuth))
		if err != nil {
			t.Fatal(err)
		}
		conf := server.TLS()
		conf.Certificates = []tls.Certificate{cert}
		return conf
	}
	r.add(t, 3)
	for name, conf := range map[string]*tls.Config{
		"none": server.TLS(), "another name": with(server.CA, "other.example.org"),
		"another CA": with(syslogtest.NewCA(t), syslogtest.Peer),
	} {
		s := r.sender(t, "a", server.Address, conf)
		err := s.fails()
		s.Close()
		if n := r.unsent(t); n != 3 || len(server.Lines(t)) > 0 {
			t.Errorf("%s: %v, %d entries have not arrived, lines: %q", name, err, n, server.Lines(t))
		}
	}
	s := r.sender(t, "a", server.Address, with(server.CA, syslogtest.Peer))
	s.tick()
	same(t, received(t, server, 3), upTo(1, 3))
	r.pass(certain)
	if s.tick(); r.unsent(t) != 0 {
		t.Errorf("%d entries have not arrived", r.unsent(t))
	}
}

// Nothing is sent to a server that is not the one of the configuration.
func TestWrongServer(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	r.add(t, 1)
	foreign, renamed := server.TLS(), server.TLS()
	foreign.RootCAs = x509.NewCertPool()
	foreign.RootCAs.AppendCertsFromPEM(syslogtest.NewCA(t).PEM)
	renamed.ServerName = "logs.example.org"
	err := r.sender(t, "a", server.Address, foreign).fails()
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("another CA: %v", err)
	}
	err = r.sender(t, "a", server.Address, renamed).fails()
	if _, ok := errors.AsType[x509.HostnameError](err); !ok {
		t.Errorf("another name: %v", err)
	}
	if n := r.unsent(t); n != 1 || len(server.Lines(t)) > 0 {
		t.Errorf("%d entries have not arrived, lines: %q", n, server.Lines(t))
	}
}

// Of two directors one sends. The other one continues when the first says nothing any more.
func TestTwoSenders(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	a, b := r.sender(t, "a", server.Address, server.TLS()), r.sender(t, "b", server.Address, server.TLS())
	for range 3 {
		r.add(t, 2)
		a.tick()
		b.tick()
		r.pass(certain)
	}
	a.tick()
	r.add(t, 2)
	a.tick()
	received(t, server, 8)
	r.pass(leaseLife)
	if b.tick(); b.tries > 0 {
		t.Error("the second sends within the time of the first")
	}
	r.pass(time.Microsecond)
	r.add(t, 2)
	b.tick()
	a.tick()
	same(t, received(t, server, 12), upTo(1, 8), upTo(7, 10))
	if a.sent != 8 || b.sent != 4 || a.conn != nil {
		t.Errorf("the first sent %d, the second %d", a.sent, b.sent)
	}
	r.pass(certain)
	if b.tick(); r.unsent(t) != 0 {
		t.Errorf("%d entries have not arrived", r.unsent(t))
	}
}

// A sender whose lease may end during the next write writes nothing.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	r.add(t, 10)
	s := r.sender(t, "a", server.Address, server.TLS())
	s.Now = func() time.Time { r.pass(leaseLife / 6); return r.now() }
	if err := s.fails(); !strings.Contains(err.Error(), "too slow") || s.sent == 0 || s.sent >= 10 {
		t.Errorf("%v, %d entries were sent", err, s.sent)
	}
}

// Entries that were archived before the server had them are announced.
func TestGap(t *testing.T) {
	t.Parallel()
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	s := r.sender(t, "a", server.Address, server.TLS())
	r.add(t, 5)
	s.tick()
	received(t, server, 5)
	r.pass(certain)
	s.tick()
	s.Close()
	r.add(t, 5)
	if err := r.ArchiveAudit(t.Context(), "x", at, 8, 8, store.ArchiveFile{At: at}); err != nil {
		t.Fatal(err)
	}
	s.tick()
	received(t, server, 8)
	lines := server.Lines(t)
	if !regexp.MustCompile(`^<108>1 .* gap \[.*"after_seq":5,"before_seq":9`).MatchString(lines[5]) {
		t.Errorf("no gap is announced: %q", lines[5])
	}
	same(t, numbers(t, append(lines[:5:5], lines[6:]...)), upTo(1, 5), upTo(9, 10))
}

package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// How the sender works.
const (
	batch     = 200              // entries of one look
	deadline  = 10 * time.Second // of a connection, a handshake and a write
	leaseLife = time.Minute      // another director sends when this one has said nothing for so long
	// The protocol has no answer. A machine that takes nothing breaks the connection after unacknowledged, so what was
	// written certain ago, on a connection that still is, has arrived at the other machine.
	unacknowledged = 10 * time.Second
	certain        = 15 * time.Second
	longestPause   = time.Minute // between two tries
)

// Trail is the audit trail with the place up to which it has arrived. All methods are safe for concurrent use.
type Trail interface {
	// TakeSending makes the owner the only one that sends until the time, and returns the place. ok is false while
	// another one sends.
	TakeSending(ctx context.Context, owner string, now, until time.Time) (p chain.Place, ok bool, err error)
	// Arrived moves the place of the owner.
	Arrived(ctx context.Context, owner string, p chain.Place) error
	// AuditAfter returns entries behind the id, in order.
	AuditAfter(ctx context.Context, id int64, limit int) ([]chain.Entry, error)
}

// Config is what New needs. All fields must be set but Observe and Certain.
type Config struct {
	Trail   Trail
	Owner   string // this director
	Address string // host:port
	TLS     *tls.Config
	Origin  Origin
	Now     func() time.Time
	Log     *slog.Logger
	// Observe is told of each try; nil for nothing.
	Observe func(sent int, err error)
	// Certain is after what time an entry has arrived; 0 for the usual.
	Certain time.Duration
}

// Sender sends the trail. It is for one goroutine.
type Sender struct {
	Config
	conn    *tls.Conn
	broken  chan struct{} // closed when the server has ended the connection
	sent    chain.Place
	until   time.Time // end of the lease
	flying  []flight
	pause   time.Duration
	notYet  time.Time // the next try
	failing bool
}

// flight is an entry that was written.
type flight struct {
	chain.Place
	at time.Time
}

// New returns a sender.
func New(c Config) *Sender {
	if c.Observe == nil {
		c.Observe = func(int, error) {}
	}
	if c.Certain == 0 {
		c.Certain = certain
	}
	return &Sender{Config: c}
}

// Tick sends what is new, and notes what has arrived. Of the directors of a database, one sends. A failure is tried
// again later, by itself; what may not have arrived is sent again. Entries arrive at least once, in order.
func (s *Sender) Tick(ctx context.Context) error {
	now := s.Now()
	if now.Before(s.notYet) {
		return nil
	}
	place, mine, err := s.take(ctx)
	if err != nil || !mine {
		s.close()
		return err
	}
	sent, err := s.send(ctx, place)
	s.Observe(sent, err)
	if err != nil {
		s.close()
		s.pause = min(max(2*s.pause, time.Second), longestPause)
		s.notYet = now.Add(s.pause)
		if !s.failing {
			s.Log.WarnContext(ctx, "the log server does not take the audit trail", "server", s.Address, "err", err)
		}
		s.failing = true
	}
	return nil
}

// take begins or renews the lease.
func (s *Sender) take(ctx context.Context) (p chain.Place, mine bool, err error) {
	now := s.Now()
	s.until = now.Add(leaseLife)
	return s.Trail.TakeSending(ctx, s.Owner, now, s.until)
}

// Close ends the connection.
func (s *Sender) Close() { s.close() }

func (s *Sender) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.flying = nil, nil
}

// send sends everything behind the place that has arrived, and returns how many entries it wrote.
func (s *Sender) send(ctx context.Context, place chain.Place) (n int, err error) {
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return 0, err
		}
		s.sent = place
	}
	for {
		select {
		case <-s.broken:
			return n, errors.New("the log server has ended the connection")
		default:
		}
		if err := s.land(ctx); err != nil {
			return n, err
		}
		entries, err := s.Trail.AuditAfter(ctx, s.sent.ID, batch)
		if err != nil || len(entries) == 0 {
			return n, err
		}
		for _, e := range entries {
			if s.Now().Add(deadline).After(s.until) { // another director may begin during the next write
				return n, errors.New("the log server is too slow")
			}
			if err := s.write(e); err != nil {
				return n, err
			}
			n++
		}
		if _, mine, err := s.take(ctx); err != nil || !mine {
			return n, errors.Join(err, errors.New("another director sends"))
		}
	}
}

func (s *Sender) write(e chain.Entry) error {
	var out []byte
	if s.sent.Seq > 0 && e.Seq > s.sent.Seq+1 {
		out = frame(s.Origin.Gap(s.sent.Seq, e.Seq, s.Now()))
		s.Log.Warn(
			"entries of the audit trail were archived before they were sent",
			"after_seq", s.sent.Seq, "before_seq", e.Seq,
		)
	}
	out = append(out, frame(s.Origin.Message(e))...)
	_ = s.conn.SetWriteDeadline(time.Now().Add(deadline)) // a closed connection says so at the write
	if _, err := s.conn.Write(out); err != nil {
		return err
	}
	s.sent = chain.Place{ID: e.ID, Seq: max(e.Seq, s.sent.Seq)}
	s.flying = append(s.flying, flight{s.sent, s.Now()})
	return nil
}

// land notes what has arrived by now.
func (s *Sender) land(ctx context.Context) error {
	due := s.Now().Add(-s.Certain)
	n := 0
	for n < len(s.flying) && !s.flying[n].at.After(due) {
		n++
	}
	if n == 0 {
		return nil
	}
	if err := s.Trail.Arrived(ctx, s.Owner, s.flying[n-1].Place); err != nil {
		return err
	}
	s.flying = append([]flight(nil), s.flying[n:]...)
	// Only now: with TLS 1.3, a server refuses the director's certificate after the first entries were written.
	if s.failing {
		s.Log.InfoContext(ctx, "the log server takes the audit trail again", "server", s.Address)
	}
	s.failing, s.pause = false, 0
	return nil
}

func (s *Sender) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	dialer := &tls.Dialer{Config: s.TLS, NetDialer: &net.Dialer{KeepAlive: unacknowledged}}
	raw, err := dialer.DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return director.Errorf(director.KindUnavailable, "syslog.connect", "%w", err).
			WithHint("check auditSyslog in the configuration, and the log server")
	}
	conn := raw.(*tls.Conn) // a tls.Dialer gives no other
	if err := breakWhenSilent(conn.NetConn()); err != nil {
		_ = conn.Close()
		return err
	}
	s.conn, s.broken = conn, make(chan struct{})
	go func(ended chan struct{}) {
		_, _ = io.Copy(io.Discard, conn) // a log server says nothing
		close(ended)
	}(s.broken)
	return nil
}

// breakWhenSilent ends a connection whose other side acknowledges nothing (tcp(7), TCP_USER_TIMEOUT).
func breakWhenSilent(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("syslog: %T is no TCP connection", c)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(
			int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()),
		)
	})
	return errors.Join(err, failed)
}

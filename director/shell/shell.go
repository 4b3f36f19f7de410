// Package shell gives administrators a terminal on a node, through the director. It is off unless the configuration
// says how many may be open. Who opened one, where, why and for how long is in the audit trail.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/store"
)

// Terminal is a shell on a machine.
type Terminal interface {
	io.ReadWriteCloser
	Resize(cols, rows int) error
}

// Size is that of a screen, in characters.
type Size struct{ Cols, Rows int }

// Input is what a person did: typed keys, or gave the screen another size.
type Input struct {
	Keys []byte
	Size *Size
}

// Screen is where a person sits. Next and Show may be called at once, each by one goroutine.
type Screen interface {
	// Next waits for what the person does next. An error ends the shell: the person has gone.
	Next(ctx context.Context) (Input, error)
	// Show shows what the shell has written.
	Show(ctx context.Context, text []byte) error
}

// Request is what is asked for.
type Request struct {
	Actor, Cluster, Node string
	Reason               string // why, for the audit trail
	Size                 Size
}

// Dial starts a shell on the machine, as steps.SSHAccess.Terminal does.
type Dial func(ctx context.Context, m director.Machine, r Request) (Terminal, error)

// Config is what New needs.
type Config struct {
	Store *store.Store
	Dial  Dial
	Most  int           // shells that may be open at once; 0 for none
	Idle  time.Duration // how long a shell stays open without a key; 0 is IdleTime
	Long  time.Duration // how long a shell stays open at all; 0 is LongestTime
	Now   func() time.Time
	Log   *slog.Logger
}

// How long shells stay open.
const (
	IdleTime    = 15 * time.Minute
	LongestTime = 8 * time.Hour
)

// mostReason bounds the reason, in bytes.
const mostReason = 200

// Service opens shells. It is safe for concurrent use.
type Service struct {
	Config
	open atomic.Int32
}

// New returns the service.
func New(c Config) *Service {
	if c.Idle == 0 {
		c.Idle = IdleTime
	}
	if c.Long == 0 {
		c.Long = LongestTime
	}
	return &Service{Config: c}
}

// On reports whether shells can be opened at all.
func (s *Service) On() bool { return s.Most > 0 }

// Session is a shell that was opened. End it in any case.
type Session struct {
	s       *Service
	r       Request
	t       Terminal
	began   time.Time
	shown   atomic.Int64 // bytes
	touched atomic.Int64 // when a key was pressed last, in Unix nanoseconds
}

// Open starts a shell on the node. It is written into the audit trail first. Errors: conflict while shells are off,
// invalid for a request that says no reason or no size, exhausted if as many as may be are open, not_found if there is
// no such node, and those of Dial.
func (s *Service) Open(ctx context.Context, r Request) (*Session, error) {
	const op = "shell.open"
	if !s.On() {
		return nil, director.Errorf(director.KindConflict, op, "shells on nodes are off on this director").
			WithHint("set nodeShells in the director's configuration to how many may be open, and restart it")
	}
	r.Reason = strings.TrimSpace(r.Reason)
	if err := check(op, r); err != nil {
		return nil, err
	}
	m, err := s.machine(ctx, op, r)
	if err != nil {
		return nil, err
	}
	if int(s.open.Add(1)) > s.Most {
		s.open.Add(-1)
		return nil, director.Errorf(director.KindExhausted, op, "all %d shells of this director are open", s.Most).
			WithHint("end another one, or raise nodeShells in the director's configuration")
	}
	t, err := s.dial(ctx, r, m)
	if err != nil {
		s.open.Add(-1)
		return nil, err
	}
	o := &Session{s: s, r: r, t: t, began: s.Now()}
	o.touched.Store(o.began.UnixNano())
	return o, nil
}

func (s *Service) dial(ctx context.Context, r Request, m director.Machine) (Terminal, error) {
	if err := s.note(ctx, r, "open shell on "+r.Node+": "+r.Reason); err != nil {
		return nil, err
	}
	t, err := s.Dial(ctx, m, r)
	if err != nil {
		return nil, errors.Join(err, s.note(context.WithoutCancel(ctx), r, "no shell on "+r.Node))
	}
	return t, nil
}

func check(op string, r Request) error {
	var wrong []director.Field
	switch {
	case r.Reason == "":
		wrong = append(wrong, director.Field{Path: "reason", Msg: "is missing", Hint: "say why, for the audit trail"})
	case len(r.Reason) > mostReason:
		wrong = append(wrong, director.Field{Path: "reason", Msg: fmt.Sprintf("has more than %d bytes", mostReason)})
	case strings.ContainsFunc(r.Reason, func(c rune) bool { return !unicode.IsPrint(c) }):
		wrong = append(wrong, director.Field{Path: "reason", Msg: "has characters that cannot be printed"})
	}
	if !r.Size.valid() {
		wrong = append(wrong, director.Field{Path: "cols", Msg: "and rows must be between 1 and 1000"})
	}
	return director.Invalid(op, "the shell cannot be opened", wrong)
}

func (z Size) valid() bool { return z.Cols > 0 && z.Cols <= 1000 && z.Rows > 0 && z.Rows <= 1000 }

// machine returns the VM of the node.
func (s *Service) machine(ctx context.Context, op string, r Request) (director.Machine, error) {
	rows, err := s.Store.Machines(ctx, store.MachineFilter{Cluster: r.Cluster})
	if err != nil {
		return director.Machine{}, err
	}
	for _, m := range rows {
		if m.Name == r.Node && m.Deleted.IsZero() {
			return m, nil
		}
	}
	return director.Machine{}, director.Errorf(
		director.KindNotFound, op, "cluster %s has no node %s", r.Cluster, r.Node,
	).
		WithHint("directorctl nodes list %s", r.Cluster)
}

func (s *Service) note(ctx context.Context, r Request, what string) error {
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.Now(), r.Actor, what, "Cluster/"+r.Cluster)
	})
}

// Why a shell ended.
var (
	errEnded = errors.New("the shell has ended")
	errIdle  = errors.New("no key was pressed for too long")
	errLong  = errors.New("the shell was open for as long as one may be")
)

// Serve connects the screen with the shell until one of both ends, no one types, or the time is up, and returns why in
// words for the person.
func (o *Session) Serve(ctx context.Context, screen Screen) string {
	open, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	after := context.AfterFunc(open, func() { _ = o.t.Close() })
	defer after()
	go o.watch(open, stop)
	go func() { stop(o.relay(ctx, screen)) }() // until the screen is closed: the person is told the end there
	stop(o.show(ctx, screen))
	cause := context.Cause(open)
	for _, known := range []error{errEnded, errIdle, errLong} {
		if errors.Is(cause, known) {
			return known.Error()
		}
	}
	return "the connection was cut"
}

// watch ends the shell when its time is up.
func (o *Session) watch(ctx context.Context, stop context.CancelCauseFunc) {
	long := time.NewTimer(o.s.Long)
	defer long.Stop()
	idle := time.NewTicker(min(o.s.Idle, 10*time.Second))
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-long.C:
			stop(errLong)
			return
		case <-idle.C:
			if time.Since(time.Unix(0, o.touched.Load())) >= o.s.Idle {
				stop(errIdle)
				return
			}
		}
	}
}

// relay brings what the person does to the shell.
func (o *Session) relay(ctx context.Context, screen Screen) error {
	for {
		in, err := screen.Next(ctx)
		if err != nil {
			return err
		}
		o.touched.Store(time.Now().UnixNano())
		if in.Size != nil && in.Size.valid() {
			err = o.t.Resize(in.Size.Cols, in.Size.Rows)
		}
		if err == nil && len(in.Keys) > 0 {
			_, err = o.t.Write(in.Keys)
		}
		if err != nil {
			return errEnded
		}
	}
}

// show brings what the shell writes to the person. A person who takes nothing makes the shell wait.
func (o *Session) show(ctx context.Context, screen Screen) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := o.t.Read(buf)
		if n > 0 {
			o.shown.Add(int64(n))
			if err := screen.Show(ctx, buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return errEnded
		}
	}
}

// End ends the shell and what runs in it, and writes into the audit trail how long it was open.
func (o *Session) End(ctx context.Context, why string) {
	_ = o.t.Close()
	o.s.open.Add(-1)
	what := fmt.Sprintf(
		"end shell on %s after %s, %d bytes shown: %s", o.r.Node, o.s.Now().Sub(o.began).Round(time.Second),
		o.shown.Load(), why,
	)
	if err := o.s.note(context.WithoutCancel(ctx), o.r, what); err != nil {
		o.s.Log.ErrorContext(ctx, "the end of a shell is not in the audit trail", "node", o.r.Node, "err", err)
	}
}

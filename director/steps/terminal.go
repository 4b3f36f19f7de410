package steps

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// Terminal is the director's account's shell on a machine, as a terminal. One reader and one writer may use it at once.
type Terminal struct {
	client  *ssh.Client
	session *ssh.Session
	in      io.WriteCloser
	out     io.Reader
	closing sync.Once
}

// terminalType is what programs on the machine are told. xterm.js and today's terminals understand it.
const terminalType = "xterm-256color"

// loginTime is how long a log-in may take.
const loginTime = 20 * time.Second

// Terminal logs in to the machine for the person and starts a shell. The machine's host key must be the one that the
// director knows: conflict otherwise. Errors: unavailable if the machine cannot be reached.
func (a SSHAccess) Terminal(
	ctx context.Context, m director.Machine, person string, cols, rows int,
) (*Terminal, error) {
	key, _, err := a.nodeKey(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	login := func(ctx context.Context, m director.Machine) ([]ssh.Signer, error) {
		return a.Person(ctx, m, person)
	}
	return sshNodes{login: login}.terminal(ctx, m, key, cols, rows)
}

func (s sshNodes) terminal(
	ctx context.Context, m director.Machine, hostKey string, cols, rows int,
) (*Terminal, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return nil, err
	}
	client, err := node.connect(ctx)
	if errors.Is(err, errHostKey) {
		return nil, hostKeyError(m, err)
	}
	if err != nil {
		return nil, director.Errorf(
			director.KindUnavailable, "steps.terminal", "%s cannot be reached at %s: %w", m.Name, m.Address, err,
		).
			WithHint("check that its VM runs: directorctl nodes list %s", m.Cluster)
	}
	t := &Terminal{client: client}
	if err := t.begin(cols, rows); err != nil {
		_ = client.Close()
		return nil, director.Errorf(
			director.KindUnavailable, "steps.terminal", "%s gives no terminal: %w", m.Name, err,
		).
			WithHint("look at the log of its SSH server: journalctl -u ssh")
	}
	return t, nil
}

func (t *Terminal) begin(cols, rows int) (err error) {
	if t.session, err = t.client.NewSession(); err != nil {
		return err
	}
	if err = t.session.RequestPty(terminalType, rows, cols, ssh.TerminalModes{}); err != nil {
		return err
	}
	if t.in, err = t.session.StdinPipe(); err != nil {
		return err
	}
	if t.out, err = t.session.StdoutPipe(); err != nil {
		return err
	}
	return t.session.Shell()
}

// Read returns what the shell shows. io.EOF when it has ended.
func (t *Terminal) Read(p []byte) (int, error) { return t.out.Read(p) }

// Write types.
func (t *Terminal) Write(p []byte) (int, error) { return t.in.Write(p) }

// Resize tells the shell the size of the screen.
func (t *Terminal) Resize(cols, rows int) error { return t.session.WindowChange(rows, cols) }

// Close ends the shell and what runs in it. It may be called more than once.
func (t *Terminal) Close() error {
	t.closing.Do(func() {
		_ = t.session.Close()
		_ = t.client.Close()
	})
	return nil
}

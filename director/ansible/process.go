package ansible

import (
	"context"
	"errors"
	"io"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/apenella/go-ansible/v2/pkg/execute/exec"
	"github.com/apenella/go-ansible/v2/pkg/execute/result"
	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director/cores"
)

// process is the ansible-playbook process as go-ansible sees it. go-ansible v2.4.0 overwrites the environment, the
// directory and the standard input of a plain *exec.Cmd with our own, so it is given this type, which it leaves alone.
// It also cancels its context before it looks at the outcome and then reports success, so that the outcome is kept
// here.
type process struct {
	*osexec.Cmd
	ctx     context.Context //nolint:containedctx // go-ansible hands it over once, before Start
	grace   time.Duration
	started func(pid int) error   // called once it runs; an error ends it
	rest    func(leader identity) // ends what the process left behind, before it is reaped
	pipes   []*os.File
	leash   *leash
	leader  identity
	done    chan struct{} // closed when the process and what it left behind have ended
	wait    sync.Once
	waitErr error
}

var _ exec.Cmder = (*process)(nil)

// executable hands one prepared process to go-ansible.
type executable struct {
	make func(ctx context.Context, name string, args ...string) *process
}

// Command returns the process without a context.
func (e executable) Command(name string, args ...string) exec.Cmder {
	return e.make(context.Background(), name, args...)
}

// CommandContext returns the process, whose group is ended when ctx is.
func (e executable) CommandContext(ctx context.Context, name string, args ...string) exec.Cmder {
	return e.make(ctx, name, args...)
}

// nicer than the director are plays. Many of them take every core; the director, which records what they do and answers
// people, goes first.
const nicer = 5

// Start starts the process in a group of its own, nicer than the director.
func (p *process) Start() error {
	p.done = make(chan struct{})
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := p.leash.tie(p.Cmd)
	if err == nil {
		err = p.Cmd.Start()
	}
	p.leash.handedOver()
	if err != nil {
		p.leash.close()
		close(p.done)
		return err
	}
	own, err := cores.Niceness()
	if err == nil {
		// a play that is not nice is still a play
		_ = syscall.Setpriority(syscall.PRIO_PGRP, p.Process.Pid, min(own+nicer, 19))
	}
	if p.leader, err = identify(p.Process.Pid); err == nil {
		err = p.started(p.Process.Pid)
	}
	if err != nil {
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		_ = p.Cmd.Wait()
		p.leash.close()
		close(p.done)
		return err
	}
	go p.leash.hold(p.done)
	go p.watch()
	return nil
}

// watch ends the group when the context is done, and what is left of it when its leader is.
func (p *process) watch() {
	defer close(p.done)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Without reaping it: as long as it is a zombie, no other process can get its id, nor that of its group.
		for {
			err := unix.Waitid(unix.P_PID, p.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-p.ctx.Done():
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGTERM)
		timer := time.NewTimer(p.grace)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	p.rest(p.leader)
	// A process that still holds the other end of a pipe cannot be reached; do not wait for it.
	for _, pipe := range p.pipes {
		_ = pipe.SetReadDeadline(time.Now().Add(time.Second))
	}
}

// StdoutPipe remembers the pipe, see watch.
func (p *process) StdoutPipe() (io.ReadCloser, error) { return p.remember(p.Cmd.StdoutPipe()) }

// StderrPipe remembers the pipe, see watch.
func (p *process) StderrPipe() (io.ReadCloser, error) { return p.remember(p.Cmd.StderrPipe()) }

func (p *process) remember(r io.ReadCloser, err error) (io.ReadCloser, error) {
	if f, ok := r.(*os.File); ok && err == nil {
		p.pipes = append(p.pipes, f)
	}
	return r, err
}

// Wait reaps the process after all of its group has ended. It returns nil: go-ansible asserts that an error is an
// ExitError, and puts the environment into the one that it makes of it.
func (p *process) Wait() error {
	p.wait.Do(func() {
		<-p.done
		p.waitErr = p.Cmd.Wait()
	})
	return nil
}

// printer copies one of the process' streams into the writer it is for. go-ansible's own one gives up at a long line.
type printer struct{}

var _ result.ResultsOutputer = printer{}

// Print returns nil always: what cannot be read is not a reason to leave the process alone.
func (printer) Print(_ context.Context, r io.Reader, w io.Writer, _ ...result.OptionsFunc) error {
	_, _ = io.Copy(w, r)
	return nil
}

// lines calls emit with each line written to it, cut to limit bytes.
type lines struct {
	limit int
	emit  func(line string, cut bool)
	buf   []byte
	cut   bool
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		switch {
		case c == '\n':
			l.flush()
		case len(l.buf) < l.limit:
			l.buf = append(l.buf, c)
		default:
			l.cut = true
		}
	}
	return len(p), nil
}

// flush emits the line that has no end.
func (l *lines) flush() {
	if len(l.buf) > 0 {
		l.emit(string(l.buf), l.cut)
	}
	l.buf, l.cut = l.buf[:0], false
}

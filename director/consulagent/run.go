package consulagent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
)

const (
	lookEvery = time.Second
	restart   = 5 * time.Second // after an agent has ended by itself
	patience  = 20 * time.Second
)

// runner runs the agent of a directory.
type runner struct {
	dir  *Dir
	data string
	log  *slog.Logger

	agent     *exec.Cmd
	ended     chan end
	read      state // what the agent has read
	notBefore time.Time
	problem   string
}

// end is how the agent has ended.
type end struct{ err error }

// state is what an agent reads at its start, and what it reads again when it is told to.
type state struct {
	start    [sha256.Size]byte
	services [sha256.Size]byte
}

// Run runs the agent as the director tells in the directory, with its own data in another one, and follows changes. It
// returns nil when ctx ends, which stops the agent, or when the director wants none: then the agent has left the
// datacenter. What it can mend by waiting it logs.
func Run(ctx context.Context, dir *Dir, data string, log *slog.Logger) error {
	r := &runner{dir: dir, data: data, log: log}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		wanted, err := r.look()
		if err == nil && !wanted {
			r.stop(os.Interrupt) // it leaves
			return nil
		}
		r.tell(ctx, err)
		select {
		case <-ctx.Done():
			r.stop(syscall.SIGTERM)
			return nil
		case how := <-r.ended:
			r.agent, r.ended, r.notBefore = nil, nil, time.Now().Add(restart)
			log.WarnContext(ctx, "the agent has ended", "err", how.err)
		case <-tick.C:
		}
	}
}

// tell logs what is wrong, once.
func (r *runner) tell(ctx context.Context, err error) {
	if err == nil {
		r.problem = ""
		return
	}
	if text := err.Error(); text != r.problem {
		r.problem = text
		r.log.WarnContext(ctx, "the agent does not run as the director says", "err", err, "hint", director.HintOf(err))
	}
}

// look brings the agent to what the directory says, and tells whether an agent is wanted.
func (r *runner) look() (wanted bool, err error) {
	text, err := os.ReadFile(r.dir.file(runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var what run
	if err == nil {
		err = json.Unmarshal(text, &what)
	}
	if err != nil {
		return true, err
	}
	now, err := r.state(text)
	if err != nil {
		return true, err
	}
	if r.agent != nil && now.start != r.read.start {
		r.stop(syscall.SIGTERM)
		r.notBefore = time.Time{}
	}
	switch {
	case r.agent == nil && time.Now().Before(r.notBefore):
	case r.agent == nil:
		return true, r.begin(what.SHA256, now)
	case now.services != r.read.services:
		r.read = now
		return true, r.agent.Process.Signal(syscall.SIGHUP)
	}
	return true, nil
}

// state reads what the agent reads.
func (r *runner) state(what []byte) (state, error) {
	all := what
	for _, name := range []string{agentFile, secretsFile, caFile} {
		text, err := os.ReadFile(r.dir.file(name))
		if err != nil {
			return state{}, err
		}
		all = append(append(all, 0), text...)
	}
	services, err := os.ReadFile(r.dir.file(servicesFile))
	return state{sha256.Sum256(all), sha256.Sum256(services)}, err
}

// begin starts the agent, with a program that has the wanted SHA-256 alone.
func (r *runner) begin(sum string, now state) error {
	program, err := r.dir.Program(sum)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(
		context.Background(), program, "agent", "-data-dir="+r.data, "-config-file="+r.dir.file(agentFile),
		"-config-file="+r.dir.file(secretsFile), "-config-file="+r.dir.file(servicesFile),
	)
	cmd.Env = []string{"HOME=" + r.data, "PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		r.notBefore = time.Now().Add(restart)
		return err
	}
	ended := make(chan end, 1)
	go func() { ended <- end{cmd.Wait()} }()
	r.agent, r.ended, r.read = cmd, ended, now
	return nil
}

// stop ends the agent by the signal, or at last by force, and waits.
func (r *runner) stop(signal os.Signal) {
	if r.agent == nil {
		return
	}
	_ = r.agent.Process.Signal(signal)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-r.ended: // it was told to end, and how it did does not matter
	case <-limit.C:
		_ = r.agent.Process.Kill()
		<-r.ended
	}
	r.agent, r.ended = nil, nil
}

// Package rig runs the real director binary as one that simulates, for tests that kill it and for measurements.
package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/test/loopback"
)

const password = "correct horse battery"

// Rig is one state directory and the director on it.
type Rig struct {
	Bin    string // directory of the binaries
	Dir    string // everything that the rig makes
	Listen string // the API's address, the same over restarts
	// Disk gives the director a disk of so many bytes of its own for its state, which ends with the process. It needs
	// root.
	Disk int

	config string
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended, with err
	err    error
	log    *os.File
	token  director.Secret
}

// New writes the configuration; settings is YAML that is added to it.
func New(bin, dir, settings string) (*Rig, error) {
	r := &Rig{Bin: bin, Dir: dir}
	api, err := loopback.Free()
	if err != nil {
		return nil, err
	}
	registry, err := loopback.Free()
	if err != nil {
		return nil, err
	}
	r.Listen = api.String()
	return r, r.configure(registry.String(), settings)
}

// configure writes the configuration of a director that listens on r.Listen.
func (r *Rig) configure(registry, settings string) error {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	r.config = filepath.Join(r.Dir, "director.yaml")
	config := fmt.Sprintf("stateDir: %s\naddress: 127.0.0.1\nlisten: %s\nregistryListen: %s\nadminPasswordFile: "+
		"%s\nsimulate: true\nlogLevel: warn\n%s\n",
		r.State(), r.Listen, registry, r.PasswordFile(), settings)
	var err error
	if r.log, err = os.OpenFile(r.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(r.config, []byte(config), 0o600), os.WriteFile(r.PasswordFile(), []byte(password), 0o600),
	)
}

// PasswordFile returns where the password of admin is.
func (r *Rig) PasswordFile() string { return filepath.Join(r.Dir, "password") }

// State returns the director's state directory as the director sees it.
func (r *Rig) State() string { return filepath.Join(r.Dir, "state") }

// Seen returns a path below the state directory as everybody else sees it.
func (r *Rig) Seen(path string) string {
	if r.Disk == 0 || r.cmd == nil {
		return filepath.Join(r.State(), path)
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", r.PID()), r.State(), path)
}

// LogFile returns where the director's log is.
func (r *Rig) LogFile() string { return filepath.Join(r.Dir, "director.log") }

// PID returns the process id of the running director.
func (r *Rig) PID() int { return r.cmd.Process.Pid }

// Start starts the director and does not wait for it.
func (r *Rig) Start() error {
	args := []string{filepath.Join(r.Bin, "director"), "-config", r.config}
	if r.Disk > 0 {
		mount := fmt.Sprintf(`mount -t tmpfs -o size=%d,mode=700 tmpfs "$0" && exec "$@"`, r.Disk)
		args = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", mount, r.State()}, args...)
		if err := os.MkdirAll(r.State(), 0o700); err != nil {
			return err
		}
	}
	r.cmd = exec.Command(args[0], args[1:]...) //nolint:noctx // it is ended by Kill and Stop
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		return err
	}
	ended, cmd := make(chan struct{}), r.cmd
	r.ended = ended
	go func() {
		defer close(ended)
		r.err = cmd.Wait()
	}()
	return nil
}

// Ready waits until the API answers, or returns an error when the director has ended before.
func (r *Rig) Ready(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if ca, err := os.ReadFile(r.Seen("tls/ca.crt")); err == nil {
			last = r.ask(ctx, ca)
			if last == nil {
				return nil
			}
		}
		select {
		case <-r.ended:
			return fmt.Errorf("the director has ended: %w\n%s", r.err, r.Tail())
		case <-ctx.Done():
			return fmt.Errorf("the director does not answer: %w\n%s", errors.Join(ctx.Err(), last), r.Tail())
		case <-tick.C:
		}
	}
}

func (r *Rig) ask(ctx context.Context, ca []byte) error {
	c, err := client.New(client.Config{Server: "https://" + r.Listen, CA: ca})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Ready(ctx)
}

// Tail returns the end of the director's log.
func (r *Rig) Tail() string {
	text, err := os.ReadFile(r.LogFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// Kill ends the director as kill -9 does, and waits until it is gone. Its children live on.
func (r *Rig) Kill() error {
	err := r.cmd.Process.Kill()
	<-r.ended
	return err
}

// Stop asks the director to end and waits for it.
func (r *Rig) Stop() error {
	if r.cmd == nil {
		return nil
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.ended
	r.cmd = nil
	return r.err
}

// Client returns a client that is logged in. The login outlives restarts. Call it first while the director answers.
func (r *Rig) Client(ctx context.Context) (*client.Client, error) { return r.ClientAt(ctx, r.Listen) }

// ClientAt is Client with the same login on another address: that of a director on the same database, or of a balancer.
func (r *Rig) ClientAt(ctx context.Context, address string) (*client.Client, error) {
	ca, err := os.ReadFile(r.Seen("tls/ca.crt"))
	if err != nil {
		return nil, err
	}
	conf := client.Config{Server: "https://" + address, CA: ca, Token: r.token}
	c, err := client.New(conf)
	if err != nil || r.token != "" {
		return c, err
	}
	defer c.Close()
	session, err := c.Login(ctx, "admin", password)
	if err != nil {
		return nil, err
	}
	r.token = director.Secret(session.Token)
	conf.Token = r.token
	return client.New(conf)
}

// Signal sends the director, and not its children, a signal.
func (r *Rig) Signal(sig syscall.Signal) error {
	if r.cmd == nil {
		return os.ErrProcessDone
	}
	return r.cmd.Process.Signal(sig)
}

// Instance returns the id of the state directory among directors on one database.
func (r *Rig) Instance() (string, error) {
	text, err := os.ReadFile(r.Seen("instance"))
	id, _, _ := strings.Cut(string(text), " ")
	return id, err
}

// Orphans returns the processes of runs of this director that are alive.
func (r *Rig) Orphans() []string {
	mark := []byte("KAAS_RUN=" + r.State())
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, f := range found {
		if env, err := os.ReadFile(f); err == nil && bytes.Contains(env, mark) {
			title, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline")) // gone by now, perhaps
			out = append(out, f+" "+strings.ReplaceAll(string(title), "\x00", " "))
		}
	}
	return out
}

// Package storetest gives tests a real PostgreSQL: a private server in a temporary directory, with a database of its
// own for each test.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/test/loopback"
)

// Server is a running PostgreSQL. Its socket lets everybody in without a password; over TCP user "director" has
// Password.
type Server struct {
	Port int // on 127.0.0.1, and part of the socket's name
	Dir  string

	bin   string
	cred  *syscall.Credential
	count atomic.Int64
	life  io.WriteCloser // closing it, also by dying, ends the server
	wait  func() error
}

// Password is what TCP connections need.
const Password = "s3cret-of-the-tests"

var (
	shared    *Server
	sharedErr error
	once      sync.Once
)

// Main runs the tests of a package that uses Postgres, and stops the server afterwards. Call it from TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if shared != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "storetest:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Postgres returns the address of a new empty database. The package's TestMain must call Main. Where PostgreSQL is not
// installed the test is skipped, and fails if KAAS_REQUIRE_REAL is 1.
func Postgres(t testing.TB) string {
	t.Helper()
	return Shared(t).Database(t)
}

// Shared returns the server that all tests of the process use.
func Shared(t testing.TB) *Server {
	t.Helper()
	need(t)
	once.Do(func() { shared, sharedErr = start() })
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return shared
}

// New starts a server for this test alone, which may do to it what it likes.
func New(t testing.TB) *Server {
	t.Helper()
	need(t)
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() }) // the test may have ended it
	return s
}

func need(t testing.TB) {
	t.Helper()
	if binaries() != "" {
		return
	}
	const msg = "PostgreSQL is not installed; run: test/lab/need.sh postgresql"
	if os.Getenv("KAAS_REQUIRE_REAL") == "1" {
		t.Fatal(msg)
	}
	t.Skip(msg)
}

// binaries returns the directory with the newest server, and "" if there is none.
func binaries() string {
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(real)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	sort.Strings(found)
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// keeper runs the server as its child and ends it when standard input ends, however the tests died.
const keeper = `"$@" & server=$!
cat >/dev/null
kill -QUIT $server 2>/dev/null
wait $server
exit 0`

func start() (*Server, error) {
	s := &Server{bin: binaries()}
	var err error
	if s.Dir, err = os.MkdirTemp("", "kaas-pg-"); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if err := s.unprivileged(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(s.Dir))
		}
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) unprivileged() error {
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.Dir, int(uid), int(gid))
}

func (s *Server) start() error {
	data, password := filepath.Join(s.Dir, "data"), filepath.Join(s.Dir, "password")
	if err := os.WriteFile(password, []byte(Password+"\n"), 0o644); err != nil {
		return err
	}
	out, err := s.run("initdb", "-D", data, "-U", "director", "-E", "UTF8", "--no-locale", "--no-sync",
		"--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile="+password)
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	free, err := loopback.Free()
	if err != nil {
		return err
	}
	s.Port = int(free.Port())
	return s.serve()
}

// serve starts the server on the data that is there, and returns when it answers.
func (s *Server) serve() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", keeper, "sh", filepath.Join(
		s.bin, "postgres",
	), "-D", filepath.Join(s.Dir, "data"),
		"-p", strconv.Itoa(s.Port), "-k", s.Dir, "-h", "127.0.0.1", "-N", "200", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "shared_buffers=32MB", "-c", "log_checkpoints=off")
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true}
	if s.life, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.wait = sync.OnceValue(cmd.Wait)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		out, err := s.run("pg_isready", "-h", s.Dir, "-p", strconv.Itoa(s.Port))
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("PostgreSQL does not start: %s\n%s", out, said)
		}
	}
}

// Crash ends the server as a power cut would.
func (s *Server) Crash() error {
	err := s.life.Close()
	return errors.Join(err, s.wait())
}

// Restart starts the server again after Crash.
func (s *Server) Restart() error { return s.serve() }

// Stop ends the server and removes what it kept. It is idempotent.
func (s *Server) Stop() error {
	if s.life != nil {
		_ = s.life.Close()
		_ = s.wait()
	}
	return os.RemoveAll(s.Dir)
}

// Database makes a new empty database and returns its address.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d", s.count.Add(1))
	out, err := s.run("createdb", "-h", s.Dir, "-p", strconv.Itoa(s.Port), "-U", "director", name)
	if err != nil {
		t.Fatalf("createdb: %v\n%s", err, out)
	}
	return fmt.Sprintf("host=%s port=%d user=director dbname=%s", s.Dir, s.Port, name)
}

// TCP returns the address of the database over TCP, where a password is needed.
func (s *Server) TCP(address string) string {
	return strings.Replace(address, "host="+s.Dir, "host=127.0.0.1", 1)
}

func (s *Server) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.bin, program), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

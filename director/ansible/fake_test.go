package ansible_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
)

// fake is an ansible-playbook that runs the playbook as a shell script. "emit" writes an event as the plugin would.
const fake = `#!/bin/bash
n=0
emit() { n=$((n + 1)); printf '{"n":%d,%s\n' "$n" "${1#\{}" >>"$KAAS_EVENTS"; }
ok() { emit '{"type":"stats","stats":{"h1":{"ok":1}}}'; }
for playbook; do :; done
. "$playbook"
`

// bundle is a runner with a fake ansible-playbook and what it left behind.
type bundle struct {
	*ansible.Runner
	state string
	tree  string
	log   string

	mu     sync.Mutex
	events []ansible.Event
	seen   chan ansible.Event
}

func setup(t *testing.T, change ...func(*ansible.Config)) *bundle {
	t.Helper()
	dir := t.TempDir()
	b := &bundle{
		state: filepath.Join(dir, "state"), tree: filepath.Join(dir, "tree"),
		log:  filepath.Join(dir, "logs", "1.jsonl"),
		seen: make(chan ansible.Event, 10000),
	}
	cfg := ansible.Config{
		Binary: fakeIn(t, dir), StateDir: b.state, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Grace: 10 * time.Second,
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if b.Runner, err = ansible.New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// fakeFile is where TestMain wrote the fake, before any test starts a process: until such a process runs its own
// program it holds what was open for writing when it was forked, and Linux runs no file that is.
var fakeFile string

// fakeIn puts the fake into the directory and returns its path.
func fakeIn(t testing.TB, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "ansible-playbook")
	if err := os.Symlink(fakeFile, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// play returns a play of a script.
func (b *bundle) play(t *testing.T, script string) ansible.Play {
	t.Helper()
	write(t, filepath.Join(b.tree, "install", "x.yml"), script)
	return ansible.Play{
		ID: "p1/s1/1", Tree: b.tree, Playbook: "install/x.yml",
		Inventory: map[string][]byte{"hosts.ini": []byte("h1\n")}, LogPath: b.log, OnEvent: b.onEvent,
	}
}

// outcome is how a run ended.
type outcome struct {
	res ansible.Result
	err error
}

// begin starts a run and returns where its outcome will be.
func (b *bundle) begin(ctx context.Context, p ansible.Play) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := b.Play(ctx, p)
		done <- outcome{res, err}
	}()
	return done
}

func (b *bundle) onEvent(e ansible.Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	b.mu.Unlock()
	b.seen <- e
}

// await returns the next event that the condition holds for.
func (b *bundle) await(t *testing.T, when func(ansible.Event) bool) ansible.Event {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		select {
		case e := <-b.seen:
			if when(e) {
				return e
			}
		case <-deadline:
			t.Fatal("the event did not come")
		}
	}
}

func said(msg string) func(ansible.Event) bool {
	return func(e ansible.Event) bool { return strings.HasPrefix(e.Msg, msg) }
}

// clean fails the test if a run left a directory behind.
func (b *bundle) clean(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(b.state, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// logged returns the log's events.
func (b *bundle) logged(t *testing.T) []ansible.Event {
	t.Helper()
	f, err := os.Open(b.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []ansible.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e ansible.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		events = append(events, e)
	}
	return events
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fifo makes a pipe with a name: who opens one end waits for the other.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// patience, in milliseconds, is long: a play is nicer than all else, and gets a small part of a busy machine.
const patience = 60_000

// ended waits until the process is gone, without asking it again and again.
func ended(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience)
	}
	if err != nil || n == 0 {
		t.Errorf("process %d still runs (%v)", pid, err)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func pidOf(t *testing.T, e ansible.Event) int {
	t.Helper()
	fields := strings.Fields(e.Msg)
	pid, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func playError(t *testing.T, err error) *ansible.PlayError {
	t.Helper()
	e, ok := errors.AsType[*ansible.PlayError](err)
	if !ok {
		t.Fatalf("got %v, want a PlayError", err)
	}
	return e
}

// benchmark runs x.yml of a tree with these files again and again.
func benchmark(b *testing.B, binary string, files map[string]string, extraVars string) {
	b.Helper()
	dir := b.TempDir()
	for path, text := range files {
		write(b, filepath.Join(dir, "tree", path), text)
	}
	r, err := ansible.New(ansible.Config{Binary: binary, StateDir: filepath.Join(dir, "state")})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		res, err := r.Play(b.Context(), ansible.Play{
			ID: "p", Tree: filepath.Join(dir, "tree"), Playbook: "x.yml", LogPath: filepath.Join(dir, "log"),
			ExtraVars: []byte(extraVars),
			Inventory: map[string][]byte{"hosts.ini": []byte("h1 ansible_connection=local\n")},
		})
		if err != nil || res.Lost > 0 {
			b.Fatal(res.Lost, err)
		}
	}
}

// shown is what a person sees of an error.
func shown(err error) string {
	if e, ok := errors.AsType[*director.Error](err); ok {
		return e.Msg
	}
	return fmt.Sprint(err)
}

// TestMain writes the fake, and also plays the director that dies, see TestEndSurvivors.
func TestMain(m *testing.M) {
	if dir := os.Getenv("KAAS_TEST_DIRECTOR"); dir != "" {
		cfg := ansible.Config{Binary: filepath.Join(dir, "ansible-playbook"), StateDir: filepath.Join(dir, "state")}
		inventory := "h1\n"
		if os.Getenv("KAAS_TEST_REAL") != "" {
			cfg.Binary, cfg.Silence = "ansible-playbook", 2*time.Second
			inventory = "h1 ansible_connection=local ansible_python_interpreter=/usr/bin/python3\n"
		}
		r, err := ansible.New(cfg)
		if err != nil {
			panic(err)
		}
		_, err = r.Play(context.Background(), ansible.Play{
			ID: "p9/s9/1", Tree: filepath.Join(dir, "tree"), Playbook: "install/x.yml",
			Inventory: map[string][]byte{"hosts.ini": []byte(inventory)},
			ExtraVars: []byte(`{"password":"a-secret-of-the-run"}`),
			OnEvent: func(e ansible.Event) {
				if e.Type == ansible.TaskStart {
					fmt.Println(e.Task)
				}
			},
		})
		fmt.Println("the director should have been killed:", err)
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "ansible-fake-")
	if err != nil {
		panic(err)
	}
	fakeFile = filepath.Join(dir, "ansible-playbook")
	if err := os.WriteFile(fakeFile, []byte(fake), 0o700); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

const (
	start    = `emit '{"type":"play_start","play":"P"}'; emit '{"type":"task_start","task":"T","role":"r"}'` + "\n"
	failedOn = `emit '{"type":"host","status":"failed","task":"T","role":"r","host":"%","msg":"it broke on %"}'` +
		"\n"
	unreachable = `emit '{"type":"host","status":"unreachable","task":"T","role":"r","host":"%","msg":"no answer"}'` +
		"\n"
)

func on(host, event string) string { return strings.ReplaceAll(event, "%", host) }

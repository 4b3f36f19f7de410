package steps

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// readUntil reads the terminal until it shows the word.
func readUntil(t *testing.T, r io.Reader, word string) string {
	t.Helper()
	var all strings.Builder
	buf := make([]byte, 1024)
	for !strings.Contains(all.String(), word) {
		n, err := r.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q is not shown: %v\n%s", word, err, all.String())
		}
	}
	return all.String()
}

// A terminal is one for the programs on the machine, changes its size, and ends with its shell.
func TestTerminalOfAMachine(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	if err := env.SSH().trusted(t.Context(), "m1", trust{Cluster: "c1"}); err != nil {
		t.Fatal(err)
	}
	key, err := env.HostKey(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	node := n.as(env)
	node.login = func(ctx context.Context, m director.Machine) ([]ssh.Signer, error) {
		return env.SSH().Person(ctx, m, "ann")
	}
	term, err := node.terminal(t.Context(), localMachine("m1").Machine.Row(), key.Public, 101, 33)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = term.Close() }()
	_, err = io.WriteString(term, "tty >/dev/null && stty size\n")
	if err != nil {
		t.Fatal(err)
	}
	readUntil(t, term, "33 101")
	if err := term.Resize(90, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(term, "stty size; echo $TERM\n"); err != nil {
		t.Fatal(err)
	}
	if out := readUntil(t, term, terminalType); !strings.Contains(out, "20 90") {
		t.Errorf("the size is not 20 90:\n%s", out)
	}
	if _, err := io.WriteString(term, "exit\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, term); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if err := errors.Join(term.Close(), term.Close()); err != nil {
		t.Error(err)
	}
}

// Nothing is typed into another host that has the address, and one that is silent is named.
func TestTerminalOfAnotherHost(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	n := env.born(t, "c1", "m1")
	if err := env.SSH().trusted(t.Context(), "m1", trust{Cluster: "c1"}); err != nil {
		t.Fatal(err)
	}
	other, err := env.HostKey(t.Context(), "m2")
	if err != nil {
		t.Fatal(err)
	}
	m := localMachine("m1").Machine.Row()
	_, err = n.as(env).terminal(t.Context(), m, other.Public, 80, 24)
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "host key") {
		t.Errorf("another host: %v", err)
	}
	n.port = steadyPort(t)
	_, err = n.as(env).terminal(t.Context(), m, other.Public, 80, 24)
	if director.KindOf(err) != director.KindUnavailable || director.HintOf(err) == "" {
		t.Errorf("no host: %v", err)
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/test/program"
)

var update = flag.Bool("update", false, "write golden files")

// TestMain builds directorctl for the scripts, and the substitute for ansible-playbook of directors that simulate.
func TestMain(m *testing.M) {
	dir, err := program.Build(context.Background(), "directorctl", "pretend-ansible")
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const password = "correct horse battery"

// fillScript gives a script its environment and its files: the CA of its director in ca.crt, the admin's password in
// the file password, the documents of documents.yaml, and the example that rolls over hosts in roll.sh.
func fillScript(env *testscript.Env, ca []byte, password string) error {
	env.Setenv("DIRECTOR_CONFIG", "")
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, ".config"))
	env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
	documents, err := os.ReadFile(filepath.Join(simulatedScripts, "documents.yaml"))
	if err != nil {
		return err
	}
	roll, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "rolling-over-hosts", "roll.sh"))
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"roll.sh": roll, "ca.crt": ca, "password": []byte(password + "\n"), "documents.yaml": documents,
		"fingerprint.in": []byte("yes\n"),
	} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// code runs a command and wants its exit code: code N directorctl ARGS...
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitStatus(err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func exitStatus(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return strconv.Itoa(e.ExitCode())
	}
	return err.Error()
}

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/plan"
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

// TestScripts drives the command line against the real API over TLS. Behind it is an in-memory director that fails,
// asks, holds and answers oddly as a script tells it to, which no simulation does. Every script has one of its own:
// $DIRECTOR_SERVER, its certificate in ca.crt, the admin's password in the file password, the documents of
// documents.yaml, and the example that rolls over hosts in roll.sh.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", UpdateScripts: *update, RequireExplicitExec: true,
		Setup: setupScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":    code,
			"release": release,
			"awaits":  awaits,
		},
	})
}

type opsKey struct{}

func setupScript(env *testscript.Env) error {
	ops := apitest.New(nil)
	ops.Async = true
	users := &apitest.Users{}
	svc, err := auth.New(users, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}})
	if err != nil {
		return err
	}
	if _, _, err := svc.EnsureAdmin(context.Background(), password); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	ports := ops.Ports()
	ports.Users = identity.New(identity.Config{Store: users, Passwords: svc, Now: time.Now})
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.NewServer(
		api.New(api.Config{
			Ports: ports, Auth: svc, Log: quiet, Version: "v0.0.0-test",
		}), nil, quiet)
	srv.StartTLS()
	env.Defer(srv.Close)
	env.Defer(srv.CloseClientConnections)
	env.Values[opsKey{}] = ops
	env.Setenv("DIRECTOR_SERVER", srv.URL)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return fillScript(env, "testdata", ca, password)
}

// fillScript gives a script its environment and its files. documents.yaml is in dir.
func fillScript(env *testscript.Env, dir string, ca []byte, password string) error {
	env.Setenv("DIRECTOR_CONFIG", "")
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, ".config"))
	env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
	documents, err := os.ReadFile(filepath.Join(dir, "documents.yaml"))
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

// release lets held plans continue.
func release(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(opsKey{}).(*apitest.Operations).Release()
}

// awaits waits until a plan with the status exists: awaits STATUS.
func awaits(ts *testscript.TestScript, _ bool, args []string) {
	ops := ts.Value(opsKey{}).(*apitest.Operations)
	for deadline := time.Now().Add(20 * time.Second); ; {
		views, _, err := ops.ListPlans(context.Background(), journal.Query{Page: director.Page{Desc: true, Limit: 1}})
		ts.Check(err)
		if len(views) > 0 && views[0].State.Status == plan.Status(args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no plan came to be %s", args[0])
		}
		if len(views) > 0 {
			_, err = ops.Events(context.Background(), views[0].Plan.ID, views[0].State.Seq, 100*time.Millisecond)
			ts.Check(err)
		}
	}
}

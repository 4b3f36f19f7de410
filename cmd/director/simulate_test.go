package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/test/loopback"
	"github.com/director-kaas/kaas/test/program"
)

// TestMain builds the programs that the scripts start, and the substitute for ansible-playbook of directors that
// simulate, which the director looks for beside itself.
func TestMain(m *testing.M) {
	dir, err := program.Build(context.Background(), "director", "directorctl", "pretend-ansible")
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// simulatePage returns the commands and the documents of docs/start/simulate.md.
func simulatePage(t *testing.T) (commands, documents []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", "simulate.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```(yaml)?\n(.*?)\n```\n").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "yaml" {
			documents = append(documents, block[2]+"\n")
			continue
		}
		commands = append(commands, strings.Split(block[2], "\n")...)
	}
	if len(commands) == 0 || len(documents) == 0 {
		t.Fatalf("the page has the commands %q and %d documents", commands, len(documents))
	}
	return commands, documents
}

// TestSimulatePage runs the commands of docs/start/simulate.md, with the real command line. The page has no command
// that the script does not run.
func TestSimulatePage(t *testing.T) {
	t.Parallel()
	const script = "testdata/simulate.txtar"
	run, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	commands, _ := simulatePage(t)
	for _, c := range commands {
		c = strings.NewReplacer(
			"~/rehearsal", "$STATE", "~", "$HOME", "https://127.0.0.1:8443", "$SERVER", "127.0.0.1:8443", "$API",
			"PLAN", "$PLAN", "bin/", "",
		).Replace(strings.TrimSuffix(c, " models/"))
		if c != "make build" && !strings.Contains(string(run), "exec "+c) { // what it builds is what runs here
			t.Errorf("the page says %q, which %s does not run", c, script)
		}
	}
	testscript.Run(t, testscript.Params{
		Files: []string{script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			home, err := newcomer(t.Context(), env)
			if err != nil {
				return err
			}
			real := fmt.Sprintf("stateDir: %s\naddress: 127.0.0.1\n", filepath.Join(home, "rehearsal"))
			return os.WriteFile(filepath.Join(env.WorkDir, "real.yaml"), []byte(real), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"ready": ready, "plan": newestPlan},
	})
}

// newcomer makes a script start as one who has never logged in: with an empty home, and with free addresses in $API and
// $REGISTRY.
func newcomer(ctx context.Context, env *testscript.Env) (home string, err error) {
	env.Values[sessionKey{}] = &client.Config{}
	home = filepath.Join(env.WorkDir, "home")
	env.Setenv("HOME", home)
	for _, name := range []string{"API", "REGISTRY"} {
		free, err := loopback.Free()
		if err != nil {
			return "", err
		}
		env.Setenv(name, free.String())
	}
	return home, nil
}

// waitFor asks until it is so.
func waitFor(ts *testscript.TestScript, what string, is func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := is(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("%s: %v", what, err)
		}
	}
}

// ready waits until the director on the state directory answers: ready DIR.
func ready(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, "the director does not answer", func(ctx context.Context) error {
		found, err := filepath.Glob(filepath.Join(args[0], "tls", "ca.crt"))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("%s has no certificate yet", args[0])
		}
		return reach(ctx, ts.Getenv("API"), found[0])
	})
}

// reach asks a director whose authority is in the file whether it is ready.
func reach(ctx context.Context, address, authority string) error {
	ca, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Server: "https://" + address, CA: ca})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Ready(ctx)
}

type sessionKey struct{}

// session is a login that the script's commands have in common.
func session(ctx context.Context, ts *testscript.TestScript) (*client.Client, error) {
	conf := ts.Value(sessionKey{}).(*client.Config)
	if conf.Token != "" {
		return client.New(*conf)
	}
	state := filepath.Join(ts.Getenv("HOME"), "rehearsal")
	var err error
	conf.Server = "https://" + ts.Getenv("API")
	conf.CA, err = os.ReadFile(filepath.Join(state, "tls", "ca.crt"))
	ts.Check(err)
	password, err := os.ReadFile(filepath.Join(state, "admin.password"))
	ts.Check(err)
	c, err := client.New(*conf)
	ts.Check(err)
	defer c.Close()
	s, err := c.Login(ctx, "admin", director.Secret(strings.TrimSpace(string(password))))
	if err != nil {
		return nil, err
	}
	conf.Token = director.Secret(s.Token)
	return client.New(*conf)
}

// newestPlan waits until the newest plan has the status, and keeps its id: plan VARIABLE STATUS, or any for STATUS.
func newestPlan(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, "no plan is "+args[1], func(ctx context.Context) error {
		c, err := session(ctx, ts)
		if err != nil {
			return err
		}
		defer c.Close()
		plans, err := c.Plans(ctx, client.PlanFilter{Limit: 1})
		if err != nil {
			return err
		}
		if len(plans) == 0 || (args[1] != "any" && plans[0].Status != args[1]) {
			return fmt.Errorf("there is %+v", plans)
		}
		ts.Setenv(args[0], plans[0].ID)
		return nil
	})
}

// What the page says of configurations and documents is right.
func TestSimulatePageDocuments(t *testing.T) {
	t.Parallel()
	_, documents := simulatePage(t)
	configs := 0
	for _, text := range documents {
		if strings.HasPrefix(text, "apiVersion:") {
			docs, err := model.Parse([]byte(text), "docs/start/simulate.md")
			if err != nil || len(docs) != 1 {
				t.Errorf("%v\n%s", err, text)
				continue
			}
			if _, err := model.Validate(&docs[0]); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			continue
		}
		configs++
		file := filepath.Join(t.TempDir(), "director.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := daemon.LoadConfig(file); err != nil || !c.Simulate {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if configs != 2 {
		t.Errorf("the page has %d configurations, want 2", configs)
	}
}

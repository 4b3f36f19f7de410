package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/simulate"
)

// startScript runs the commands of the pages of docs/start that install a director and create a cluster.
const startScript = "testdata/start.txtar"

// notRun are beginnings of commands on these pages that need what a test does not have: a build of hours, a second
// machine, a real cluster.
var notRun = []string{
	"make ", "install bin/", "ssh-copy-id ", "ssh-keyscan ", "kubectl ", "test/lab/lab exec -- ", "kill -9 ",
}

// startBlocks are the fenced blocks of a page that are commands or YAML.
var startBlocks = regexp.MustCompile("(?s)\n```(yaml)?\n(.*?)\n```\n")

// startPage returns the commands of a page of docs/start, without their comments, and its YAML.
func startPage(t *testing.T, page string) (commands, documents []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range startBlocks.FindAllStringSubmatch(string(text), -1) {
		if block[1] == "yaml" {
			documents = append(documents, block[2]+"\n")
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			line, _, _ = strings.Cut(line, " #")
			commands = append(commands, strings.Join(strings.Fields(line), " "))
		}
	}
	if len(commands) == 0 {
		t.Fatalf("docs/start/%s has no commands", page)
	}
	return commands, documents
}

// TestStartPages runs the commands of docs/start/own-hypervisor.md and docs/start/first-cluster.md with the real
// programs, the configuration that the former page shows and the documents of docs/examples/demo. Only the hypervisor,
// its VMs and the playbooks are simulated. The pages have no command that is neither run nor in notRun, and call no
// target that the Makefile does not have.
func TestStartPages(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(startScript)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for _, page := range []string{"own-hypervisor.md", "first-cluster.md"} {
		commands, documents := startPage(t, page)
		if page == "own-hypervisor.md" && len(documents) == 1 {
			config = documents[0]
		}
		for _, command := range commands {
			checkCommand(t, page, command, string(script), string(makefile))
		}
	}
	if config == "" {
		t.Fatal("docs/start/own-hypervisor.md does not show one configuration")
	}
	testscript.Run(t, testscript.Params{
		Files: []string{startScript}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error { return startMachine(t.Context(), env, config) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "plan": newestPlan,
		},
	})
}

// checkCommand wants the script to run a command of a page, and the Makefile to have a target that the page calls.
func checkCommand(t *testing.T, page, command, script, makefile string) {
	t.Helper()
	if target, ok := strings.CutPrefix(command, "make "); ok {
		target, _, _ = strings.Cut(target, " ")
		if !strings.Contains(makefile, "\n"+target+":") {
			t.Errorf("docs/start/%s says %q, and the Makefile has no such target", page, command)
		}
	}
	for _, prefix := range notRun {
		if strings.HasPrefix(command, prefix) {
			return
		}
	}
	run := strings.NewReplacer(
		"test/demo/demo.sh ctl", "directorctl", "/etc/director", "$ETC", "/var/lib/director", "$STATE",
		"https://192.0.2.10:8443", "$SERVER", "BUNDLE", "k8s-1.37.1", "PLAN", "$PLAN",
	).Replace(command)
	if !strings.Contains(script, "exec "+run+"\n") && !strings.Contains(script, "exec "+run+" &") {
		t.Errorf("docs/start/%s says %q, and %s does not run %q", page, command, startScript, run)
	}
}

// startMachine gives a script the machine of one who follows the page: the page's configuration with other addresses
// and directories, the examples in models, and what make release and make image would have built.
func startMachine(ctx context.Context, env *testscript.Env, config string) error {
	home, err := newcomer(ctx, env)
	if err != nil {
		return err
	}
	etc, state := filepath.Join(env.WorkDir, "etc"), filepath.Join(home, "rehearsal")
	env.Setenv("ETC", etc)
	env.Setenv("STATE", state)
	config = strings.NewReplacer(
		"192.0.2.10", "127.0.0.1", "/etc/director", etc, "/var/lib/director", state,
		"/run/director", filepath.Join(env.WorkDir, "run"), "/srv/director", filepath.Join(env.WorkDir, "srv"),
		"listen: :8443", "listen: "+env.Getenv("API"), "registryListen: :5000",
		"registryListen: "+env.Getenv("REGISTRY"),
	).Replace(config)
	simulation, err := os.ReadFile(filepath.Join(env.WorkDir, "simulation.yaml"))
	if err != nil {
		return err
	}
	models := filepath.Join(env.WorkDir, "models")
	err = errors.Join(
		os.MkdirAll(etc, 0o700), os.Mkdir(models, 0o700),
		os.WriteFile(filepath.Join(etc, "director.yaml"), append([]byte(config), simulation...), 0o600),
		bootable(filepath.Join(env.WorkDir, "node.raw")),
	)
	for _, name := range []string{"provider.yaml", "network.yaml", "cluster.yaml"} {
		text, readErr := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "demo", name))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(models, name), text, 0o600))
	}
	if err != nil {
		return err
	}
	_, err = simulate.Bundle(ctx, env.WorkDir, "k8s-1.37.1", "v1.37.1")
	return err
}

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/simulate"
)

// scripted are pages whose commands a script runs, which may run others as well.
type scripted struct {
	dir    string // of the pages, below docs
	script string // its file
	// beginnings of commands that need what a test does not have, such as a second machine
	notRun []string
	here   *strings.Replacer // what the script has instead of addresses, directories and names of the pages
}

// startPages are the pages of docs/start that install a director and create a cluster.
var startPages = scripted{
	dir: "start", script: "testdata/start.txtar",
	notRun: []string{
		"make ", "install bin/", "ssh-copy-id ", "ssh-keyscan ", "kubectl ", "test/lab/lab exec -- ", "kill -9 ",
	},
	here: strings.NewReplacer(
		"test/demo/demo.sh ctl", "directorctl", "/etc/director", "$ETC", "/var/lib/director", "$STATE",
		"https://192.0.2.10:8443", "$SERVER", "BUNDLE", "k8s-1.37.1", "PLAN", "$PLAN",
	),
}

// pageBlocks are the fenced blocks of a page that are commands or YAML.
var pageBlocks = regexp.MustCompile("(?s)\n```(yaml)?\n(.*?)\n```\n")

// page returns the commands of a page, without their comments, and its YAML.
func (s scripted) page(t *testing.T, page string) (commands, documents []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", s.dir, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range pageBlocks.FindAllStringSubmatch(string(text), -1) {
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
		t.Fatalf("docs/%s/%s has no commands", s.dir, page)
	}
	return commands, documents
}

// TestStartPages runs the commands of docs/start/own-hypervisor.md and docs/start/first-cluster.md with the real
// programs, the configuration that the former page shows and the documents of docs/examples/demo. Only the hypervisor,
// its VMs and the playbooks are simulated. The pages have no command that is neither run nor in notRun, and call no
// target that the Makefile does not have.
func TestStartPages(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for _, page := range []string{"own-hypervisor.md", "first-cluster.md"} {
		commands, documents := startPages.page(t, page)
		if page == "own-hypervisor.md" && len(documents) == 1 {
			config = documents[0]
		}
		startPages.check(t, page, commands)
		for _, command := range commands {
			target, _, _ := strings.Cut(strings.TrimPrefix(command, "make "), " ")
			if strings.HasPrefix(command, "make ") && !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("docs/start/%s says %q, and the Makefile has no such target", page, command)
			}
		}
	}
	if config == "" {
		t.Fatal("docs/start/own-hypervisor.md does not show one configuration")
	}
	testscript.Run(t, testscript.Params{
		Files: []string{startPages.script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error { return startMachine(t.Context(), env, config) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "plan": newestPlan,
		},
	})
}

// check wants the script to run each of the commands of a page. A command for a shell is run by one.
func (s scripted) check(t *testing.T, page string, commands []string) {
	t.Helper()
	script, err := os.ReadFile(s.script)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if slices.ContainsFunc(s.notRun, func(prefix string) bool { return strings.HasPrefix(command, prefix) }) {
			continue
		}
		run := s.here.Replace(command)
		shell := "sh -c '" + strings.ReplaceAll(run, "'", "''") + "'"
		if !slices.ContainsFunc([]string{run + "\n", run + " &", shell + "\n"}, func(line string) bool {
			return strings.Contains(string(script), "exec "+line)
		}) {
			t.Errorf("docs/%s/%s says %q, and %s does not run %q", s.dir, page, command, s.script, run)
		}
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

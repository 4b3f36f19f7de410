package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/simulate"
)

// startPages are the pages of docs/start that install a director and create a cluster.
var startPages = scripted{
	dir: "start", pages: []string{"own-hypervisor", "first-cluster"}, script: "testdata/start.txtar",
	notRun: map[string]string{
		"make ":              "builds for minutes; TestStartPages looks for the targets",
		"install bin/":       "the programs are in PATH already",
		"ssh-copy-id ":       aHost,
		"ssh-keyscan ":       aHost,
		"kubectl ":           aCluster,
		"test/lab/lab exec ": "there is no lab",
		"kill -9 ":           "the script simulate.txtar kills a director",
	},
	here: strings.NewReplacer(
		"test/demo/demo.sh ctl", "directorctl", "/etc/director", "$ETC", "/var/lib/director", "$STATE",
		"https://192.0.2.10:8443", "$SERVER", "BUNDLE", "k8s-1.37.1", "PLAN", "$PLAN",
	),
}

// TestStartPages runs the commands of docs/start/own-hypervisor.md and docs/start/first-cluster.md with the real
// programs, the configuration that the former page shows and the documents of docs/examples/demo. Only the hypervisor,
// its VMs and the playbooks are simulated. The pages call no target that the Makefile does not have.
func TestStartPages(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for _, page := range startPages.pages {
		commands, documents := manualPage(t, "start", page)
		if page == "own-hypervisor" && len(documents) == 1 {
			config = documents[0]
		}
		for _, command := range commands {
			target, _, _ := strings.Cut(strings.TrimPrefix(command, "make "), " ")
			if strings.HasPrefix(command, "make ") && !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("docs/start/%s.md says %q, and the Makefile has no such target", page, command)
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

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"
)

// scriptedPages are pages of docs/operate with commands that need a director of their own: projects and grants, outer
// registries and authorities, and the loss and the move of a director.
var scriptedPages = scripted{
	dir: "operate", script: "testdata/operate.txtar",
	notRun: []string{
		"age-keygen ", // its key is made by the test
		"directorctl provider credentials set corp-key ", "step ", "directorctl apply -f step.yaml",
		"directorctl provider credentials set step-kaas ", "directorctl ca test step",
	},
	here: strings.NewReplacer(
		"director restore ", "director restore -config $CONFIG -state-dir $STATE ",
		"admin hand-over ", "admin hand-over --state-dir $STATE ",
		"admin take-over", "admin take-over --state-dir $STATE",
		"age1...", "$RECIPIENT", "/var/lib/director", "$STATE", "TARGET", "offsite", "PLAN", "$PLAN",
	),
}

// shownDocuments are the documents of these pages that the script applies: the number of each on its page and its file.
var shownDocuments = []struct {
	page   string
	number int
	file   string
}{
	{"grants.md", 0, "web.yaml"},
	{"registries.md", 0, "docker-hub.yaml"},
	{"outer-ca.md", 1, "corp.yaml"},
	{"backup.md", 0, "schedule.yaml"},
	{"backup.md", 1, "drift.yaml"},
}

// TestOperatePages runs the commands of scriptedPages with the real programs and the documents of these pages. A
// machine that is lost is a state directory that is moved away.
func TestOperatePages(t *testing.T) {
	t.Parallel()
	shown := map[string]string{}
	for _, d := range shownDocuments {
		commands, documents := scriptedPages.page(t, d.page)
		scriptedPages.check(t, d.page, commands)
		if len(documents) <= d.number {
			t.Fatalf("docs/operate/%s shows %d documents", d.page, len(documents))
		}
		shown[d.file] = documents[d.number]
	}
	testscript.Run(t, testscript.Params{
		Files: []string{scriptedPages.script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error { return operateMachine(t.Context(), env, shown) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "plan": newestPlan,
		},
	})
}

// operateMachine gives a script the documents that pages show, the configuration and the documents of its director, and
// two keys of age: KEYFILE for bundles in the target, and move.key, whose public half is $RECIPIENT.
func operateMachine(ctx context.Context, env *testscript.Env, shown map[string]string) error {
	home, err := newcomer(ctx, env)
	if err != nil {
		return err
	}
	etc := filepath.Join(env.WorkDir, "etc")
	env.Setenv("ETC", etc)
	env.Setenv("STATE", filepath.Join(home, "rehearsal"))
	err = os.MkdirAll(etc, 0o700)
	for file, text := range shown {
		err = errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, file), []byte(text), 0o600))
	}
	public := map[string]string{}
	for _, file := range []string{"KEYFILE", "move.key"} {
		key, keyErr := age.GenerateX25519Identity()
		if keyErr != nil {
			return keyErr
		}
		public[file] = key.Recipient().String()
		err = errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, file), []byte(key.String()+"\n"), 0o600))
	}
	env.Setenv("RECIPIENT", public["move.key"])
	here := strings.NewReplacer(
		"$WORK", env.WorkDir, "$STATE", env.Getenv("STATE"), "$API", env.Getenv("API"), "$REGISTRY",
		env.Getenv("REGISTRY"), "$KEY", public["KEYFILE"],
	)
	for from, to := range map[string]string{"director.yaml": "etc/director.yaml", "target.yaml": "models/target.yaml"} {
		text, readErr := os.ReadFile(filepath.Join(env.WorkDir, from))
		to = filepath.Join(env.WorkDir, to)
		err = errors.Join(err, readErr, os.WriteFile(to, []byte(here.Replace(string(text))), 0o600))
	}
	return err
}

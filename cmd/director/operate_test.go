package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// scriptedPages are pages of docs/operate with commands that need a director of their own: people and their grants,
// hooks, outer registries, authorities, and the loss and the move of a director.
var scriptedPages = scripted{
	dir: "operate", script: "testdata/operate.txtar",
	pages: []string{"grants", "users", "hooks", "registries", "certificates", "outer-ca", "backup"},
	notRun: map[string]string{
		"ansible-playbook ": "runs on real nodes",
		"age-keygen ":       "the test makes the key",
		"directorctl provider credentials set corp-key ": "the other way to have an authority is run",
		"step ":                          stepCA,
		"directorctl apply -f step.yaml": stepCA,
		"directorctl provider credentials set step-kaas ": stepCA,
		"directorctl ca test step":                        stepCA,
	},
	here: strings.NewReplacer(
		"director restore ", "director restore -config $CONFIG -state-dir $STATE ",
		"admin reset-password ", "admin reset-password --state-dir $STATE ", "https://director:8443", "$SERVER",
		`'{"decision": "continue", "reason": "ticket 4711"}'`, "@answer.json",
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
	{"grants", 0, "web.yaml"},
	{"hooks", 0, "cmdb.yaml"},
	{"registries", 0, "docker-hub.yaml"},
	{"outer-ca", 1, "corp.yaml"},
	{"backup", 0, "schedule.yaml"},
	{"backup", 1, "drift.yaml"},
}

// TestOperatePages runs the commands of scriptedPages with the real programs and the documents of these pages. A
// machine that is lost is a state directory that is moved away.
func TestOperatePages(t *testing.T) {
	t.Parallel()
	shown := map[string]string{}
	for _, d := range shownDocuments {
		_, documents := manualPage(t, "operate", d.page)
		if len(documents) <= d.number {
			t.Fatalf("docs/operate/%s.md shows %d documents", d.page, len(documents))
		}
		shown[d.file] = documents[d.number]
	}
	authority := webhooktest.NewAuthority(t)
	later := webhooktest.Start(t, "127.0.0.1:0", authority, false, laterButTests)
	mutual := webhooktest.Start(t, "127.0.0.1:0", authority, true, laterButTests)
	shown["cmdb.yaml"] = strings.NewReplacer(
		"https://cmdb.example.org/director", later.URL, "10.2.0.0/16", "127.0.0.1/32",
	).Replace(shown["cmdb.yaml"]) + "  tls:\n    ca: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(authority.PEM), "\n", "\n      ") + "\n"
	cert, key := authority.Issue(t, "director")
	shown["client.pem"] = string(cert) + string(key)
	testscript.Run(t, testscript.Params{
		Files: []string{scriptedPages.script}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("MUTUAL", mutual.URL)
			return operateMachine(t.Context(), env, shown)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": ready, "plan": newestPlan,
			"told": func(ts *testscript.TestScript, _ bool, args []string) { told(ts, later, args) },
		},
	})
}

// laterButTests is an endpoint that answers plans later, and tests at once.
func laterButTests(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Header.Get("Webhook-Id"), "test-") {
		webhooktest.JSON(http.StatusOK, `{"decision": "continue"}`)(w, r)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// told waits until the endpoint is told of the phase, and sets a variable to the address for the answer: told VARIABLE
// PHASE.
func told(ts *testscript.TestScript, e *webhooktest.Endpoint, args []string) {
	waitFor(ts, "the endpoint is not told of "+args[1], func(context.Context) error {
		for _, r := range e.Got() {
			var event struct {
				Data struct{ Phase, Answer string }
			}
			if err := json.Unmarshal(r.Body, &event); err != nil {
				return err
			}
			if event.Data.Phase == args[1] {
				ts.Setenv(args[0], event.Data.Answer)
				return nil
			}
		}
		return errors.New("it has other requests at most")
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

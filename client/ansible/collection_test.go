// Package ansible tests the Ansible collection against a director that simulates.
package ansible

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/client/clienttest"
)

func TestMain(m *testing.M) { clienttest.Main(m) }

var changed = regexp.MustCompile(`ok=(\d+) +changed=(\d+) .* failed=(\d+)`)

// A check changes nothing, the first run brings the cluster, and the second run changes nothing. The token is in no
// output.
func TestPlaybook(t *testing.T) {
	t.Parallel()
	d := clienttest.Start(t, "../..")
	token := d.Token(t)
	play := func(more []string, arguments ...string) string {
		t.Helper()
		return play(t, d, token, "playbook.yml", more, arguments...)
	}
	if n := play([]string{"FRESH=1"}, "--check", "--diff"); n != "1" {
		t.Errorf("the check of a fresh director tells of %s changes", n)
	}
	if n := play(nil); n != "4" {
		t.Errorf("the first run made %s changes", n)
	}
	if n := play(nil); n != "0" {
		t.Errorf("the second run made %s changes", n)
	}
	if n := play(nil, "--check"); n != "0" {
		t.Errorf("the check after it tells of %s changes", n)
	}
}

// The upgrade of a director is a task: a check sends nothing, and a second run changes nothing.
func TestUpgradePlaybook(t *testing.T) {
	t.Parallel()
	d := clienttest.StartAppliance(t, "../..")
	token := d.Token(t)
	for _, c := range []struct {
		arguments []string
		changed   string
	}{{[]string{"--check"}, "1"}, {nil, "1"}, {nil, "0"}, {[]string{"--check"}, "0"}} {
		if n := play(t, d, token, "upgrade.yml", nil, c.arguments...); n != c.changed {
			t.Errorf("%v tells of %s changes and not %s", c.arguments, n, c.changed)
		}
	}
}

// play runs the playbook, and returns how many changes it tells of.
func play(t *testing.T, d clienttest.Director, token, book string, more []string, arguments ...string) string {
	t.Helper()
	out := d.Run(t, ".", append(more, "DIRECTOR_TOKEN="+token, "ANSIBLE_COLLECTIONS_PATH="+installed(t),
		"ANSIBLE_LOCALHOST_WARNING=False", "ANSIBLE_INVENTORY_UNPARSED_WARNING=False", "ANSIBLE_HOME="+t.TempDir(),
	), append([]string{"ansible-playbook", "-vvv", book}, arguments...)...)
	if strings.Contains(out, token) {
		t.Errorf("the token is in the output:\n%s", out)
	}
	recap := changed.FindStringSubmatch(out)
	if recap == nil || recap[3] != "0" {
		t.Fatalf("no recap:\n%s", out)
	}
	return recap[2]
}

// installed returns a directory with the collection where Ansible looks for it.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, "ansible_collections", "kaas", "director")
	if out, err := exec.CommandContext(t.Context(), "../../collection/stage.sh", at).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// A problem of the director fails a module with what to do next, and without a trace.
func TestProblems(t *testing.T) {
	t.Parallel()
	d := clienttest.Start(t, "../..")
	for name, c := range map[string]struct{ token, module, arguments, want string }{
		"a wrong token":   {"wrong", "info", "", `"kind": "unauthenticated"`},
		"no token":        {"", "info", "", "token is missing: set the option, or DIRECTOR_TOKEN"},
		"a token in two":  {"a b", "info", "", "the token has characters that no token has"},
		"no such plan":    {d.Token(t), "start", "plan=none", `"kind": "not_found"`},
		"no such cluster": {d.Token(t), "plan", "cluster=none", `"kind": "not_found"`},
	} {
		cmd := exec.CommandContext(
			t.Context(), "ansible", "localhost", "-m", "kaas.director."+c.module, "-a", c.arguments,
		)
		cmd.Env = append(os.Environ(), "ANSIBLE_COLLECTIONS_PATH="+installed(t), "DIRECTOR_URL="+d.URL,
			"DIRECTOR_CA_FILE="+d.CAFile, "DIRECTOR_TOKEN="+c.token, "ANSIBLE_HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "Traceback") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

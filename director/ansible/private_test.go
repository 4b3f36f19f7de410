package ansible_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The run gets a private directory and an environment of its own, and no input.
func TestRunIsPrivate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.play(t, start+`
		out=${playbook%/tree/*}/seen; mkdir "$out"
		tr '\0' '\n' </proc/$$/environ | sort >"$out/environ"
		tr '\0' '\n' </proc/$$/cmdline >"$out/cmdline"
		readlink /proc/$$/fd/0 >"$out/stdin"
		ps -o pgid= -p $$ | tr -d ' ' >"$out/pgid"; echo $$ >"$out/pid"
		cd "$HOME"; find . -printf '%m %p\n' | sort -k2 >"$out/files"
		cat inventory/group_vars/all.yml ssh-key known_hosts extra-vars.json process.json >"$out/content"
		ok`)
	p.Inventory["group_vars/all.yml"] = []byte("a: 1\n")
	p.ExtraVars, p.SSHKey, p.KnownHosts = []byte(`{"a":"b"}`), []byte("KEY"), []byte("KNOWN")
	p.User, p.Limit, p.Tags, p.Check, p.Diff = "kaas", []string{"h1", "h2"}, []string{"install", "verify"}, true, true
	if _, err := b.Play(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	seen := func(name string) string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(b.tree), "seen", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	home := ""
	for line := range strings.Lines(seen("environ")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case name == "HOME":
			home = value
		case strings.HasPrefix(name, "ANSIBLE_"), slices.Contains([]string{
			"KAAS_EVENTS", "KAAS_LEASH", "KAAS_RUN", "PATH", "TMPDIR", "LANG", "LC_ALL", "PYTHONDONTWRITEBYTECODE",
		}, name):
		default:
			t.Errorf("in the environment: %s", line)
		}
	}
	if filepath.Dir(home) != b.state {
		t.Errorf("home %q", home)
	}
	if !strings.Contains(seen("environ"), "StrictHostKeyChecking=yes -o UserKnownHostsFile="+home+"/known_hosts ") {
		t.Errorf("ssh's arguments in %s", seen("environ"))
	}
	want := strings.ReplaceAll(strings.Join([]string{
		"--check", "--diff", "--extra-vars=@HOME/extra-vars.json", "--forks=2", "--inventory=HOME/inventory/hosts.ini",
		"--limit=h1,h2",
		"--tags=install,verify", "--private-key=HOME/ssh-key", "--user=kaas", filepath.Join(b.tree, "install/x.yml"),
		"",
	}, "\n"), "HOME", home)
	_, args, _ := strings.Cut(seen("cmdline"), "ansible-playbook\n")
	if diff := cmp.Diff(want, args); diff != "" {
		t.Error(diff)
	}
	if seen("stdin") != "/dev/null\n" || seen("pgid") != seen("pid") {
		t.Errorf("stdin %s group %s of %s", seen("stdin"), seen("pgid"), seen("pid"))
	}
	for line := range strings.Lines(seen("files")) {
		if mode := line[:3]; mode != "700" && mode != "600" {
			t.Errorf("open to others: %s", line)
		}
	}
	if content := seen(
		"content",
	); !strings.HasPrefix(content, "a: 1\nKEY\nKNOWN\n{\"a\":\"b\"}{\"pid\":"+strings.TrimSpace(seen("pid"))+",") {
		t.Errorf("content %s", content)
	}
	b.clean(t)
}

// A secret that a playbook forgot to hide does not leave the run, whole or in part.
func TestSecretsDoNotLeave(t *testing.T) {
	t.Parallel()
	const canary = "canary/4711 \\\"quoted\\\" & more"
	const line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw"
	b := setup(t)
	p := b.play(t, start+`
		secret='canary/4711 "quoted" & more'
		fill=$(printf 'x%.0s' {1..6130})
		quoted=${secret//\"/\\\"}
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"msg\":\"m `+
		`$quoted\",\"stdout\":\"$quoted\",\"stderr\":\"`+line+
		`\",\"command\":\"c $quoted\",\"task\":\"t $quoted\",\"path\":\"$quoted\",\"warnings\":[\"$quoted\"],`+
		`\"diff\":\"+$quoted\"}"
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"cut\":[\"msg\",\"stdout\"],`+
		`\"msg\":\"${fill}canary/4711\",\"stdout\":\"quoted & more$fill\"}"
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"msg\":\"in base64 $(printf %s "$secret" `+
		`| base64)\"}"
		echo "out $secret"; echo "ERROR! $secret" >&2
		echo "$fill$secret" >&2
		exit 4`)
	p.ExtraVars = []byte(
		`{"list":[{"canary":"` + canary + `"}],"key":"-----BEGIN KEY-----\n` + line + `\n-----END KEY-----\n"}`,
	)
	res, err := b.Play(t.Context(), p)
	if err == nil {
		t.Fatal("no error")
	}
	log, readErr := os.ReadFile(b.log)
	if readErr != nil {
		t.Fatal(readErr)
	}
	var all strings.Builder
	all.Write(log)
	all.WriteString(err.Error() + shown(err) + strings.Join(playError(t, err).Output, "\n"))
	for _, f := range res.Failures {
		all.WriteString(f.Msg + f.Command + f.Tail + f.Task)
	}
	for _, part := range []string{"canary/4711", "quoted", "& more", "u0026 more", "Y2FuYXJ5", line} {
		if i := strings.Index(all.String(), part); i >= 0 {
			t.Errorf("%q in ...%s", part, all.String()[max(i-200, 0):i+len(part)])
		}
	}
	if n := strings.Count(all.String(), "<secret>"); n < 10 {
		t.Errorf("only %d places were redacted", n)
	}
	b.clean(t)
}

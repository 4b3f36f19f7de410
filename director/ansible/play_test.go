package ansible_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
)

const (
	start       = `emit '{"type":"play_start","play":"P"}'; emit '{"type":"task_start","task":"T","role":"r"}'` + "\n"
	failedOn    = `emit '{"type":"host","status":"failed","task":"T","role":"r","host":"%","msg":"it broke on %"}'` + "\n"
	unreachable = `emit '{"type":"host","status":"unreachable","task":"T","role":"r","host":"%","msg":"no answer"}'` + "\n"
)

func on(host, event string) string { return strings.ReplaceAll(event, "%", host) }

func TestPlayTellsWhatHappened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.Play(t.Context(), b.play(t, start+`
		emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h1","seconds":0.5}'
		emit '{"type":"host","status":"changed","changed":true,"task":"T","role":"r","host":"h2","seconds":1.5,"path":"'"${playbook%/install/*}"'/roles/r/tasks/main.yml:3"}'
		emit '{"type":"task_start","task":"U"}'
		emit '{"type":"host","status":"failed","ignored":true,"task":"U","host":"h1","seconds":0.1}'
		echo "[WARNING]: something" >&2
		emit '{"type":"stats","stats":{"h1":{"ok":2,"ignored":1},"h2":{"ok":1,"changed":1}}}'
	`))
	if err != nil {
		t.Fatal(err)
	}
	want := ansible.Result{
		Stats:   map[string]ansible.HostStats{"h1": {OK: 2, Ignored: 1}, "h2": {OK: 1, Changed: 1}},
		Changed: 1,
		Slowest: []ansible.TaskTime{{Task: "T", Role: "r", Host: "h2", Seconds: 1.5}, {Task: "U", Host: "h1", Seconds: 0.1}},
	}
	got := res
	got.Started, got.Duration = time.Time{}, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if res.Started.IsZero() || res.Duration <= 0 {
		t.Errorf("started %v, took %v", res.Started, res.Duration)
	}
	logged := b.logged(t)
	if diff := cmp.Diff(b.events, logged); diff != "" {
		t.Errorf("the log and the events differ: %s", diff)
	}
	var types []string
	for i, e := range logged {
		if e.N != i+1 || e.Time.IsZero() {
			t.Errorf("event %d: number %d, time %v", i, e.N, e.Time)
		}
		if e.Type != ansible.Output { // its place among the others is a race
			types = append(types, string(e.Type))
		} else if e.Stream != "stderr" || e.Msg != "[WARNING]: something" {
			t.Errorf("output %+v", e)
		}
		if e.Host == "h2" && e.Path != "roles/r/tasks/main.yml:3" {
			t.Errorf("path %q", e.Path)
		}
	}
	if diff := cmp.Diff(strings.Fields("run_start play_start task_start host host task_start host stats run_end"), types); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(b.log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log: %v %v", info.Mode(), err)
	}
	b.clean(t)
}

// The exit codes are ambiguous, and here they also lie: what counts are the events.
func TestPlayClassifiesByEvents(t *testing.T) {
	t.Parallel()
	const broken = `echo 'ERROR! We could not read it' >&2
		echo >&2; echo "The error appears to be in '/x/y.yml': line 3, column 5" >&2` + "\n"
	tests := map[string]struct {
		script    string
		class     ansible.Class
		kind      director.Kind
		permanent bool
		person    bool
		msg       string // part of it
	}{
		"failed": {
			start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
			ansible.ClassFailed, director.KindInternal, false, false, "host h1: task 'r : T' failed: it broke on h1",
		},
		"failed, says the code of a parse error": {
			start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 4`,
			ansible.ClassFailed, director.KindInternal, false, false, "it broke",
		},
		"failed, says success": {
			start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 0`,
			ansible.ClassFailed, director.KindInternal, false, false, "it broke",
		},
		"failed and unreachable": {
			start + on("h1", failedOn) + on("h2", unreachable) +
				`emit '{"type":"stats","stats":{"h1":{"failed":1},"h2":{"unreachable":1}}}'; exit 4`,
			ansible.ClassFailed, director.KindInternal, false, false,
			"host h1: task 'r : T' failed: it broke on h1\nhost h2: task 'r : T' could not reach the machine: no answer",
		},
		"unreachable": {
			start + on("h2", unreachable) + `emit '{"type":"stats","stats":{"h2":{"unreachable":1}}}'; exit 4`,
			ansible.ClassUnreachable, director.KindUnavailable, false, false, "host h2: task 'r : T' could not reach the machine",
		},
		"equal failures on many hosts": {
			start + on("h1", failedOn) + on("h3", failedOn) + on("h2", failedOn) +
				`emit '{"type":"stats","stats":{"h1":{"failed":1},"h2":{"failed":1},"h3":{"failed":1}}}'; exit 2`,
			ansible.ClassFailed, director.KindInternal, false, false, "hosts h1..h3: task 'r : T' failed: it broke on h1",
		},
		"a failure whose event is lost": {
			start + `n=9; emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
			ansible.ClassFailed, director.KindInternal, false, false, "host h1: a task failed",
		},
		"a known cause that trying cannot help": {
			start + `emit '{"type":"host","status":"failed","task":"T","host":"h1","msg":"non-zero return code","stderr":"x\n[ERROR NumCPU]: the number of CPUs"}'
			emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
			ansible.ClassFailed, director.KindInternal, true, false,
			"host h1: task 'T' failed: [ERROR NumCPU]: the number of CPUs (kubeadm refuses the machine",
		},
		"a known cause for a person": {
			start + `emit '{"type":"host","status":"unreachable","task":"T","host":"h1","msg":"Host key verification failed."}'
			emit '{"type":"stats","stats":{"h1":{"unreachable":1}}}'; exit 4`,
			ansible.ClassUnreachable, director.KindUnavailable, false, true, "does not show the SSH host key",
		},
		"never started, with the code of an unreachable host": {
			broken + `exit 4`,
			ansible.ClassBroken, director.KindInternal, true, false,
			"could not be started: We could not read it. The error appears to be in '/x/y.yml': line 3",
		},
		"never started, with the code of a failed host": {
			`echo 'usage: ansible-playbook' >&2; exit 2`, ansible.ClassBroken, director.KindInternal, true, false, "usage: ansible-playbook",
		},
		"never started and silent": {
			`exit 250`, ansible.ClassBroken, director.KindInternal, true, false, "it printed no reason and exited with 250",
		},
		"stopped half way by an error in the playbook": {
			start + broken + `exit 4`, ansible.ClassBroken, director.KindInternal, true, false, "stopped before its end: We could not",
		},
		"killed by somebody else": {
			start + `kill -KILL $$`, ansible.ClassFailed, director.KindInternal, false, false, "ended by the signal killed",
		},
		"no events at all": {
			`exit 0`, ansible.ClassBroken, director.KindInternal, true, false, "the callback plugin",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.Play(t.Context(), b.play(t, tt.script))
			if err == nil {
				t.Fatal("no error")
			}
			_, person := ansible.Question(err)
			type verdict struct {
				Class             ansible.Class
				Kind              director.Kind
				Permanent, Person bool
			}
			want := verdict{tt.class, tt.kind, tt.permanent, tt.person}
			got := verdict{playError(t, err).Class, director.KindOf(err), ansible.Permanent(err), person}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n%v", diff, err)
			}
			if !strings.Contains(shown(err), tt.msg) {
				t.Errorf("message %q has no %q", shown(err), tt.msg)
			}
			if director.HintOf(err) == "" {
				t.Error("no hint")
			}
			if end := b.events[len(b.events)-1]; end.Type != ansible.RunEnd || end.Status != string(tt.class) || end.Msg != shown(err) {
				t.Errorf("last event %+v", end)
			}
			b.clean(t)
		})
	}
}

// A failure that a block rescued is not why its host stopped later.
func TestRescuedFailuresDoNotCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	rescued := strings.ReplaceAll(on("h1", failedOn), `"T"`, `"rescued"`)
	res, err := b.Play(t.Context(), b.play(t, start+rescued+on("h1", failedOn)+on("h2", failedOn)+`
		emit '{"type":"stats","stats":{"h1":{"failed":1,"rescued":1},"h2":{"rescued":1}}}'; exit 2`))
	if err == nil || len(res.Failures) != 1 || res.Failures[0].Host != "h1" || res.Failures[0].Task != "T" {
		t.Errorf("failures %+v, error %v", res.Failures, err)
	}
}

func TestPlayIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*ansible.Play)
		msg    string
	}{
		"no such playbook": {func(p *ansible.Play) { p.Playbook = "install/y.yml" }, "there is no playbook install/y.yml"},
		"playbook outside": {func(p *ansible.Play) { p.Playbook = "../x.yml" }, "not below the tree"},
		"relative tree":    {func(p *ansible.Play) { p.Tree = "playbooks" }, "not an absolute path"},
		"no inventory":     {func(p *ansible.Play) { p.Inventory = nil }, "no hosts.ini"},
		"inventory outside": {
			func(p *ansible.Play) { p.Inventory["../x"] = nil }, "not below the inventory",
		},
		"limit from a file": {func(p *ansible.Play) { p.Limit = []string{"@/etc/passwd"} }, "neither a host nor a tag"},
		"variables not an object": {
			func(p *ansible.Play) { p.ExtraVars = []byte(`password: "hunter2-hunter2"`) }, "not a JSON object",
		},
		"no ID": {func(p *ansible.Play) { p.ID = "" }, "no ID"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := b.play(t, start+"ok")
			tt.change(&p)
			_, err := b.Play(t.Context(), p)
			if director.KindOf(err) != director.KindInvalid || !ansible.Permanent(err) {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(shown(err), tt.msg) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("message %q", shown(err))
			}
			b.clean(t)
		})
	}
}

func TestStateDirIsChecked(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "state", "/var/lib/a b", "/x/%h", "/x/${HOME}", "/x:y"} {
		if _, err := ansible.New(ansible.Config{StateDir: dir}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%q: got %v", dir, err)
		}
	}
}

func TestAnsibleIsNotInstalled(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ansible.Config) { c.Binary = "no-such-ansible-playbook" })
	_, err := b.Play(t.Context(), b.play(t, start+"ok"))
	if !ansible.Permanent(err) || !strings.Contains(shown(err), "not installed") {
		t.Errorf("got %v", err)
	}
}

// A cancelled run takes its whole process group with it, and what left the group.
func TestCancelEndsEverything(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		grace  time.Duration
	}{
		"polite":   {`sleep 1000 & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait`, time.Minute},
		"stubborn": {`trap '' TERM; sleep 1000 & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait; wait`, 50 * time.Millisecond},
		"escaped from the group": {
			`setsid sleep 1000 >/dev/null 2>&1 </dev/null & emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"; wait`, time.Minute,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *ansible.Config) { c.Grace = tt.grace })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := b.play(t, start+tt.script)
			p.Limit = []string{"h1", "h2", "group*"}
			done := b.begin(ctx, p)
			pid := pidOf(t, b.await(t, said("pid")))
			cancel()
			err := (<-done).err
			ended(t, pid)
			e := playError(t, err)
			if e.Class != ansible.ClassCancelled || !errors.Is(err, context.Canceled) || ansible.Permanent(err) {
				t.Errorf("got %v", err)
			}
			if want := "the run was cancelled in task 'r : T', waiting for hosts h1, h2"; shown(err) != want {
				t.Errorf("got %q, want %q", shown(err), want)
			}
			b.clean(t)
		})
	}
}

// What a run leaves in the background ends with it, and does not keep it by holding its pipes.
func TestEndOfRunEndsWhatItLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Play(t.Context(), b.play(t, start+`
		sleep 1000 &
		emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"
		setsid sleep 1000 &
		emit "{\"type\":\"retry\",\"msg\":\"pid $!\"}"
		ok`))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ended(t, pidOf(t, b.await(t, said("pid"))))
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.play(t, start+`emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h1"}'
		emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h2"}'
		emit '{"type":"task_start","task":"U","role":"r"}'
		emit '{"type":"host","status":"ok","task":"U","role":"r","host":"h1"}'
		sleep 1000`)
	p.Timeout = 500 * time.Millisecond
	_, err := b.Play(t.Context(), p)
	e := playError(t, err)
	if e.Class != ansible.ClassTimeout || !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(e.Waiting, []string{"h2"}) {
		t.Errorf("got %v, waiting %v", err, e.Waiting)
	}
	if want := "the run was ended after 500ms in task 'r : U', waiting for host h2"; shown(err) != want {
		t.Errorf("got %q, want %q", shown(err), want)
	}
}

func TestOneRunPerID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := b.play(t, start+`emit '{"type":"retry","msg":"here"}'; sleep 1000`)
	done := b.begin(ctx, p)
	b.await(t, said("here"))
	if _, err := b.Play(t.Context(), p); director.KindOf(err) != director.KindConflict {
		t.Errorf("got %v", err)
	}
	cancel()
	<-done
}

// Runs wait for the director's forks, say so, and can be cancelled meanwhile.
func TestForksAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ansible.Config) { c.Forks = 3 })
	release := fifo(t)
	first := b.play(t, start+`emit '{"type":"retry","msg":"here"}'; read -r <`+release+`; ok`)
	first.Limit = []string{"a", "b"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	works := b.begin(t.Context(), first)
	b.await(t, said("here"))
	second := first
	second.ID, second.LogPath = "p1/s2/1", ""
	queued := b.begin(ctx, second)
	waits := b.await(t, func(e ansible.Event) bool { return e.Type == ansible.Waiting })
	if waits.Msg != "for 2 of the director's 3 forks" {
		t.Errorf("got %q", waits.Msg)
	}
	cancel()
	if o := <-queued; playError(t, o.err).Class != ansible.ClassCancelled {
		t.Errorf("got %v", o.err)
	}
	write(t, release, "go\n")
	if o := <-works; o.err != nil {
		t.Error(o.err)
	}
}

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
			"KAAS_EVENTS", "KAAS_RUN", "PATH", "TMPDIR", "LANG", "LC_ALL", "PYTHONDONTWRITEBYTECODE",
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
		"--check", "--diff", "--extra-vars=@HOME/extra-vars.json", "--forks=2", "--inventory=HOME/inventory/hosts.ini", "--limit=h1,h2",
		"--tags=install,verify", "--private-key=HOME/ssh-key", "--user=kaas", filepath.Join(b.tree, "install/x.yml"), "",
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
	if content := seen("content"); !strings.HasPrefix(content, "a: 1\nKEY\nKNOWN\n{\"a\":\"b\"}{\"pid\":"+strings.TrimSpace(seen("pid"))+",") {
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
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"msg\":\"m $quoted\",\"stdout\":\"$quoted\",\"stderr\":\"`+line+`\",\"command\":\"c $quoted\",\"task\":\"t $quoted\",\"path\":\"$quoted\",\"warnings\":[\"$quoted\"],\"diff\":\"+$quoted\"}"
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"cut\":[\"msg\",\"stdout\"],\"msg\":\"${fill}canary/4711\",\"stdout\":\"quoted & more$fill\"}"
		emit "{\"type\":\"host\",\"host\":\"h1\",\"status\":\"failed\",\"msg\":\"in base64 $(printf %s "$secret" | base64)\"}"
		echo "out $secret"; echo "ERROR! $secret" >&2
		echo "$fill$secret" >&2
		exit 4`)
	p.ExtraVars = []byte(`{"list":[{"canary":"` + canary + `"}],"key":"-----BEGIN KEY-----\n` + line + `\n-----END KEY-----\n"}`)
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

// Whatever is in the events file, its reader goes on with the next line.
func TestEventsThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.Play(t.Context(), b.play(t, start+`
		echo 'no json' >>"$KAAS_EVENTS"; echo >>"$KAAS_EVENTS"; echo '{"n":"x"}' >>"$KAAS_EVENTS"; echo '{"n":3}' >>"$KAAS_EVENTS"
		head -c 2000000 /dev/zero | tr '\0' x >>"$KAAS_EVENTS"; echo >>"$KAAS_EVENTS"
		n=7; emit '{"type":"retry","msg":"after a gap"}'
		emit '{"type":"of_the_future","msg":"unknown"}'
		printf '{"n":10,"type":"ret' >>"$KAAS_EVENTS"; printf 'ry","msg":"in two parts"}\n' >>"$KAAS_EVENTS"
		head -c 100000 /dev/zero | tr '\0' y; echo
		n=10; ok; printf '{"n":12,"type":"retry","msg":"torn' >>"$KAAS_EVENTS"`))
	if err != nil || res.Lost != 5 {
		t.Errorf("lost %d, error %v", res.Lost, err)
	}
	for _, want := range []string{"after a gap", "unknown", "in two parts", "yyyy"} {
		if !slices.ContainsFunc(b.events, said(want)) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, e := range b.logged(t) {
		if len(e.Msg) > 4096 {
			t.Errorf("a message of %d bytes", len(e.Msg))
		}
	}
}

// A full disk may swallow the last events; the run has succeeded nevertheless.
func TestLastEventsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if res, err := b.Play(t.Context(), b.play(t, start)); err != nil || res.Lost != 1 {
		t.Errorf("lost %d, error %v", res.Lost, err)
	}
}

// A listener that hangs does not keep ansible-playbook from writing.
func TestSlowListener(t *testing.T) {
	t.Parallel()
	b := setup(t)
	done := fifo(t)
	p := b.play(t, start+`yes 'a line' | head -n 100000; yes 'a line' | head -n 100000 >&2
		seq 1000 | sed 's/.*/{"type":"retry","msg":"&"}/' >>"$KAAS_EVENTS"; ok; echo done >`+done)
	var count int
	p.OnEvent = func(e ansible.Event) {
		if e.Type == ansible.PlayStart {
			if _, err := os.ReadFile(done); err != nil { // until the run has written all it has
				t.Error(err)
			}
		}
		count++
	}
	if _, err := b.Play(t.Context(), p); err != nil || count < 2999 {
		t.Errorf("%d events, error %v", count, err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.Play(t.Context(), b.play(t, start+`seq 5000; ok`)); err != nil {
		t.Fatal(err)
	}
	if n := len(b.logged(t)); n > 2010 {
		t.Errorf("%d lines", n)
	}
}

// A log that cannot be written does not fail the run; one that cannot even be opened does, before anything starts.
func TestLogOnFullDisk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.play(t, start+"ok")
	p.LogPath = "/dev/full"
	if _, err := b.Play(t.Context(), p); err != nil {
		t.Error(err)
	}
	p.LogPath = filepath.Join(b.tree, "install", "x.yml", "log")
	if _, err := b.Play(t.Context(), p); err == nil || ansible.Permanent(err) {
		t.Errorf("got %v", err)
	}
}

// The runs of a director that was killed are ended by the next one, and their secrets removed.
func TestEndSurvivors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dir := filepath.Dir(b.tree)
	write(t, filepath.Join(b.tree, "install", "x.yml"), start+`
		sleep 1000 & one=$!
		setsid sleep 1000 & two=$!
		emit "{\"type\":\"task_start\",\"task\":\"$$ $one $two\"}"; wait`)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dead := osexec.Command(exe)
	dead.Env = append(os.Environ(), "KAAS_TEST_DIRECTOR="+dir)
	out, err := dead.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	var said []byte
	for !bytes.Contains(said, []byte("\n")) || bytes.HasPrefix(said, []byte("T\n")) && bytes.Count(said, []byte("\n")) < 2 {
		buf := make([]byte, 100)
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the director said %q: %v", said, err)
		}
		said = append(said, buf[:n]...)
	}
	// While it lives, nobody touches its runs.
	if got, err := b.EndSurvivors(t.Context()); err != nil || len(got) > 0 {
		t.Fatalf("ended %v, %v", got, err)
	}
	if err := dead.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dead.Wait()
	left, err := filepath.Glob(filepath.Join(b.state, "*", "extra-vars.json"))
	if err != nil || len(left) != 1 {
		t.Fatalf("no run was left behind: %v %v", left, err)
	}

	got, err := b.EndSurvivors(t.Context())
	if err != nil || !slices.Equal(got, []string{"p9/s9/1"}) {
		t.Errorf("ended %v, %v", got, err)
	}
	for _, f := range strings.Fields(strings.TrimPrefix(string(said), "T\n")) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ended(t, pid)
	}
	b.clean(t)
	if got, err := b.EndSurvivors(t.Context()); err != nil || len(got) > 0 {
		t.Errorf("the second time: %v, %v", got, err)
	}
}

// A process that got the id of a dead one, and its group, are not touched.
func TestEndSurvivorsSparesReusedIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bystander := osexec.Command("sh", "-c", "set -m; sleep 1000 & echo $!; wait")
	out, err := bystander.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 20)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(buf[:n]))
	defer func() {
		p, err := strconv.Atoi(pid)
		if err == nil {
			err = killed(p)
		}
		if err != nil {
			t.Errorf("the bystander: %v", err)
		}
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	id := `{"pid":` + pid + `,"start":1,"boot_id":"` + strings.TrimSpace(string(boot)) + `"}`
	run := filepath.Join(b.state, "play-1")
	write(t, filepath.Join(run, "owner.json"), `{"id":"p/s/1","director":`+id+`,"control":"`+run+`/c"}`)
	write(t, filepath.Join(run, "process.json"), id)
	write(t, filepath.Join(b.state, "play-2", "tmp", "x"), "died before it could say who it was")
	write(t, filepath.Join(b.state, "other"), "not a run")
	got, err := b.EndSurvivors(t.Context())
	if err != nil || len(got) > 0 {
		t.Errorf("ended %v, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(b.state, "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "other" {
		t.Errorf("left %v, %v", left, err)
	}
}

// killed kills a process that must be there.
func killed(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// BenchmarkEvents measures how many events a second are taken in, logged and handed on.
func BenchmarkEvents(b *testing.B) {
	const events = 50_000
	var text strings.Builder
	for i := range events {
		text.WriteString(`{"n":` + strconv.Itoa(i+2) + `,"type":"host","time":"2026-01-01T00:00:00Z","host":"node-` + strconv.Itoa(i%5000) +
			`","status":"changed","changed":true,"task":"Write the configuration","role":"kubelet","action":"ansible.builtin.template",` +
			`"path":"/x/roles/kubelet/tasks/main.yml:10","task_id":"0242ac11-0002-dc4b-9e06-000000000012","seconds":1.234}` + "\n")
	}
	benchmark(b, fakeIn(b, b.TempDir()), map[string]string{
		"events": text.String(),
		"x.yml":  `emit '{"type":"play_start","play":"P"}'; cat "${playbook%/*}/events" >>"$KAAS_EVENTS"; n=` + strconv.Itoa(events+1) + "; ok\n",
	}, `{"a":"a-secret-of-some-length"}`)
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

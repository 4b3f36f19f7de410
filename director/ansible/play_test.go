package ansible_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
)

func TestPlayTellsWhatHappened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res, err := b.Play(t.Context(), b.play(t, start+`
		emit '{"type":"host","status":"ok","task":"T","role":"r","host":"h1","seconds":0.5}'
		emit '{"type":"host","status":"changed","changed":true,"task":"T","role":"r","host":"h2","seconds":1.5,`+
		`"path":"'"${playbook%/install/*}"'/roles/r/tasks/main.yml:3"}'
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
		Slowest: []ansible.TaskTime{
			{Task: "T", Role: "r", Host: "h2", Seconds: 1.5}, {Task: "U", Host: "h1", Seconds: 0.1},
		},
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
	if diff := cmp.Diff(
		strings.Fields("run_start play_start task_start host host task_start host stats run_end"), types,
	); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(b.log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log: %v %v", info.Mode(), err)
	}
	b.clean(t)
}

// brokenPlaybook is what a run prints that cannot read its playbook.
const brokenPlaybook = `echo 'ERROR! We could not read it' >&2
	echo >&2; echo "The error appears to be in '/x/y.yml': line 3, column 5" >&2` + "\n"

// endings are ends of a run, and how Play classifies them.
var endings = map[string]struct {
	script    string
	class     ansible.Class
	kind      director.Kind
	permanent bool
	person    bool
	msg       string // part of it
}{
	"failed": {
		script: start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
		class:  ansible.ClassFailed, kind: director.KindInternal,
		msg: "host h1: task 'r : T' failed: it broke on h1",
	},
	"failed, says the code of a parse error": {
		script: start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 4`,
		class:  ansible.ClassFailed, kind: director.KindInternal,
		msg: "it broke",
	},
	"failed, says success": {
		script: start + on("h1", failedOn) + `emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 0`,
		class:  ansible.ClassFailed, kind: director.KindInternal,
		msg: "it broke",
	},
	"failed and unreachable": {
		script: start + on("h1", failedOn) + on("h2", unreachable) +
			`emit '{"type":"stats","stats":{"h1":{"failed":1},"h2":{"unreachable":1}}}'; exit 4`,
		class: ansible.ClassFailed, kind: director.KindInternal,
		msg: "host h1: task 'r : T' failed: it broke on h1\nhost h2: task 'r : T' could not reach the machine: no " +
			"answer",
	},
	"unreachable": {
		script: start + on("h2", unreachable) + `emit '{"type":"stats","stats":{"h2":{"unreachable":1}}}'; exit 4`,
		class:  ansible.ClassUnreachable, kind: director.KindUnavailable,
		msg: "host h2: task 'r : T' could not reach the machine",
	},
	"equal failures on many hosts": {
		script: start + on("h1", failedOn) + on("h3", failedOn) + on("h2", failedOn) +
			`emit '{"type":"stats","stats":{"h1":{"failed":1},"h2":{"failed":1},"h3":{"failed":1}}}'; exit 2`,
		class: ansible.ClassFailed, kind: director.KindInternal,
		msg: "hosts h1..h3: task 'r : T' failed: it broke on h1",
	},
	"a failure whose event is lost": {
		script: start + `n=9; emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
		class:  ansible.ClassFailed, kind: director.KindInternal,
		msg: "host h1: a task failed",
	},
	"a known cause that trying cannot help": {
		script: start +
			`emit '{"type":"host","status":"failed","task":"T","host":"h1","msg":"non-zero return ` +
			`code","stderr":"x\n[ERROR NumCPU]: the number of CPUs"}'
		emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
		class: ansible.ClassFailed, kind: director.KindInternal, permanent: true,
		msg: "host h1: task 'T' failed: [ERROR NumCPU]: the number of CPUs (kubeadm refuses the machine",
	},
	"a known cause for a person": {
		script: start +
			`emit '{"type":"host","status":"unreachable","task":"T","host":"h1","msg":"Host key verification failed."}'
		emit '{"type":"stats","stats":{"h1":{"unreachable":1}}}'; exit 4`,
		class: ansible.ClassUnreachable, kind: director.KindUnavailable, person: true,
		msg: "does not show the SSH host key",
	},
	"never started, with the code of an unreachable host": {
		script: brokenPlaybook + `exit 4`,
		class:  ansible.ClassBroken, kind: director.KindInternal, permanent: true,
		msg: "could not be started: We could not read it. The error appears to be in '/x/y.yml': line 3",
	},
	"never started, with the code of a failed host": {
		script: `echo 'usage: ansible-playbook' >&2; exit 2`,
		class:  ansible.ClassBroken, kind: director.KindInternal, permanent: true,
		msg: "usage: ansible-playbook",
	},
	"never started and silent": {
		script: `exit 250`,
		class:  ansible.ClassBroken, kind: director.KindInternal, permanent: true,
		msg: "it printed no reason and exited with 250",
	},
	"stopped half way by an error in the playbook": {
		script: start + brokenPlaybook + `exit 4`,
		class:  ansible.ClassBroken, kind: director.KindInternal, permanent: true,
		msg: "stopped before its end: We could not",
	},
	"killed by somebody else": {
		script: start + `kill -KILL $$`,
		class:  ansible.ClassInterrupted, kind: director.KindUnavailable,
		msg: "ended by the signal killed",
	},
	"killed after its connections were": {
		script: start + on("h1", unreachable) + on("h2", failedOn) + `kill -KILL $$`,
		class:  ansible.ClassInterrupted, kind: director.KindUnavailable,
		msg: "ended by the signal killed",
	},
	"one of its workers killed": {
		script: start + `echo 'ERROR! A worker was found in a dead state' >&2; exit 250`,
		class:  ansible.ClassInterrupted, kind: director.KindUnavailable,
		msg: "a worker of ansible-playbook was ended",
	},
	"the director was silent, and its workers ended first": {
		script: start + on("h1", failedOn) + `echo 'The director was silent for 5 s: the run ends itself.' >&2
		emit '{"type":"stats","stats":{"h1":{"failed":1}}}'; exit 2`,
		class: ansible.ClassInterrupted, kind: director.KindUnavailable,
		msg: "The director was silent for 5 s",
	},
	"no events at all": {
		script: `exit 0`,
		class:  ansible.ClassBroken, kind: director.KindInternal, permanent: true,
		msg: "the callback plugin",
	},
}

// The exit codes are ambiguous, and here they also lie: what counts are the events.
func TestPlayClassifiesByEvents(t *testing.T) {
	t.Parallel()
	for name, tt := range endings {
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
			end := b.events[len(b.events)-1]
			if end.Type != ansible.RunEnd || end.Status != string(tt.class) || end.Msg != shown(err) {
				t.Errorf("last event %+v", end)
			}
			b.clean(t)
		})
	}
}

// A run that ends because the director's disk is full is known by that, so that its plan can wait for space.
func TestFullDiskIsTold(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"before the play": `echo 'ERROR! [Errno 28] No space left on device' >&2; exit 1`,
		"in the play":     start + `echo "OSError: [Errno 28] No space left on device: '/tmp/x'" >&2; exit 250`,
		"by a signal":     start + `echo "OSError: [Errno 28] No space left on device" >&2; kill -KILL $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if _, err := b.Play(t.Context(), b.play(t, script)); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v, want an error that is ENOSPC", err)
			}
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
		"no such playbook": {
			func(p *ansible.Play) { p.Playbook = "install/y.yml" }, "there is no playbook install/y.yml",
		},
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

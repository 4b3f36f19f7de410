package ansible_test

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
)

const canary = "canary-0815-of-the-run"

// need makes sure that the Debian packages are installed.
func need(t testing.TB, packages ...string) {
	t.Helper()
	if out, err := osexec.Command("../../test/lab/need.sh", packages...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// setupReal is setup with the real ansible-playbook and our callback plugin.
func setupReal(t *testing.T, change ...func(*ansible.Config)) *bundle {
	t.Helper()
	need(t, "ansible-core")
	b := setup(t, append(change, func(c *ansible.Config) { c.Binary = "ansible-playbook" })...)
	write(t, filepath.Join(b.tree, pluginPath), plugin(t))
	return b
}

// pluginPath is where a tree has our callback plugin.
const pluginPath = "callback_plugins/director_events.py"

func plugin(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../playbooks", pluginPath))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// local returns a play on this machine without SSH.
func (b *bundle) local(t *testing.T, playbook string) ansible.Play {
	t.Helper()
	p := b.play(t, playbook)
	p.Inventory = map[string][]byte{"hosts.ini": []byte(
		"[all]\nh1\nh2\n[all:vars]\nansible_connection=local\nansible_python_interpreter=/usr/bin/python3\n",
	)}
	p.ExtraVars = []byte(`{"password":"` + canary + `"}`)
	return p
}

func (b *bundle) find(task, host string, typ ansible.EventType) ansible.Event {
	for _, e := range b.events {
		if e.Task == task && e.Host == host && e.Type == typ {
			return e
		}
	}
	return ansible.Event{}
}

// eventTasks end in every way in which a task can end.
const eventTasks = `
- name: Print much
  ansible.builtin.command: seq 3000
  changed_when: false
- name: Skip
  ansible.builtin.command: "true"
  when: false
- name: Place
  ansible.builtin.copy:
    content: "new\n"
    dest: "{{ place }}-{{ inventory_hostname }}"
    mode: "0600"
  notify: Handle
- name: Loop
  ansible.builtin.command: "test {{ item }} = a"
  changed_when: item == 'a'
  ignore_errors: true
  loop: [a, b]
- name: Hide
  ansible.builtin.command: "echo {{ password }}"
  no_log: true
  changed_when: false
- name: Hide a failure
  ansible.builtin.command: "false {{ password }}"
  no_log: true
  ignore_errors: true
- name: Hide items
  ansible.builtin.command: "test {{ item }} = x"
  no_log: true
  changed_when: false
  ignore_errors: true
  loop: ["{{ password }}"]
- name: Forget to hide {{ password }}
  ansible.builtin.command: "sh -c 'echo {{ password }}; echo {{ password }} >&2; echo {{ password | b64encode }}'"
  changed_when: true
- name: Try again
  ansible.builtin.command: "false"
  register: demo
  until: demo is succeeded
  retries: 1
  delay: 0
  ignore_errors: true
- name: Block
  when: inventory_hostname == 'h1'
  block:
    - name: Fail and be rescued
      ansible.builtin.fail:
        msg: rescue me
  rescue:
    - name: Rescue
      ansible.builtin.debug:
        msg: rescued
- name: Fail
  ansible.builtin.command: "sh -c 'echo the reason >&2; exit 3'"
  when: inventory_hostname == 'h2'
`

const eventHandlers = `
- name: Handle
  ansible.builtin.debug:
    msg: handled
`

func TestRealEvents(t *testing.T) {
	t.Parallel()
	b := setupReal(t)
	write(t, filepath.Join(b.tree, "roles", "demo", "tasks", "main.yml"), eventTasks)
	write(t, filepath.Join(b.tree, "roles", "demo", "handlers", "main.yml"), eventHandlers)
	place := filepath.Join(t.TempDir(), "placed")
	p := b.local(t, `
- name: The play
  hosts: all
  gather_facts: false
  vars: {place: `+place+`}
  roles: [demo]
`)
	res, err := b.Play(t.Context(), p)
	wantEventResult(t, res, err)
	wantEventsOfTasks(t, b)
	wantOrderOfEvents(t, b)
	noCanary(t, b, err, res)
	b.clean(t)
}

func wantEventResult(t *testing.T, res ansible.Result, err error) {
	t.Helper()
	const message = "host h2: task 'demo : Fail' failed: the reason\n  command: sh -c echo the reason >&2; exit 3"
	if err == nil || shown(err) != message {
		t.Errorf("got %v, want %q", err, message)
	}
	e := playError(t, err)
	if e.Class != ansible.ClassFailed || ansible.Permanent(err) || len(e.Groups) != 1 {
		t.Errorf("got %+v", e)
	}
	if len(res.Failures) != 1 {
		t.Fatalf("failures %+v", res.Failures)
	}
	if f := res.Failures[0]; f.Host != "h2" || f.Command != "sh -c 'echo the reason >&2; exit 3'" &&
		f.Command != "sh -c echo the reason >&2; exit 3" || f.Tail != "the reason" ||
		!strings.HasPrefix(f.Path, "roles/demo/tasks/main.yml:") {
		t.Errorf("failures %+v", res.Failures)
	}
	want := map[string]ansible.HostStats{
		"h1": {OK: 10, Changed: 5, Skipped: 2, Rescued: 1, Ignored: 4},
		"h2": {OK: 8, Changed: 5, Failed: 1, Skipped: 2, Ignored: 4},
	}
	if diff := cmp.Diff(want, res.Stats); diff != "" {
		t.Error(diff)
	}
	if res.Changed != 10 || res.ExitCode != 2 || res.Lost != 0 || len(res.Slowest) < 9 {
		t.Errorf("result %+v", res)
	}
}

func wantEventsOfTasks(t *testing.T, b *bundle) {
	t.Helper()
	much := b.find("Print much", "h1", ansible.HostResult)
	if much.Status != "ok" || much.Role != "demo" || much.Seconds <= 0 || len(much.Stdout) > 4096 ||
		len(much.Stdout) < 3000 ||
		!strings.HasSuffix(
			much.Stdout, "\n2999\n3000",
		) || !slices.Contains(much.Cut, "stdout") || much.RC == nil || *much.RC != 0 {
		t.Errorf("got %+v", much)
	}
	if e := b.find("Skip", "h1", ansible.HostResult); e.Status != "skipped" {
		t.Errorf("got %+v", e)
	}
	if e := b.find("Place", "h1", ansible.HostResult); e.Status != "changed" || !e.Changed {
		t.Errorf("got %+v", e)
	}
	loop := b.find("Loop", "h1", ansible.HostResult)
	if diff := cmp.Diff(
		&ansible.Items{Changed: 1, Failed: 1}, loop.Items,
	); diff != "" || loop.Status != "failed" || !loop.Ignored ||
		!strings.HasPrefix(loop.Msg, "b: non-zero return code") {
		t.Errorf("got %+v %s", loop, diff)
	}
	for _, task := range []string{"Hide", "Hide a failure", "Hide items"} {
		if e := b.find(
			task, "h2", ansible.HostResult,
		); e.Msg != "hidden (no_log)" || e.Stdout+e.Stderr+e.Command != "" {
			t.Errorf("got %+v", e)
		}
	}
	if e := b.find("Try again", "h1", ansible.Retry); e.Attempts != 1 || e.Retries < 1 {
		t.Errorf("got %+v", e)
	}
}

func wantOrderOfEvents(t *testing.T, b *bundle) {
	t.Helper()
	var types []string
	for _, e := range b.events {
		if s := string(e.Type); len(types) == 0 || types[len(types)-1] != s {
			types = append(types, s)
		}
	}
	if got := strings.Join(types[:4], " "); got != "run_start playbook_start play_start task_start" {
		t.Errorf("begins with %s", got)
	}
	if got := strings.Join(types[len(types)-2:], " "); got != "stats run_end" {
		t.Errorf("ends with %s", got)
	}
}

// noCanary fails the test if the secret is in what a run leaves: its log, events, result and error.
func noCanary(t *testing.T, b *bundle, err error, res ansible.Result) {
	t.Helper()
	log, readErr := os.ReadFile(b.log)
	if readErr != nil {
		t.Fatal(readErr)
	}
	all := string(log) + fmt.Sprintf("%+v %+v %v", b.events, res, err)
	if e, ok := errors.AsType[*ansible.PlayError](err); ok {
		all += fmt.Sprintf("%+v", *e)
	}
	for _, secret := range []string{canary, "Y2FuYXJ5LTA4MTUtb2YtdGhlLXJ1"} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("the secret is in ...%s", all[max(i-300, 0):min(i+50, len(all))])
		}
	}
}

func TestRealCheckMode(t *testing.T) {
	t.Parallel()
	b := setupReal(t)
	place := filepath.Join(t.TempDir(), "placed")
	write(t, place, "old\n")
	p := b.local(t, `
- name: The play
  hosts: h1
  gather_facts: false
  tasks:
    - name: Place
      ansible.builtin.copy: {content: "new {{ password }}\n", dest: `+place+`, mode: "0600"}
    - name: Place much
      ansible.builtin.copy: {content: "{{ range(9000) | join('\n') }}\n", dest: `+place+`, mode: "0600"}
    - name: Place a secret
      ansible.builtin.copy: {content: "{{ password }}\n", dest: `+place+`, mode: "0600"}
      no_log: true
  tags: [install]
- name: Not this one
  hosts: all
  gather_facts: false
  tasks:
    - name: Fail
      ansible.builtin.fail:
`)
	p.Check, p.Diff, p.Tags, p.Limit = true, true, []string{"install"}, []string{"h1"}
	res, err := b.Play(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]ansible.HostStats{"h1": {OK: 3, Changed: 3}}, res.Stats); diff != "" {
		t.Error(diff)
	}
	if e := b.find("Place", "h1", ansible.Diff); !strings.Contains(e.Diff, "-old\n+new <secret>") {
		t.Errorf("got %+v", e)
	}
	if e := b.find(
		"Place much", "h1", ansible.Diff,
	); len(e.Diff) > 4096 || len(e.Diff) < 3000 || !slices.Contains(e.Cut, "diff") {
		t.Errorf("got %+v", e)
	}
	if e := b.find("Place a secret", "h1", ansible.Diff); e.Type != "" {
		t.Errorf("got %+v", e)
	}
	if data, err := os.ReadFile(place); string(data) != "old\n" {
		t.Errorf("check mode changed the file: %q %v", data, err)
	}
	noCanary(t, b, err, res)
}

// Plays that take every core do not keep the director from answering.
func TestRealPlaysAreNice(t *testing.T) {
	t.Parallel()
	b := setupReal(t)
	place := filepath.Join(t.TempDir(), "niceness")
	p := b.local(t, `
- name: The play
  hosts: h1
  gather_facts: false
  tasks:
    - name: Tell
      ansible.builtin.shell: nice > `+place+`
      changed_when: true
`)
	if _, err := b.Play(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(place)
	if got, want := strings.TrimSpace(string(told)), strconv.Itoa(min(20-own+5, 19)); err != nil || got != want {
		t.Errorf("got %q, %v; want %s", got, err, want)
	}
}

// What never starts is told apart from what fails, although the exit codes are the same.
func TestRealNeverStarts(t *testing.T) {
	t.Parallel()
	const good = "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.debug: {msg: x}\n"
	tests := map[string]struct {
		playbook string
		change   func(*ansible.Play)
		msg      string
	}{
		"not YAML": {
			"- hosts: all\n  tasks: [\n", nil,
			"Syntax Error while loading YAML: did not find expected node content. The error appears to be in",
		},
		"no such module": {
			"- hosts: all\n  tasks:\n    - no.such.module: {}\n", nil,
			"couldn't resolve module/action 'no.such.module'",
		},
		"no such role":   {"- hosts: all\n  roles: [nowhere]\n", nil, "the role 'nowhere' was not found"},
		"no such import": {"- ansible.builtin.import_playbook: nowhere.yml\n", nil, "could not be started"},
		"bad inventory": {
			good, func(p *ansible.Play) { p.Inventory["hosts.ini"] = []byte("[all\nh1\n") }, "inventory",
		},
		"limit to nobody": {good, func(p *ansible.Play) { p.Limit = []string{"nobody"} }, "no hosts to target"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupReal(t)
			p := b.local(t, tt.playbook)
			if tt.change != nil {
				tt.change(&p)
			}
			res, err := b.Play(t.Context(), p)
			if !ansible.Permanent(err) || playError(t, err).Class != ansible.ClassBroken ||
				director.KindOf(err) != director.KindInternal {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(shown(err), tt.msg) {
				t.Errorf("message %q", shown(err))
			}
			noCanary(t, b, err, res)
			b.clean(t)
		})
	}
}

// BenchmarkEmptyPlay measures what a run costs besides its tasks.
func BenchmarkEmptyPlay(b *testing.B) {
	need(b, "ansible-core")
	benchmark(b, "ansible-playbook", map[string]string{
		pluginPath: plugin(b), "x.yml": "- hosts: all\n  gather_facts: false\n  tasks: []\n",
	}, "")
}

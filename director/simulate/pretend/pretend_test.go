package pretend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/simulate/pretend"
)

// The test binary is the stand-in when it is called by its name.
func TestMain(m *testing.M) {
	pretend.StandIn()
	os.Exit(m.Run())
}

const hosts = `# two masters, two workers
[master]
m1 ansible_host=10.0.0.1
m2 ansible_host=10.0.0.2

[worker]
w1 ansible_host=10.0.0.3
w2

[cluster:children]
master
worker
`

// play runs the stand-in as the director runs ansible-playbook.
func play(t *testing.T, s pretend.Settings, change func(*ansible.Play)) (ansible.Result, []ansible.Event, error) {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, pretend.SettingsFile), string(text))
	write(
		t, filepath.Join(dir, "tree", "site.yml"), "---\n- name: All of it\n  ansible.builtin.import_playbook: x.yml\n",
	)
	write(
		t, filepath.Join(dir, "tree", "x.yml"),
		"---\n- name: Prepare\n  hosts: cluster\n  tasks: []\n- name: Join\n  hosts: worker:!w2\n- name: Crown\n  "+
			"hosts: master[0]\n",
	)
	stand := filepath.Join(dir, pretend.Name)
	if err := os.Symlink(program, stand); err != nil {
		t.Fatal(err)
	}
	r, err := ansible.New(ansible.Config{Binary: stand, StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	var events []ansible.Event
	p := ansible.Play{
		ID: "p/s/1", Tree: filepath.Join(
			dir, "tree",
		), Playbook: "x.yml", Inventory: map[string][]byte{"hosts.ini": []byte(hosts)},
		ExtraVars: []byte(`{"password": "a long secret"}`), SSHKey: []byte("key"),
		OnEvent: func(e ansible.Event) { events = append(events, e) },
	}
	if change != nil {
		change(&p)
	}
	res, err := r.Play(t.Context(), p)
	return res, events, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// told renders what matters of the events.
func told(events []ansible.Event) []string {
	var out []string
	for _, e := range events {
		switch e.Type {
		case ansible.PlayStart:
			out = append(out, fmt.Sprintf("play %s check=%t", e.Play, e.Check))
		case ansible.HostResult:
			out = append(out, fmt.Sprintf("%s %s %s", e.Task, e.Host, e.Status))
		case ansible.Lost, ansible.NoHosts, ansible.Output:
			out = append(out, string(e.Type)+" "+e.Msg)
		}
	}
	return out
}

func TestTheDirectorReadsIt(t *testing.T) {
	t.Parallel()
	res, events, err := play(t, pretend.Settings{
		Tasks: 1, Changed: 100,
	}, func(p *ansible.Play) { p.Check, p.Playbook = true, "site.yml" })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"play Prepare check=true",
		"Pretend task 1 of 1 m1 changed", "Pretend task 1 of 1 m2 changed", "Pretend task 1 of 1 w1 changed",
		"Pretend task 1 of 1 w2 changed",
		"play Join check=true", "Pretend task 1 of 1 w1 changed",
		"play Crown check=true", "Pretend task 1 of 1 m1 changed",
	}
	if diff := cmp.Diff(want, told(events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := res.Stats["w1"]; s.OK != 2 || s.Changed != 2 || res.Changed != 6 {
		t.Errorf("stats %+v", res)
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	_, events, err := play(t, pretend.Settings{Tasks: 1}, func(p *ansible.Play) { p.Limit = []string{"w2"} })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"play Prepare check=false", "Pretend task 1 of 1 w2 ok",
		"play Join check=false", "no_hosts the play matches no host",
		"play Crown check=false", "no_hosts the play matches no host",
	}
	if diff := cmp.Diff(want, told(events)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for outcome, class := range map[string]ansible.Class{
		"failed": ansible.ClassFailed, "unreachable": ansible.ClassUnreachable,
	} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			faults := []pretend.Fault{
				{Hosts: "w*", Playbook: "x", Outcome: outcome, Percent: 100},
				{Hosts: "m*", Playbook: "other", Outcome: "failed", Percent: 100},
			}
			res, _, err := play(t, pretend.Settings{Tasks: 2, Faults: faults}, nil)
			pe, ok := errors.AsType[*ansible.PlayError](err)
			if !ok || pe.Class != class {
				t.Fatalf("got %v, want %s", err, class)
			}
			if len(res.Failures) != 2 || !strings.Contains(res.Failures[0].Msg, "pretended") {
				t.Errorf("failures %+v", res.Failures)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	var file string
	done := make(chan error)
	go func() {
		_, _, err := play(t, pretend.Settings{Tasks: 1, Held: []string{"x"}}, func(p *ansible.Play) {
			file = filepath.Join(filepath.Dir(p.Tree), pretend.SettingsFile)
			p.OnEvent = func(e ansible.Event) {
				if e.Type == ansible.PlayStart && e.Play == "Prepare" {
					close(held)
				}
			}
		})
		done <- err
	}()
	<-held
	select {
	case err := <-done:
		t.Fatalf("a play that is held ended: %v", err)
	default:
	}
	write(t, file+".new", `{"tasks": 1}`)
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

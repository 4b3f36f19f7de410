package ansible_test

import (
	"bytes"
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

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
	for !bytes.Contains(said, []byte("\n")) ||
		bytes.HasPrefix(said, []byte("T\n")) && bytes.Count(said, []byte("\n")) < 2 {
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

// A run ends itself, with what it has started, when its director is gone, or silent for longer than its peers wait.
func TestRunEndsItself(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"gone": syscall.SIGKILL, "silent": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupReal(t)
			dir := filepath.Dir(b.tree)
			fifo := filepath.Join(dir, "ids")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(b.tree, "install", "x.yml"), `
- hosts: all
  gather_facts: false
  tasks:
    - name: Work for long
      ansible.builtin.shell: setsid sleep 1000 & echo $PPID $! > `+fifo+`; sleep 1000
`)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			dead := osexec.Command(exe)
			dead.Env = append(os.Environ(), "KAAS_TEST_DIRECTOR="+dir, "KAAS_TEST_REAL=1")
			if err := dead.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = dead.Process.Kill()
				_ = dead.Wait()
			}()
			ids, err := os.ReadFile(fifo) // waits for the task
			if err != nil {
				t.Fatal(err)
			}
			var leader struct{ PID int }
			files, _ := filepath.Glob(filepath.Join(b.state, "*", "process.json"))
			if len(files) != 1 {
				t.Fatalf("runs: %v", files)
			}
			raw, err := os.ReadFile(files[0])
			if err == nil {
				err = json.Unmarshal(raw, &leader)
			}
			if err != nil || leader.PID == 0 {
				t.Fatal(leader, err)
			}
			if err := dead.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			ended(t, leader.PID) // a process that its stopped parent has not reaped has ended too
			for _, f := range strings.Fields(string(ids)) {
				pid, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				ended(t, pid)
			}
		})
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

package ansible

import (
	"os"
	"os/exec"
	"testing"
)

func TestReadStat(t *testing.T) {
	t.Parallel()
	own, err := readStat(os.Getpid())
	if err != nil || own.ended() || own.start == 0 {
		t.Errorf("got %+v, %v", own, err)
	}
	// The command of a process may look like the fields after it.
	odd := t.TempDir() + "/x) Z 1 1"
	if err := os.Symlink("/bin/sleep", odd); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), odd, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	got, err := readStat(cmd.Process.Pid)
	if err != nil || got.ended() || got.start < own.start || got.group != own.group {
		t.Errorf("got %+v, %v; the test is %+v", got, err, own)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := readStat(cmd.Process.Pid); err == nil {
		t.Error("a process that was reaped has a state")
	}
}

// BenchmarkFind looks for what is left of a run, among all processes of the machine.
func BenchmarkFind(b *testing.B) {
	leader, err := identify(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	run := belonging{marker: "KAAS_RUN=none", control: b.TempDir(), leader: leader}
	for b.Loop() {
		if found, _ := run.find(); len(found) > 0 {
			b.Fatalf("found %d processes", len(found))
		}
	}
}

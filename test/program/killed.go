package program

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Killed runs the test's own binary once more, with the setting NAME=VALUE in its environment, and kills it with
// SIGKILL once enough holds. Its TestMain does the work when it finds the setting, and prints a line when it has begun:
// enough is asked from then on, every five milliseconds. The test fails if enough does not hold within a minute.
func Killed(t testing.TB, setting string, enough func() bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), setting)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Errorf("the process did not start: %v", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for !enough() {
		if time.Now().After(deadline) {
			t.Error("the process has not done enough within a minute")
			break
		}
		<-tick.C
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// KilledAfter is Killed some time after the process has begun.
func KilledAfter(t testing.TB, setting string, after time.Duration) {
	t.Helper()
	var end time.Time
	Killed(t, setting, func() bool {
		if end.IsZero() {
			end = time.Now().Add(after)
		}
		return !time.Now().Before(end)
	})
}

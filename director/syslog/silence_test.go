package syslog

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director/syslog/syslogtest"
)

// An entry that was written when the network was gone does not count as arrived: the connection breaks before that.
// The other tests end a server, which ends the connection at once.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // and never unlocked: the thread has another network, and ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") != "" {
			t.Fatalf("a network namespace: %v; run as root", err)
		}
		t.Skipf("a network namespace: %v; run as root", err)
	}
	loopback := func(how string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ip", "link", "set", "lo", how).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	loopback("up")
	server, r := syslogtest.Start(t, syslogtest.Anyone), newRig(t)
	s := r.sender(t, "a", server.IP, server.TLS())
	s.Now = time.Now
	r.add(t, 1)
	s.tick()
	received(t, server, 1)
	loopback("down")
	r.add(t, 1)
	s.tick()
	if s.sent != 2 || s.err != nil {
		t.Fatalf("%d entries were written, %v", s.sent, s.err)
	}
	written := time.Now()
	err := s.fails()
	if waited := time.Since(written); waited > certain {
		t.Errorf("the connection breaks after %v: %v", waited, err)
	}
	if n := r.unsent(t); n != 2 {
		t.Errorf("%d entries have not arrived, want 2", n)
	}
	loopback("up")
	eventually(t, func() bool { s.tick(); return r.unsent(t) == 0 }, func() string { return "not all entries arrive" })
	same(t, received(t, server, 3), upTo(1, 1), upTo(1, 2))
}

package consultest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// Apart is the network of the servers of StartApart.
var Apart = netip.MustParsePrefix("10.77.0.0/24")

// inside tells a test that it runs in the network that InNetwork made for it.
const inside = "KAAS_TEST_NETWORK"

// InNetwork returns true in a process whose network and whose processes are its own, for a test that StartApart. It
// starts the test again there, returns false when that has ended, and fails if that did. The namespaces are those of a
// user who is root there alone.
func InNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		run(t, "ip", "link", "set", "lo", "up")
		return true
	}
	cmd := exec.CommandContext(
		t.Context(), "unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$",
	)
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("in a network of its own:\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// StartApart is StartThree for servers with a network namespace each. A switch in the network of InNetwork, where it
// must be called, joins them to each other and to the test.
func StartApart(t testing.TB) []*Server {
	t.Helper()
	run(t, "ip", "link", "add", "switch", "type", "bridge")
	run(t, "ip", "address", "add", "10.77.0.254/24", "dev", "switch")
	run(t, "ip", "link", "set", "switch", "up")
	places := make([]place, 3)
	for i := range places {
		p := place{
			address: fmt.Sprintf("10.77.0.%d", i+1), ports: []int{8501, 8300, 8301, 8600},
			port: "port" + strconv.Itoa(i+1),
		}
		holder := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "infinity")
		holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = holder.Process.Kill(), holder.Wait() })
		pid := strconv.Itoa(holder.Process.Pid)
		p.enter = []string{"nsenter", "--target", pid, "--net"}
		run(t, "ip", "link", "add", p.port, "master", "switch", "type", "veth", "peer", "name", "net0", "netns", pid)
		run(t, "ip", "link", "set", p.port, "up")
		for _, args := range [][]string{
			{"address", "add", p.address + "/24", "dev", "net0"},
			{"link", "set", "net0", "up"},
			{"link", "set", "lo", "up"},
		} {
			run(t, "nsenter", append(append(p.enter[1:len(p.enter):len(p.enter)], "ip"), args...)...)
		}
		places[i] = p
	}
	return start(t, places)
}

// CutOff takes the network from a server of StartApart: nothing refuses its packets, they are lost. What it returns
// gives it back.
func (s *Server) CutOff(t testing.TB) (mend func()) {
	t.Helper()
	run(t, "ip", "link", "set", s.port, "down")
	return func() {
		t.Helper()
		run(t, "ip", "link", "set", s.port, "up")
	}
}

func run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}

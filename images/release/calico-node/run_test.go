// Package caliconode_test runs calico-run with a stand-in for Calico's program.
package caliconode_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// standIn behaves like calico-node: its start-up step writes the node's name, -monitor-token the credentials, and Felix ends as the
// lines of the file "felix" say, one for each start; without a line it waits for a signal.
const standIn = `#!/bin/sh
root=$CALICO_RUN_ROOT
echo "$*" >>"$root/calls"
case "$*" in
-startup) [ ! -e "$root/broken" ] || exit 3; echo node-1 >"$root/var/lib/calico/nodename" ;;
-monitor-token) echo credentials >"$root/host/etc/cni/net.d/calico-kubeconfig"; exec sleep 600 ;;
-allocate-tunnel-addrs) exec sleep 600 ;;
-felix)
    echo "$FELIX_FELIXHOSTNAME $FELIX_DATASTORETYPE" >"$root/felix.env"
    line=$(head -n 1 "$root/felix")
    sed -i 1d "$root/felix"
    [ -n "$line" ] || exec sleep 600
    until [ -e "$root/host/etc/cni/net.d/10-calico.conflist" ]; do sleep 0.1; done
    exit "$line" ;;
esac
`

// setup starts calico-run; Felix ends as felix says.
func setup(t *testing.T, felix string) (root string, run *exec.Cmd, output printed) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"bin", "var/lib/calico", "host/etc/cni/net.d"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"bin/calico-node": standIn, "felix": felix} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run = exec.CommandContext(t.Context(), "/bin/sh", "calico-run")
	run.Env = []string{
		"CALICO_RUN_TRIES=2",
		"PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH"), "CALICO_RUN_ROOT=" + root, "DATASTORE_TYPE=kubernetes", "CNI_MTU=1450",
		`CNI_NETWORK_CONFIG={"node": "__KUBERNETES_NODE_NAME__", "mtu": __CNI_MTU__, "kubeconfig": "__KUBECONFIG_FILEPATH__"}`,
	}
	// A file and no pipe: children that outlive the program keep their end of a pipe open, and Wait would wait for them.
	file, err := os.Create(filepath.Join(root, "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	run.Stdout, run.Stderr, output = file, file, printed(file.Name())
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if run.Process != nil {
			_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
		}
	})
	return root, run, output
}

// printed is the file with what a program has printed.
type printed string

func (p printed) String() string {
	text, err := os.ReadFile(string(p))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func status(err error) int {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEndsAsFelixEnds(t *testing.T) {
	t.Parallel()
	// Twice a new configuration, then an error.
	root, run, output := setup(t, "129\n129\n7\n")
	err := run.Run()
	if status(err) != 7 {
		t.Fatalf("status %d (%v), want Felix's 7\n%s", status(err), err, output)
	}
	var config struct {
		Node, Kubeconfig string
		MTU              int
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(root, "host/etc/cni/net.d/10-calico.conflist"))), &config); err != nil {
		t.Fatal(err)
	}
	if config.Node != "node-1" || config.MTU != 1450 || config.Kubeconfig != "/etc/cni/net.d/calico-kubeconfig" {
		t.Errorf("CNI configuration %+v", config)
	}
	if got := read(t, filepath.Join(root, "felix.env")); got != "node-1 kubernetes\n" {
		t.Errorf("Felix saw %q", got)
	}
	calls := read(t, filepath.Join(root, "calls"))
	if n := strings.Count(calls, "-felix\n"); n != 3 {
		t.Errorf("Felix was started %d times, want 3:\n%s", n, calls)
	}
	if strings.Index(calls, "-startup") > strings.Index(calls, "-allocate-tunnel-addrs -allocate-tunnel-addrs-run-once") {
		t.Errorf("wrong order:\n%s", calls)
	}
}

func TestEndsWhenToldTo(t *testing.T) {
	t.Parallel()
	root, run, output := setup(t, "")
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for range 400 {
		if _, err := os.Stat(filepath.Join(root, "host/etc/cni/net.d/10-calico.conflist")); err == nil {
			break
		}
		<-poll.C
	}
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); status(err) != 0 {
		t.Errorf("status %d (%v), want 0\n%s", status(err), err, output)
	}
}

func TestFailsWhenTheStartUpStepFails(t *testing.T) {
	t.Parallel()
	root, run, output := setup(t, "")
	if err := os.WriteFile(filepath.Join(root, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run.Run(); status(err) != 1 || !strings.Contains(output.String(), "the start-up step failed") {
		t.Errorf("status %d (%v)\n%s", status(err), err, output)
	}
	if _, err := os.Stat(filepath.Join(root, "host/etc/cni/net.d/10-calico.conflist")); err == nil {
		t.Error("the node would take pods")
	}
}

package kill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/rootdisk/rootdisktest"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

var (
	oldRoot = rootdisk.Root{Version: "v1", Built: 1000, Schema: "0054"}
	newRoot = rootdisk.Root{Version: "v2", Built: 2000, Schema: "0055"}
)

// machine is an appliance whose root this test is: it does for the director what director/appliance does as root,
// without a VM.
type machine struct {
	*testing.T
	*rig.Rig
	api     *client.Client
	archive string
	state   rootdisk.State
	config  []byte
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{T: t, state: rootdisk.State{Running: rootdisk.Held{Slot: rootdisk.A, Root: oldRoot}}}
	m.Rig, m.api = setup(t, func(r *rig.Rig) {
		m.Rig, m.archive = r, filepath.Join(r.Dir, "director-upgrade.tar")
		key := rootdisktest.Archive(t, m.archive, newRoot)
		must(t, os.MkdirAll(filepath.Join(r.Dir, "upgrade"), 0o700))
		must(t, os.MkdirAll(filepath.Join(r.State(), rootdisk.Inbox), 0o700))
		text, err := os.ReadFile(m.configFile())
		must(t, err)
		m.config = fmt.Appendf(text, "upgradeDir: %s\ntrustedKeys: [%s]\n", filepath.Join(r.Dir, "upgrade"), key)
		must(t, os.WriteFile(m.configFile(), m.config, 0o600))
		m.save()
	})
	if out, err := directorctl(
		t, m.Dir, "login", "--server", "https://"+m.Listen, "--ca-file", m.Seen("tls/ca.crt"), "--password-file",
		m.PasswordFile(),
	); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return m
}

func (m *machine) configFile() string { return filepath.Join(m.Dir, "director.yaml") }

func (m *machine) save() {
	m.Helper()
	text, err := json.Marshal(m.state)
	must(m.T, err)
	next := filepath.Join(m.Dir, "upgrade", "next")
	must(m.T, os.WriteFile(next, text, 0o600))
	must(m.T, os.Rename(next, filepath.Join(m.Dir, "upgrade", rootdisk.StateFile)))
}

func (m *machine) stage(s rootdisk.Stage) {
	m.Helper()
	m.state.Change.Stage = s
	m.save()
}

// take is what root does about a request until the VM restarts: the director is drained, ended and its data is saved.
func (m *machine) take() {
	m.Helper()
	inbox := filepath.Join(m.State(), rootdisk.Inbox)
	var text []byte
	await(m.T, "the request", func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(inbox, rootdisk.RequestFile))
		return err == nil
	})
	must(m.T, os.Remove(filepath.Join(inbox, rootdisk.RequestFile)))
	r, err := rootdisk.ParseRequest(text)
	must(m.T, err)
	m.state.Change = rootdisk.Change{
		Verb: r.Verb, Task: r.Task, By: r.By, From: m.state.Running, To: rootdisk.Held{Slot: rootdisk.B, Root: newRoot},
		Began: time.Now().UTC(),
	}
	m.stage(rootdisk.Draining)
	m.ask(wire.DrainPath)
	must(m.T, m.Kill())
	m.stage(rootdisk.Saving)
	out, err := exec.CommandContext(m.Context(), "cp", "-a", m.State(), filepath.Join(m.Dir, "saved")).CombinedOutput()
	if err != nil {
		m.Fatalf("%v: %s", err, out)
	}
	m.stage(rootdisk.Trying)
}

// ask sends the director a request through its socket for root.
func (m *machine) ask(path string) {
	m.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(m.State(), wire.RescueSocket))
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(m.Context(), http.MethodPost, "http://director"+path, http.NoBody)
	must(m.T, err)
	answer, err := (&http.Client{Transport: transport}).Do(req)
	must(m.T, err)
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusNoContent {
		m.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
}

// boot starts the director: that of the root that is tried, or that of the root which has always run.
func (m *machine) boot(trial bool) {
	m.Helper()
	config := m.config
	if trial {
		config = append(bytes.Clone(config), "held: true\n"...)
	}
	must(m.T, os.WriteFile(m.configFile(), config, 0o600))
	must(m.T, m.Start())
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()
	must(m.T, m.Ready(ctx))
}

// upgrade asks for the task by directorctl, which waits for the outcome.
func (m *machine) upgrade(task string) <-chan error {
	out := make(chan error, 1)
	go func() {
		text, err := directorctl(
			m.T, m.Dir, "phase", "director", m.archive, "--task-id", task, "--drain", "30s", "--within", "1m", "--wait",
		)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, text)
		}
		out <- err
	}()
	return out
}

// The director is upgraded by a task of an outer plan in the middle of a plan of its own, and killed where an appliance
// may lose its power. The task and the plan are done.
func TestUpgradeByATask(t *testing.T) {
	m := newMachine(t)
	plan := started(t, m.api, "one")
	outcome := m.upgrade("up7")
	m.take()
	for range 2 { // the power goes while the root is tried
		m.boot(true)
		await(t, "the trial", func() bool {
			task, err := m.api.Phase(t.Context(), "up7")
			return err == nil && task.State == string(director.PhaseRunning) && task.Progress.Stage == "trying"
		})
		must(t, m.Kill())
	}
	m.state.Running = m.state.Change.To
	m.boot(true)
	m.stage(rootdisk.Done)
	m.ask(wire.ReleasePath)
	await(t, "the outcome", func() bool {
		task, err := m.api.Phase(t.Context(), "up7")
		return err == nil && task.State == string(director.PhaseDone)
	})
	must(t, m.Kill())
	m.boot(false)
	ended(t, outcome)
	ended(t, plan)
	if _, err := directorctl(
		t, m.Dir, "phase", "director", m.archive, "--task-id", "up7", "--drain", "30s", "--within", "1m",
	); err != nil {
		t.Errorf("the same again: %v", err)
	}
	whole(t, m.Rig, m.api, "one")
}

// The new root does not become healthy: the former one comes back with the data of before, and the task says why.
func TestUpgradeByATaskThatIsRolledBack(t *testing.T) {
	m := newMachine(t)
	plan := started(t, m.api, "one")
	outcome := m.upgrade("up7")
	m.take()
	m.boot(true)
	must(t, m.Kill())
	must(t, os.RemoveAll(m.State()))
	must(t, os.Rename(filepath.Join(m.Dir, "saved"), m.State()))
	m.state.Change.Reason, m.state.Change.Hint = "version v2 did not become healthy", "look at the journal "+
		"of that start"
	m.stage(rootdisk.Failed)
	m.boot(false)
	select {
	case err := <-outcome:
		if err == nil || !strings.Contains(err.Error(), "version v1 runs: version v2 did not become healthy") ||
			!strings.Contains(err.Error(), "look at the journal") {
			t.Errorf("it says %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the task does not end")
	}
	if task, err := m.api.Phase(t.Context(), "up7"); err != nil || task.FinishedAt == nil {
		t.Error(errors.Join(err, fmt.Errorf("%+v", task)))
	}
	ended(t, plan)
	whole(t, m.Rig, m.api, "one")
}

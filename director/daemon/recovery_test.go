package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/recovery"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// lost is a director that has a cluster and a target for bundles.
type lost struct {
	Config
	key     *age.X25519Identity
	targets string
}

func makeLost(t *testing.T, database string) (lost, *Daemon) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	l := lost{key: key, targets: t.TempDir()}
	l.Config = simulating(t, demoDocuments+fmt.Sprintf(`---
apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: near}
spec: {type: directory, directory: %s/near, recipients: [%s], retention: {count: 2}}
---
apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: open}
spec: {type: directory, directory: %[1]s/open}
`, l.targets, key.Recipient()))
	l.BackupDirs, l.Database = confine.Dirs{l.targets}, database
	l.Simulation.Worlds = t.TempDir() // the hypervisors outlive their director
	l.Simulation.Boot = model.Duration(5 * time.Second)
	l.Address = netip.MustParseAddr("127.0.0.1")
	l.File = filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(l.File, []byte("# of the test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := start(t, l.Config, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return l, d
}

const awaySchedule = "apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: away}\n" +
	"spec: {cron: \"@yearly\", job: {name: backup, params: {target: TARGET}}}\n"

// runBackup runs the job with the target and returns its last message.
func runBackup(t *testing.T, api *client.Client, target string) string {
	t.Helper()
	return runAway(t, api, strings.Replace(awaySchedule, "TARGET", target, 1))
}

// runAway runs the job of the schedule away as it is in the text, and returns its last message.
func runAway(t *testing.T, api *client.Client, text string) string {
	t.Helper()
	if _, err := api.Apply(t.Context(), []byte(text), "away.yaml", false); err != nil {
		t.Fatal(err)
	}
	if _, err := api.RunSchedule(t.Context(), "away"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		s, err := api.Schedule(ctx, "away")
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Runs[0]; r.FinishedAt != nil {
			return r.Status + ": " + r.Message
		}
		<-tick.C
	}
}

func (l lost) bundles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.targets, "near", "director-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A director is lost in the middle of a plan and made again from its bundle, on another machine. The plan continues.
func TestLostDirectorIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{recovery.SQLite, recovery.Postgres} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			database, another := "", ""
			if kind == recovery.Postgres {
				database, another = storetest.Postgres(t), storetest.Postgres(t)
			}
			l, d := makeLost(t, database)
			api := connect(t, l.Config, d)
			run(t, api, plan.ClusterCreate)
			if said := runBackup(t, api, "open"); !strings.Contains(said, "has no recipients") {
				t.Errorf("a target without recipients: %s", said)
			}
			half := scaling(t, api)
			if said := runBackup(t, api, "near"); !strings.HasPrefix(said, "done: ") {
				t.Fatal(said)
			}
			if p, err := api.Plan(t.Context(), half); err != nil || p.Status != string(plan.StatusRunning) {
				t.Fatalf("the plan was to run while the bundle was made, and is %s (%v)", p.Status, err)
			}
			if err := d.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			files := l.bundles(t)
			if len(files) != 1 {
				t.Fatalf("the target has %v", files)
			}

			fresh := l.Config
			fresh.StateDir, fresh.Database = filepath.Join(t.TempDir(), "state"), another
			u := l.unpack(t, files[0], fresh.StateDir)
			if text, there := u.ConfigFile("director.yaml"); !there || string(text) != "# of the test\n" {
				t.Errorf("the configuration is %q", text)
			}
			if another != "" {
				if err := (recovery.Server{URL: another}).Load(t.Context(), u.DatabasePath()); err != nil {
					t.Fatal(err)
				}
			}
			if err := u.Place(); err != nil {
				t.Fatal(err)
			}
			again, err := start(t, fresh, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			api = connect(t, fresh, again)
			wantPlanDone(t, api, half)
			nodes, err := api.Nodes(t.Context(), "demo")
			if err != nil || len(nodes.Items) != 5 {
				t.Errorf("%d nodes, %v", len(nodes.Items), err)
			}
		})
	}
}

func (l lost) unpack(t *testing.T, file, stateDir string) *recovery.Unpacked {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("AGE-SECRET-KEY")) || bytes.Contains(text, []byte("SQLite format")) {
		t.Error("the bundle is not encrypted")
	}
	u, err := recovery.Unpack(t.Context(), bytes.NewReader(text), l.key, stateDir)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDirectorDoesNotStartOnHalfARestore(t *testing.T) {
	t.Parallel()
	l, d := makeLost(t, "")
	runBackup(t, connect(t, l.Config, d), "near")
	file := l.bundles(t)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// What is wrong with the bundle is found before anything is in its place.
	for name, text := range map[string][]byte{
		"cut": whole[:len(whole)/2], "empty": nil, "more": append(bytes.Clone(whole), 'x'),
	} {
		state := filepath.Join(t.TempDir(), "state")
		_, err := recovery.Unpack(t.Context(), bytes.NewReader(text), l.key, state)
		left, _ := os.ReadDir(state)
		if director.KindOf(err) != director.KindInvalid || len(left) > 0 {
			t.Errorf("%s: %v, left %v", name, err, left)
		}
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Unpack(
		t.Context(), bytes.NewReader(whole), other, filepath.Join(t.TempDir(), "state"),
	); err == nil || !strings.Contains(director.HintOf(err), "recipients") {
		t.Errorf("for another key: %v", err)
	}
	if _, err := recovery.Unpack(
		t.Context(), bytes.NewReader(whole), l.key, l.StateDir,
	); director.KindOf(err) != director.KindConflict {
		t.Errorf("onto a director: %v", err)
	}

	fresh := testConfig(t)
	fresh.Simulate, fresh.Simulation = true, l.Simulation
	u := l.unpack(t, file, fresh.StateDir)
	mark := filepath.Join(fresh.StateDir, recovery.Mark)
	if err := os.WriteFile(mark, nil, 0o600); err != nil { // as Place does first
		t.Fatal(err)
	}
	if _, err := start(t, fresh, io.Discard); err == nil || !strings.Contains(err.Error(), "was cut off") {
		t.Errorf("a director starts on half a restore: %v", err)
	}
	if err := errors.Join(u.Discard(), l.unpack(t, file, fresh.StateDir).Place()); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, fresh, io.Discard); err != nil {
		t.Errorf("after the whole restore: %v", err)
	}
}

// scaling begins to scale the cluster, which takes longer than a backup, and returns the plan.
func scaling(t *testing.T, api *client.Client) string {
	t.Helper()
	text := strings.Replace(demoDocuments[strings.LastIndex(demoDocuments, "apiVersion"):], "count: 3", "count: 4", 1)
	if _, err := api.Apply(t.Context(), []byte(text), "demo.yaml", false); err != nil {
		t.Fatal(err)
	}
	return started(t, api, "")
}

// wantPlanDone waits until the plan has ended, and wants it to be done.
func wantPlanDone(t *testing.T, api *client.Client, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		p, err := api.Plan(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if status := plan.Status(p.Status); status.Ended() || status == plan.StatusParked {
			if status != plan.StatusDone {
				t.Errorf("the plan is %s: %s", status, p.Message)
			}
			return
		}
	}
}

package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/rootdisk/rootdisktest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// peersOf starts two directors on one database.
func peersOf(t *testing.T, change func(one, two *Config)) (first, second *Daemon) {
	t.Helper()
	server := storetest.Shared(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(storetest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := testConfig(t), testConfig(t)
	two.RegistryListen = "127.0.0.3:0"
	one.Database = server.TCP(server.Database(t))
	two.Database = one.Database
	one.DatabasePasswordFile, two.DatabasePasswordFile = password, password
	change(&one, &two)
	first, err := start(t, one, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(two.StateDir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"sealing.key", "tls/ca.crt", "tls/ca.key"} {
		copyFile(t, filepath.Join(one.StateDir, file), filepath.Join(two.StateDir, file))
	}
	if second, err = start(t, two, io.Discard); err != nil {
		t.Fatal(err)
	}
	return first, second
}

// heard waits until the director knows where the other one answers: its first sign of life after it listens says it.
func heard(t *testing.T, d, other *Daemon) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if at, _, err := d.services.db.Peer(t.Context(), other.peers.instance); err != nil {
			t.Fatal(err)
		} else if at == other.addr.String() {
			return
		}
		<-tick.C
	}
}

// An archive of an upgrade that was sent to one director is brought to the one that a task upgrades with it.
func TestUploadsOfPeers(t *testing.T) {
	t.Parallel()
	root := rootdisk.Root{Version: "v7", Built: 1000, Schema: "0054"}
	archive := filepath.Join(t.TempDir(), "director-upgrade.tar")
	key := rootdisktest.Archive(t, archive, root)
	first, second := peersOf(t, func(_, two *Config) {
		two.TrustedKeys, two.UpgradeDir = []string{key}, t.TempDir()
		text, err := json.Marshal(rootdisk.State{Running: rootdisk.Held{Slot: rootdisk.A, Root: root}})
		if err == nil {
			err = os.WriteFile(filepath.Join(two.UpgradeDir, rootdisk.StateFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	heard(t, second, first)
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	sum, ctx := sha256.Sum256(text), t.Context()
	id := hex.EncodeToString(sum[:])
	ask := func() phases.View {
		t.Helper()
		v, err := first.services.phases.AskPhase(ctx, "outer", "up7", director.PhaseRequest{
			Phase: director.PhaseDirector, Director: second.peers.instance, Upload: id,
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := ask(); v.State != director.PhaseWaiting {
		t.Fatalf("before it was sent: %+v", v.PhaseTask)
	}
	files := first.services.files
	if _, err = files.Begin(ctx, director.ImageRequest{SHA256: id, Size: int64(len(text)), Release: true}); err == nil {
		_, err = files.Write(ctx, id, 0, bytes.NewReader(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for v := ask(); v.State != director.PhaseDone; v = ask() {
		if v.State == director.PhaseFailed {
			t.Fatalf("the task is %+v", v.PhaseTask)
		}
		<-tick.C
	}
}

// The log of a run that one director has is shown by the other one, over TLS; and when the first is gone, the second
// says which it was.
func TestLogsOfPeers(t *testing.T) {
	t.Parallel()
	first, second := peersOf(t, func(*Config, *Config) {})
	const play = "play/install"
	runOf(t, second.services.db, first.peers.instance, play)
	if err := os.MkdirAll(filepath.Dir(first.services.journal.LogPath("p1", play, 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	log := []byte("{\"msg\":\"one\"}\n{\"msg\":\"two\"}\n")
	if err := os.WriteFile(first.services.journal.LogPath("p1", play, 1), log, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	heard(t, second, first)
	w, err := second.services.journal.LogLines(ctx, "p1", journal.LogQuery{
		Step: play, Attempt: 1, Tail: 1, Limit: 10,
	})
	if err != nil || w.Total != 2 || len(w.Lines) != 1 || w.Lines[0].Line != 2 {
		t.Errorf("got %+v, %v", w, err)
	}
	hits, err := second.services.journal.SearchLog(ctx, "p1", journal.LogSearch{
		Step: play, Attempt: 1, Text: "TWO", Limit: 10,
	})
	if err != nil || len(hits.Items) != 1 || hits.Items[0].Line != 2 {
		t.Errorf("got %+v, %v", hits, err)
	}
	r, err := second.services.journal.StepLog(ctx, "p1", play, 1, 14)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || string(text) != string(log[14:]) {
		t.Errorf("got %q, %v", text, err)
	}
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = second.services.journal.LogLines(ctx, "p1", journal.LogQuery{Step: play, Attempt: 1, Limit: 10})
	if director.KindOf(err) != director.KindUnavailable || director.HintOf(err) == "" {
		t.Errorf("a peer that is away: %v, hint %q", err, director.HintOf(err))
	}
}

// runOf stores a plan whose step the director with the instance has begun. It has no lease, so an engine may begin it
// again as another attempt.
func runOf(t *testing.T, db *store.Store, instance, play string) {
	t.Helper()
	p := plan.Plan{ID: "p1", CreatedAt: time.Now(), Content: plan.Content{
		Operation: plan.ClusterCreate, Cluster: "demo", Steps: []plan.Step{{ID: play, Kind: step.Play}},
	}}
	err := db.Update(t.Context(), func(tx *store.Tx) error {
		s := plan.NewState(&p)
		err := tx.AddPlan(p)
		for _, e := range []plan.Event{
			{Kind: plan.PlanStarted, By: "ann"}, {Kind: plan.Started, Step: play, Attempt: 1, By: instance},
		} {
			e.Plan, e.At = "p1", time.Now()
			err = errors.Join(err, tx.Append(&s, e))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

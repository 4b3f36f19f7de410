package daemon

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// The log of a run that one director has is shown by the other one, over TLS; and when the first is gone, the second
// says which it was.
func TestLogsOfPeers(t *testing.T) {
	t.Parallel()
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
	second, err := start(t, two, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
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
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for { // the first sign of life after it listens says where
		if at, _, err := second.services.db.Peer(ctx, first.peers.instance); err != nil {
			t.Fatal(err)
		} else if at == first.addr.String() {
			break
		}
		<-tick.C
	}
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

package engine_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// formatOneHash is the hash that the director of format 1 gave to testdata/plan-format-1.json.
const formatOneHash = "ca7d9b79d4eb5f9b34735afa2a92880f8a12ce1d3bf5f13ea167b55f21cb1ff6"

func formatOne(t *testing.T) plan.Plan {
	t.Helper()
	text, err := os.ReadFile("testdata/plan-format-1.json")
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{ID: "old", CreatedAt: time.Unix(1, 0), CreatedBy: "t", Hash: formatOneHash}
	if err := json.Unmarshal(text, &p.Content); err != nil {
		t.Fatal(err)
	}
	return p
}

// A plan that a director of format 1 has stored keeps its hash, can be shown, and runs to the end that the same plan of
// today comes to.
func TestPlanOfFormatOneRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := func() []string {
		s := newInstallation(t)
		e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8)
		beginReal(t, e, s, l.plan(t, s, "new", plan.ClusterCreate, "demo"))
		await(t, e, s.db, "new", ended)
		return s.end(t)
	}()
	s := newInstallation(t)
	old := formatOne(t)
	handlers := l.handlers(t, s)
	handlers[step.ImageEnsure] = plan.HandlerFunc(func(ctx context.Context, _ plan.Run) error {
		images, _ := hypervisor.Capability[hypervisor.Imaging](sim.Open(s.world))
		return images.EnsureImage(ctx, hypervisor.ImageSpec{
			Name: l.image.NameOnProviders("node"), Path: l.image.Source, SHA256: l.image.SHA256, Format: "qcow2",
		}, func(int64, int64) {})
	})
	e := runOn(t, s.db, s.db.DirectorID(), handlers, 8)
	beginReal(t, e, s, old)
	if got := await(t, e, s.db, "old", ended); got.Status != plan.StatusDone {
		t.Fatalf("the plan is %s: %s", got.Status, got.Message)
	}
	if got := s.end(t); !slices.Equal(got, want) {
		t.Errorf("it came to\n%s\nand not to\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p, state, err := s.db.Plan(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	if plan.HashOf(p.Content) != formatOneHash {
		t.Errorf("the stored plan has the hash %s", plan.HashOf(p.Content))
	}
	if shown := wire.PlanOf(p, state); len(shown.Machines) != 3 || shown.Machines[0].Name != "demo-master-1" {
		t.Errorf("it is shown with %+v", shown.Machines)
	}
	rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rows {
		if m.ClusterUID != "u-demo" || m.Cluster != "demo" || m.MAC == "" {
			t.Errorf("the ledger has %+v", m)
		}
	}
	needs, err := step.NeedsOf(p.Content)
	if err != nil || !needs.Images[l.image.NameOnProviders("node")] {
		t.Errorf("it needs %+v, %v", needs, err)
	}
}

// A plan of a newer format does not start, and says which director it needs. One that runs already waits for a person,
// and can be discarded.
func TestPlanOfNewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := newInstallation(t)
	e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8)
	const hint = "upgrade this director to director v9.1.0 or a newer one, or discard the plan"
	p := l.plan(t, s, "new", plan.ClusterCreate, "demo")
	p.Format, p.DirectorVersion = plan.Format+1, "v9.1.0"
	p.Hash = plan.HashOf(p.Content)
	addPlan(t, s.db, p)
	err := e.Begin(t.Context(), "new", "admin", nil)
	if director.KindOf(err) != director.KindConflict || director.HintOf(err) != hint {
		t.Errorf("its start: %v, hint %q", err, director.HintOf(err))
	}
	if _, err := step.DecodeFacts(p.Content); director.KindOf(err) != director.KindConflict {
		t.Errorf("its facts: %v", err)
	}
	err = s.db.Update(t.Context(), func(tx engine.Tx) error { // as the newer director did
		_, state, err := tx.Plan("new")
		if err != nil {
			return err
		}
		return tx.Append(&state, plan.Event{Plan: "new", Kind: plan.PlanStarted, At: time.Now()})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(t.Context(), "new", "admin", ""); err != nil {
		t.Fatal(err)
	}
	if err := e.Retry(t.Context(), "new", "", "admin"); director.HintOf(err) != hint {
		t.Errorf("going on: %v", err)
	}
	if err := e.Cancel(t.Context(), "new", "admin", false); err != nil {
		t.Fatal(err)
	}
	await(t, e, s.db, "new", ended)
	if err := e.Discard(t.Context(), "new", "admin", ""); err != nil {
		t.Errorf("its end: %v", err)
	}
}

package daemon

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

var demoRef = model.Ref{Kind: model.KindCluster, Name: "demo"}

// demoDocument is the network and the cluster of documents. The others are stand-ins in the director's own directory.
func demoDocument() string {
	parts := strings.Split(demoDocuments, "---\n")
	return parts[1] + "---\n" + parts[len(parts)-1]
}

// begin makes a plan and starts it.
func begin(t *testing.T, s services, r plan.Request) plan.View {
	t.Helper()
	p, err := s.planning.MakePlan(t.Context(), "admin", "demo", r)
	if err == nil && len(p.Plan.Approvals) > 0 && s.cfg.Approval != string(planning.ApprovalNone) {
		_, err = s.planning.MovePlan(t.Context(), "admin", p.Plan.ID,
			planning.Move{Verb: planning.VerbApprove, Hash: p.Plan.Hash})
	}
	if err == nil {
		p, err = s.planning.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ended waits until the plan does not move any more.
func ended(t *testing.T, s services, id string) plan.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := s.engine.Changed()
		v, err := s.journal.Plan(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if v.State.Status.Ended() || v.State.Status == plan.StatusParked {
			return v
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("plan %s is %s: %s", id, v.State.Status, v.State.Message)
		}
	}
}

func wantStatus(t *testing.T, v plan.View, want plan.Status) {
	t.Helper()
	if v.State.Status != want {
		t.Fatalf("plan %s (%s) is %s, want %s: %s", v.Plan.ID, v.Plan.Operation, v.State.Status, want, v.State.Message)
	}
}

// living returns the names of all machines that the ledger has.
func living(t *testing.T, s services) []string {
	t.Helper()
	rows, err := s.db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, m := range rows {
		out = append(out, m.Name)
	}
	return out
}

// wantStale expects that none of the verbs moves the plan on.
func wantStale(t *testing.T, s services, id, step, says string) {
	t.Helper()
	for _, m := range []planning.Move{
		{Verb: planning.VerbRetry},
		{Verb: planning.VerbRetry, Step: step},
		{Verb: planning.VerbUndo},
		{Verb: planning.VerbSkip, Step: step, Reason: "why not"},
	} {
		_, err := s.planning.MovePlan(t.Context(), "admin", id, m)
		if director.KindOf(err) != director.KindConflict || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s %s: got %v, want a conflict that says %q", m.Verb, m.Step, err, says)
		}
	}
}

// A plan whose cluster was deleted, or that a newer one has overtaken, makes nothing any more: its start was a world
// ago.
func TestAnOldPlanIsNotRevived(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Hosts: "demo-w-2", Playbook: "prepare", Outcome: "failed", Percent: 100},
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s := d.services
	const failed = "prepare/demo-w-2"
	old := ended(t, s, begin(t, s, plan.Request{}).Plan.ID)
	wantStatus(t, old, plan.StatusFailed)
	wantStatus(t, ended(t, s, begin(t, s, plan.Request{Operation: plan.ClusterDelete}).Plan.ID), plan.StatusDone)
	old, err = s.journal.Plan(t.Context(), old.Plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, old, plan.StatusDiscarded)
	wantStale(t, s, old.Plan.ID, failed, "")

	// A director of before has left it as it was.
	revive := func() {
		t.Helper()
		if _, err := s.db.SQL().ExecContext(
			t.Context(), "UPDATE plans SET phase = 'failed' WHERE id = ?", old.Plan.ID,
		); err != nil {
			t.Fatal(err)
		}
	}
	revive()
	wantStale(t, s, old.Plan.ID, failed, "was deleted")
	if _, err := d.docs.Apply(t.Context(), "admin", []byte(demoDocument()), "x", false); err != nil {
		t.Fatal(err)
	}
	wantStale(t, s, old.Plan.ID, failed, "was deleted") // another cluster of the same name
	if diff := cmp.Diff([]string{}, living(t, s)); diff != "" {
		t.Errorf("the ledger has machines again: %s", diff)
	}

	first := ended(t, s, begin(t, s, plan.Request{}).Plan.ID)
	second := ended(t, s, begin(t, s, plan.Request{}).Plan.ID)
	wantStatus(t, second, plan.StatusFailed)
	old = first
	revive()
	wantStale(t, s, first.Plan.ID, failed, "was started after it")
	if _, err := s.planning.MovePlan(t.Context(),
		"admin", second.Plan.ID, planning.Move{Verb: planning.VerbRetry}); err != nil {
		t.Errorf("the newest plan: %v", err)
	}
	wantStatus(t, ended(t, s, second.Plan.ID), plan.StatusFailed)
}

// meddling does something else when the hypervisor is asked for its VMs the next time.
type meddling struct {
	steps.Backends
	mu sync.Mutex
	do func() error
}

func (m *meddling) Backend(ctx context.Context, provider string) (hypervisor.Backend, error) {
	b, err := m.Backends.Backend(ctx, provider)
	return meddlingBackend{b, m}, err
}

type meddlingBackend struct {
	hypervisor.Backend
	m *meddling
}

func (b meddlingBackend) Unwrap() hypervisor.Backend { return b.Backend }

func (b meddlingBackend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	b.m.mu.Lock()
	do := b.m.do
	b.m.do = nil
	b.m.mu.Unlock()
	vms, err := b.Backend.List(ctx, f)
	if do != nil {
		err = errors.Join(err, do())
	}
	return vms, err
}

// A document that is applied, or a plan that runs, while a start is being checked is seen by the start: it never begins
// a plan of a former generation.
func TestAStartSeesWhatHappensMeanwhile(t *testing.T) {
	t.Parallel()
	d, err := start(t, simulating(t, demoDocuments), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p := d.services.parts
	m := &meddling{Backends: p.env.Backends}
	p.env.Backends = m
	s := newServices(p)
	apply := func(old, replacement string) func() error {
		return func() error {
			_, err := d.docs.Apply(
				t.Context(), "admin", []byte(strings.Replace(demoDocument(), old, replacement, 1)), "x", false,
			)
			return err
		}
	}
	for _, tt := range []struct {
		name, says string
		meanwhile  func() error
	}{
		{"the cluster", "Cluster/demo has changed (now generation 2)", apply("count: 3", "count: 4")},
		{
			"what the cluster names", "Network/net has changed (now generation 2)",
			apply("to: 10.88.0.99", "to: 10.88.0.150"),
		},
		{"the cluster is recreated", "Cluster/demo has changed (now generation 1)", func() error {
			err := d.docs.DeleteDocument(t.Context(), "admin", model.Ref{Kind: model.KindCluster, Name: "demo"})
			return errors.Join(err, apply("", "")())
		}},
		{"the cluster is deleted", "Cluster/demo was deleted", func() error {
			return d.docs.DeleteDocument(t.Context(), "admin", model.Ref{Kind: model.KindCluster, Name: "demo"})
		}},
		{"another plan", "plan p-between was started", func() error {
			return d.services.db.Update(t.Context(), func(tx *store.Tx) error {
				p := plan.Plan{
					ID: "p-between", CreatedAt: time.Now(),
					Content: plan.Content{Operation: plan.ClusterScale, Cluster: "demo"},
				}
				s := plan.NewState(&p)
				return errors.Join(tx.AddPlan(
					p,
				), tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanStarted, At: time.Now()}),
					tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanDone, At: time.Now()}))
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := d.docs.Apply(t.Context(), "admin", []byte(demoDocument()), "x", false); err != nil {
				t.Fatal(err)
			}
			p, err := s.planning.MakePlan(t.Context(), "admin", "demo", plan.Request{})
			if err != nil {
				t.Fatal(err)
			}
			m.mu.Lock()
			m.do = tt.meanwhile
			m.mu.Unlock()
			_, err = s.planning.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash)
			deleted := strings.Contains(tt.name, "cluster is") // which discards the plan too
			if director.KindOf(err) != director.KindConflict || err == nil ||
				!deleted && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want a conflict that says %q", err, tt.says)
			}
			if diff := cmp.Diff([]string{}, living(t, s)); diff != "" {
				t.Errorf("it has reserved machines: %s", diff)
			}
		})
	}
	if _, err := d.docs.Apply(t.Context(), "admin", []byte(demoDocument()), "x", false); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended(t, s, begin(t, s, plan.Request{}).Plan.ID), plan.StatusDone) // with nothing in between
}

// A document that is deleted by hand behind the last VM of its cluster takes the record and the keys with it, so that a
// cluster of its name starts again.
func TestADocumentDeletedByHandTakesTheRecordWithIt(t *testing.T) {
	t.Parallel()
	d, err := start(t, simulating(t, demoDocuments), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s, ref := d.services, model.Ref{Kind: model.KindCluster, Name: "demo"}
	wantStatus(t, ended(t, s, begin(t, s, plan.Request{}).Plan.ID), plan.StatusDone)
	doc, err := d.docs.Document(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.docs.DeleteDocument(t.Context(), "admin", ref); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "directorctl delete cluster demo") {
		t.Errorf("a cluster with VMs: %v", err)
	}
	p, err := s.planning.MakePlan(t.Context(), "admin", "demo", plan.Request{Operation: plan.ClusterDelete})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.planning.MovePlan(t.Context(), "admin", p.Plan.ID, planning.Move{
		Verb: planning.VerbSkip, Step: "cluster.forget/demo", Reason: "the director hiccups",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.planning.StartPlan(t.Context(), "admin", p.Plan.ID, p.Plan.Hash); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended(t, s, p.Plan.ID), plan.StatusDone)
	secrets := func() (n int) {
		t.Helper()
		const query = "SELECT count(*) FROM secrets WHERE owner = ? OR owner IN (SELECT id FROM machines WHERE " +
			"cluster_uid = ?)"
		if err := s.db.SQL().QueryRowContext(t.Context(), query, doc.UID, doc.UID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if secrets() == 0 {
		t.Fatal("there are no secrets to forget")
	}
	if err := d.docs.DeleteDocument(t.Context(), "admin", ref); err != nil {
		t.Fatal(err)
	}
	if _, there, err := s.db.Installed(t.Context(), "demo"); there || err != nil || secrets() != 0 {
		t.Errorf("left behind: a record %t, %d secrets; %v", there, secrets(), err)
	}
	if _, err := d.docs.Apply(t.Context(), "admin", []byte(demoDocument()), "x", false); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, ended(t, s, begin(t, s, plan.Request{}).Plan.ID), plan.StatusDone)
}

// While a plan holds the cluster its document stays, also before the plan has made a machine.
func TestADocumentStaysWhileAPlanHoldsItsCluster(t *testing.T) {
	t.Parallel()
	d, err := start(t, simulating(t, demoDocuments), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = d.services.db.Update(t.Context(), func(tx *store.Tx) error {
		p := plan.Plan{
			ID: "p-holds", CreatedAt: time.Now(),
			Content: plan.Content{
				Operation: plan.ClusterScale, Cluster: "demo", Steps: []plan.Step{{ID: "x/y", Kind: "x"}},
			},
		}
		s := plan.NewState(&p)
		return errors.Join(tx.AddPlan(p), tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanStarted, At: time.Now()}),
			tx.Append(&s, plan.Event{Plan: p.ID, Kind: plan.PlanPaused, At: time.Now()}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.docs.DeleteDocument(t.Context(), "admin", model.Ref{
		Kind: model.KindCluster, Name: "demo",
	}); director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "p-holds") {
		t.Errorf("got %v", err)
	}
}

package campaigns_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// killed is what ends a process in the middle of a call.
type killed struct{}

// world plans for real in the database, without a look at the clusters, and can be killed at every call.
type world struct {
	db       *store.Store
	mu       sync.Mutex
	calls    int
	kill     int // at this call; 0 for never
	serial   int
	started  map[string]int // by cluster
	refuse   map[string]error
	moved    map[string]int // clusters of which the world has moved so often
	approval bool
}

// point is a place where the process may be killed.
func (w *world) point() {
	w.mu.Lock()
	w.calls++
	now := w.calls == w.kill
	w.mu.Unlock()
	if now {
		panic(killed{})
	}
}

// survives moves campaigns on, and reports whether the process was not killed meanwhile.
func survives(t *testing.T, s *campaigns.Service) (alive bool) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil && v != (killed{}) {
			panic(v)
		}
	}()
	if err := s.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	return true
}

func (w *world) content(cluster string, r plan.Request) plan.Content {
	c := plan.Content{
		Format: plan.Format, Operation: r.Operation, Request: r, Cluster: cluster,
		Summary: fmt.Sprintf("change %s, %d", cluster, w.moved[cluster]),
		Steps:   []plan.Step{{ID: "a/" + cluster, Kind: "a", Attempts: 1}},
	}
	if w.approval {
		c.Approvals = []string{"a disk is destroyed"}
	}
	return c
}

func (w *world) MakePlanWith(
	ctx context.Context, actor, cluster string, r plan.Request, with func(tx *store.Tx, id string) error,
) (plan.View, error) {
	w.point()
	w.mu.Lock()
	err := w.refuse[cluster]
	w.serial++
	p := plan.Plan{
		ID: fmt.Sprintf("p%05d", w.serial), CreatedAt: time.Now(), CreatedBy: actor, Content: w.content(cluster, r),
	}
	w.mu.Unlock()
	if err != nil {
		return plan.View{}, err
	}
	p.Hash = plan.HashOf(p.Content)
	old, err := w.db.Plans(ctx, store.PlanFilter{Cluster: cluster, Statuses: []plan.Status{plan.StatusPlanned}})
	if err != nil {
		return plan.View{}, err
	}
	w.point()
	err = w.db.Update(ctx, func(tx *store.Tx) error {
		for _, id := range old {
			_, state, err := tx.Plan(id)
			if err == nil {
				err = tx.Append(&state, plan.Event{Plan: id, Kind: plan.PlanDiscarded, At: time.Now()})
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(tx.AddPlan(p), with(tx, p.ID))
	})
	w.point()
	return plan.View{Plan: p, State: plan.NewState(&p)}, err
}

func (w *world) StartWith(ctx context.Context, actor, id, hash string, with func(*store.Tx) error) error {
	w.point()
	var cluster string
	err := w.db.Update(ctx, func(tx *store.Tx) error {
		if err := with(tx); err != nil {
			return err
		}
		p, state, err := tx.Plan(id)
		if err != nil {
			return err
		}
		cluster = p.Cluster
		if p.Hash != hash || plan.HashOf(w.content(p.Cluster, p.Request)) != hash {
			return director.Errorf(director.KindConflict, "test", "plan %s is out of date", id)
		}
		return tx.Append(&state, plan.Event{Plan: id, Kind: plan.PlanStarted, At: time.Now(), By: actor})
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.started[cluster]++
	w.mu.Unlock()
	w.point()
	return nil
}

func (w *world) Moved(_ context.Context, p plan.Plan, _ plan.State) error {
	w.point()
	if plan.HashOf(w.content(p.Cluster, p.Request)) == p.Hash {
		return nil
	}
	return director.Errorf(director.KindConflict, "test", "moved")
}

func (w *world) WantsApproval(p plan.Plan, s plan.State) bool {
	return len(p.Approvals) > 0 && s.Status == plan.StatusPlanned
}

func (w *world) MayApprove(actor string, p plan.Plan) error {
	if actor == p.CreatedBy {
		return director.Errorf(director.KindForbidden, "test", "the same person")
	}
	return nil
}

func (w *world) Approve(ctx context.Context, actor, id, _ string) error {
	p, _, err := w.db.Plan(ctx, id)
	if err == nil {
		err = w.MayApprove(actor, p)
	}
	if err == nil {
		err = w.event(ctx, id, plan.PlanApproved)
	}
	return err
}

func (w *world) event(ctx context.Context, id string, kind plan.EventKind) error {
	return w.db.Update(ctx, func(tx *store.Tx) error {
		_, state, err := tx.Plan(id)
		if err != nil {
			return err
		}
		return tx.Append(&state, plan.Event{Plan: id, Kind: kind, At: time.Now()})
	})
}

// Select lists every cluster.
func (w *world) Select(ctx context.Context, _, _ []string, _ *director.Visible) ([]campaigns.Candidate, error) {
	items, _, err := w.db.ClusterPage(ctx, "", nil, director.Page{})
	out := make([]campaigns.Candidate, len(items))
	for i, c := range items {
		out[i] = campaigns.Candidate{Name: c.Name, Project: c.Project}
	}
	return out, err
}

// open returns a database with so many clusters that are installed.
func open(t *testing.T, clusters int) *world {
	t.Helper()
	l := servicetest.Open(t, clusters, 0)
	for _, d := range l.Docs {
		if d.Cluster == nil {
			continue
		}
		err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tx.PutInstalled(store.Installed{
				UID: d.UID, Name: d.Metadata.Name, Generation: d.Generation, Document: d.Document, At: time.Now(),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return &world{db: l.Store, started: map[string]int{}, refuse: map[string]error{}, moved: map[string]int{}}
}

func (w *world) service(lease time.Duration) *campaigns.Service {
	return campaigns.New(campaigns.Config{
		Store: w.db, Planning: w, Clusters: w, Difference: planning.Difference, Changed: planning.Changed, Lease: lease,
	})
}

func person(name string) campaigns.Person {
	return campaigns.Person{Name: name, May: func(director.Action, director.Object) bool { return true }}
}

var ann = person("ann")

func upgrade() director.CampaignSpec {
	return director.CampaignSpec{Target: director.CampaignTarget{Release: "k8s", Image: "node"}, Canary: 1, Wave: "10%"}
}

// finish ends every plan that runs: those of the clusters named in bad fail.
func (w *world) finish(t *testing.T, bad ...string) int {
	t.Helper()
	ids, err := w.db.Plans(t.Context(), store.PlanFilter{Statuses: []plan.Status{plan.StatusRunning}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		p, _, err := w.db.Plan(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		kind := plan.PlanDone
		if slices.Contains(bad, p.Cluster) {
			kind = plan.PlanFailed
		}
		if err := w.event(t.Context(), id, kind); err != nil {
			t.Fatal(err)
		}
	}
	return len(ids)
}

// must returns the view, or ends the test.
func must(t *testing.T, v campaigns.View, err error) campaigns.View {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tick moves the campaign on until nothing changes: a slow machine takes several turns for it.
func tick(t *testing.T, s *campaigns.Service, id string) campaigns.View {
	t.Helper()
	for was := ""; ; {
		if err := s.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, err := s.Get(t.Context(), ann, id)
		v = must(t, v, err)
		is := fmt.Sprint(v.Status, v.Wave, v.Counts)
		if is == was {
			return v
		}
		was = is
	}
}

func agree(t *testing.T, s *campaigns.Service, v campaigns.View) campaigns.View {
	t.Helper()
	v, err := s.Agree(t.Context(), ann, v.ID, v.Wave, v.Waves[v.Wave-1].Hash)
	return must(t, v, err)
}

// Two hundred clusters: a canary, waves of a tenth, and the cluster that fails stops everything; a person continues.
func TestCampaign(t *testing.T) {
	t.Parallel()
	w := open(t, 200)
	s := w.service(time.Minute)
	spec := upgrade()
	spec.AtOnce = 200
	v, err := s.Create(t.Context(), ann, "all of them", spec)
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	if v.Status != campaigns.StatusWaiting || len(v.Waves) != 11 || v.Waves[0].Clusters != 1 ||
		v.Waves[1].Clusters != 20 {
		t.Fatalf("%s, %d waves", v.Status, len(v.Waves))
	}
	if n := w.finish(t); n != 0 {
		t.Fatalf("%d plans run before anybody agreed", n)
	}
	if _, err := s.Agree(t.Context(), ann, v.ID, 1, "x"); director.KindOf(err) != director.KindConflict {
		t.Errorf("another hash: %v", err)
	}
	if _, err := s.Agree(t.Context(), ann, v.ID, 2, v.Waves[1].Hash); director.KindOf(err) != director.KindConflict {
		t.Errorf("ahead of its turn: %v", err)
	}
	agree(t, s, v)
	tick(t, s, v.ID)
	if n := w.finish(t); n != 1 {
		t.Fatalf("%d plans run for the canary", n)
	}
	for v = tick(t, s, v.ID); v.Wave < 3; v = tick(t, s, v.ID) {
		agree(t, s, v)
		tick(t, s, v.ID)
		w.finish(t)
	}
	agree(t, s, v)
	tick(t, s, v.ID)
	w.finish(t, "c030")
	v = tick(t, s, v.ID)
	if v.Status != campaigns.StatusPaused || v.PausedBy != "" || !strings.Contains(v.Reason, "c030") {
		t.Fatalf("after a failure: %s, %q", v.Status, v.Reason)
	}
	if n := len(w.started); n != 41 {
		t.Errorf("%d clusters were started, want 41", n)
	}
	v, err = s.Resume(t.Context(), ann, v.ID)
	v = must(t, v, err)
	for v = tick(t, s, v.ID); v.Status != campaigns.StatusDone; v = tick(t, s, v.ID) {
		agree(t, s, v)
		tick(t, s, v.ID)
		w.finish(t)
	}
	for cluster, n := range w.started {
		if n != 1 {
			t.Errorf("%s was started %d times", cluster, n)
		}
	}
	if v.Counts[campaigns.Done] != 199 || v.Counts[campaigns.Failed] != 1 {
		t.Errorf("%v", v.Counts)
	}
}

// Killed at every call in turn, the next process continues, and no cluster is started twice or before its wave.
func TestCrashes(t *testing.T) {
	t.Parallel()
	spec := upgrade()
	spec.Wave, spec.AtOnce = "2", 2
	last := 0
	for kill := 1; kill <= last || last == 0; kill++ {
		w := open(t, 4)
		w.kill = kill
		s := w.service(time.Nanosecond)
		v, err := s.Create(t.Context(), ann, "crash", spec)
		v = must(t, v, err)
		for rounds := 0; v.Status != campaigns.StatusDone && rounds < 40; rounds++ {
			if !survives(t, s) {
				s = w.service(time.Nanosecond) // another process
			}
			w.finish(t)
			v, err = s.Get(t.Context(), ann, v.ID)
			v = must(t, v, err)
			if v.Status == campaigns.StatusWaiting {
				agree(t, s, v)
			}
		}
		if v.Status != campaigns.StatusDone || len(w.started) != 4 {
			t.Errorf("killed at %d: %s, %v", kill, v.Status, w.started)
		}
		for cluster, n := range w.started {
			if n != 1 {
				t.Errorf("killed at %d: %s was started %d times", kill, cluster, n)
			}
		}
		if kill == 1 {
			last = w.calls
		}
	}
	if last < 20 {
		t.Errorf("only %d places to be killed at", last)
	}
}

// The plans of a wave are made again when it comes up: what is another plan needs another agreement.
func TestTheWorldMoves(t *testing.T) {
	t.Parallel()
	w := open(t, 3)
	s := w.service(time.Minute)
	spec := upgrade()
	spec.Wave, spec.Pause = "2", "0s"
	v, err := s.Create(t.Context(), ann, "moves", spec)
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	v, err = s.Agree(t.Context(), ann, v.ID, 2, v.Waves[1].Hash) // ahead, since the pause is a time
	v = must(t, v, err)
	old := v.Waves[1].Hash
	w.moved["c002"]++
	agree(t, s, v)
	tick(t, s, v.ID)
	w.finish(t)
	v = tick(t, s, v.ID)
	state := map[string]campaigns.State{}
	for _, m := range v.Clusters {
		state[m.Name] = campaigns.StateOf(m)
		if m.Name == "c002" && m.Difference == "" {
			t.Errorf("c002 does not say what changed")
		}
	}
	if state["c001"] != campaigns.Running || state["c002"] != campaigns.Planned || v.Waves[1].Hash == old {
		t.Fatalf("%v, hash changed: %t", state, v.Waves[1].Hash != old)
	}
	agree(t, s, v)
	tick(t, s, v.ID)
	w.finish(t)
	if v = tick(t, s, v.ID); v.Status != campaigns.StatusDone {
		t.Errorf("%s", v.Status)
	}
}

// What cannot be planned is listed with its reason and is in no wave; what a person skips does not run.
func TestRefusedAndSkipped(t *testing.T) {
	t.Parallel()
	w := open(t, 3)
	w.refuse["c000"] = director.Errorf(director.KindConflict, "test", "it would skip 1 minor version").
		WithHint("upgrade to v1.36 first")
	s := w.service(time.Minute)
	v, err := s.Create(t.Context(), ann, "some", upgrade())
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	if m := v.Clusters[0]; m.Wave != 0 || m.Message == "" || m.Hint == "" || v.Counts[campaigns.Refused] != 1 {
		t.Errorf("%+v", m)
	}
	if _, err := s.Skip(t.Context(), ann, v.ID, "c001", " "); director.KindOf(err) != director.KindInvalid {
		t.Errorf("without a reason: %v", err)
	}
	v, err = s.Skip(t.Context(), ann, v.ID, "c001", "it is on loan")
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	agree(t, s, v)
	tick(t, s, v.ID)
	w.finish(t)
	if _, err := s.End(t.Context(), ann, v.ID, ""); director.KindOf(err) != director.KindConflict {
		t.Errorf("the end of what is done, before it is written down: %v", err)
	}
	v = tick(t, s, v.ID)
	if v.Status != campaigns.StatusDone || len(w.started) != 1 || w.started["c002"] != 1 {
		t.Errorf("%s, %v", v.Status, w.started)
	}
	if _, err := s.End(t.Context(), ann, v.ID, ""); director.KindOf(err) != director.KindConflict {
		t.Errorf("the end of what is done: %v", err)
	}
}

// Plans that destroy something need a second person, also in a campaign.
func TestApprovals(t *testing.T) {
	t.Parallel()
	w := open(t, 1)
	w.approval = true
	s := w.service(time.Minute)
	v, err := s.Create(t.Context(), ann, "disks", upgrade())
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	if _, err := s.Agree(t.Context(), ann, v.ID, 1, v.Waves[0].Hash); director.KindOf(err) != director.KindForbidden {
		t.Fatalf("the same person: %v", err)
	}
	v, err = s.Agree(t.Context(), person("bob"), v.ID, 1, v.Waves[0].Hash)
	v = must(t, v, err)
	if v = tick(t, s, v.ID); v.Counts[campaigns.Running] != 1 {
		t.Errorf("%v", v.Counts)
	}
}

// Who may not change a cluster has it in no campaign, and does not see or change campaigns with it.
func TestPermissions(t *testing.T) {
	t.Parallel()
	w := open(t, 2)
	s := w.service(time.Minute)
	eve := person("eve")
	eve.May = func(a director.Action, o director.Object) bool { return o.Cluster == "c001" }
	v, err := s.Create(t.Context(), eve, "mine", upgrade())
	if v = must(t, v, err); len(v.Clusters) != 1 || v.Clusters[0].Name != "c001" {
		t.Errorf("%+v", v.Clusters)
	}
	named := upgrade()
	named.Selector.Clusters = []string{"c001", "c000", "none"}
	_, err = s.Create(t.Context(), eve, "theirs", named)
	if n := len(director.FieldsOf(err)); director.KindOf(err) != director.KindInvalid || n != 2 {
		t.Errorf("%d problems: %v", n, err)
	}
	_, err = s.Create(t.Context(), ann, "all", upgrade())
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "c001 in "+v.ID) {
		t.Errorf("a cluster is in two campaigns: %v", err)
	}
	_, err = s.End(t.Context(), eve, v.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Create(t.Context(), ann, "all", upgrade())
	all = must(t, all, err)
	if _, err := s.Get(t.Context(), eve, all.ID); director.KindOf(err) != director.KindNotFound {
		t.Errorf("sees what is not hers: %v", err)
	}
	if list, err := s.List(t.Context(), eve); err != nil || len(list) != 1 {
		t.Errorf("%d campaigns, %v", len(list), err)
	}
	reader := person("joe")
	reader.May = func(a director.Action, _ director.Object) bool { return a == director.ActRead }
	if _, err := s.Pause(t.Context(), reader, all.ID, ""); director.KindOf(err) != director.KindForbidden {
		t.Errorf("a reader pauses: %v", err)
	}
}

// Who has agreed and may not start plans any more by the time of the start has not agreed.
func TestAgreementOfWhoMayNoLonger(t *testing.T) {
	t.Parallel()
	w := open(t, 1)
	gone := map[string]bool{}
	s := campaigns.New(campaigns.Config{
		Store: w.db, Planning: w, Clusters: w, Difference: planning.Difference, Changed: planning.Changed,
		Lease: time.Minute,
		May: func(_ context.Context, name string, _ director.Action, _ director.Object) (bool, error) {
			return !gone[name], nil
		},
	})
	v, err := s.Create(t.Context(), ann, "later", upgrade())
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	v, err = s.Agree(t.Context(), person("bob"), v.ID, 1, v.Waves[0].Hash)
	v = must(t, v, err)
	gone["bob"] = true
	v = tick(t, s, v.ID)
	if v.Status != campaigns.StatusWaiting || len(w.started) > 0 || !strings.Contains(v.Clusters[0].Message, "bob") {
		t.Fatalf("%s, %v, %q", v.Status, w.started, v.Clusters[0].Message)
	}
	agree(t, s, v)
	if v = tick(t, s, v.ID); w.started["c000"] != 1 {
		t.Errorf("%s, %v", v.Status, w.started)
	}
}

// What of a campaign a person may not store, the person cannot agree to either.
func TestAgreementNeedsTheDocument(t *testing.T) {
	t.Parallel()
	w := open(t, 1)
	s := w.service(time.Minute)
	v, err := s.Create(t.Context(), ann, "documents", upgrade())
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	eve := person("eve")
	eve.Store = func(_, _ *model.Document) error {
		return director.Errorf(director.KindForbidden, "test", "not this document")
	}
	if _, err := s.Agree(t.Context(), eve, v.ID, 1, v.Waves[0].Hash); director.KindOf(err) != director.KindForbidden {
		t.Errorf("eve agrees: %v", err)
	}
}

// Two processes on one database: one of them moves the campaign on, and what the other one has read is worth nothing.
func TestTwoDirectors(t *testing.T) {
	t.Parallel()
	w := open(t, 30)
	const lease = 20 * time.Millisecond // so short that both take turns
	one, two := w.service(lease), w.service(lease)
	spec := upgrade()
	spec.Canary, spec.Wave = 0, "100%"
	v, err := one.Create(t.Context(), ann, "shared", spec)
	v = must(t, v, err)
	both := func() {
		var wait sync.WaitGroup
		for _, s := range []*campaigns.Service{one, two} {
			wait.Go(func() {
				if err := s.Tick(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
	for range 20 {
		both()
		v, err = one.Get(t.Context(), ann, v.ID)
		if v = must(t, v, err); v.Status == campaigns.StatusWaiting {
			break
		}
	}
	agree(t, one, v)
	for range 20 {
		both()
		w.finish(t)
	}
	for cluster, n := range w.started {
		if n != 1 {
			t.Errorf("%s was started %d times", cluster, n)
		}
	}
	if len(w.started) != 30 {
		t.Errorf("%d clusters were started", len(w.started))
	}
}

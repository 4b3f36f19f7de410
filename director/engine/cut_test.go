package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// The plans of these tests are the planner's own, and act through the steps' own handlers on a pretended hypervisor.
// Only what needs a node, a registry or keys that take long to make is left out.

// installation is a database and a world.
type installation struct {
	db    adapted
	world *sim.World
	fleet *pretendCluster // the nodes of the cluster, where a test has them
}

// lab is what all installations of a test share.
type lab struct {
	image  model.Image
	sealer *seal.Box
}

func newLab(t *testing.T) lab {
	t.Helper()
	dir := t.TempDir()
	text := []byte("a node image")
	sum := sha256.Sum256(text)
	path := filepath.Join(dir, "node.img")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	if err != nil {
		t.Fatal(err)
	}
	return lab{
		image:  model.Image{Source: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2", Kubernetes: "v1.37.1"},
		sealer: box,
	}
}

// plan returns the planner's plan for a cluster of one master and two workers, with the machines that there are.
func (l lab) plan(t *testing.T, s installation, id string, op plan.Operation, cluster string) plan.Plan {
	t.Helper()
	content, err := contentFor(l.observe(t, s, cluster), op)
	return planOf(t, id, content, err)
}

func planOf(t *testing.T, id string, content plan.Content, err error) plan.Plan {
	t.Helper()
	if err == nil {
		err = content.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	return plan.Plan{ID: id, CreatedAt: time.Unix(1, 0), CreatedBy: "t", Hash: plan.HashOf(content), Content: content}
}

// observe is the world as planners see it, with the documents of that cluster before it is changed.
func (l lab) observe(t *testing.T, s installation, cluster string) planner.World {
	t.Helper()
	stored := func(d model.Document) model.Stored {
		model.Default(&d)
		return model.Stored{Document: d, UID: "u-" + d.Metadata.Name, Generation: 1}
	}
	of := func(kind model.Kind, name string) model.Document {
		return model.Document{Kind: kind, Metadata: model.Metadata{Name: name}}
	}
	provider, network, image, release, c := of(
		model.KindProvider, "lab",
	), of(model.KindNetwork, "net"), of(model.KindImage, "node"),
		of(model.KindRelease, "k8s"), of(model.KindCluster, cluster)
	provider.Provider = &model.Provider{
		Type: model.ProviderSim, Sim: &model.Sim{Hosts: []model.SimHost{{Name: "h1"}, {Name: "h2"}}},
	}
	network.Network = &model.Network{
		Provider: "lab", Mode: "nat", CIDR: netip.MustParsePrefix("10.88.0.0/24"),
		Gateway: netip.MustParseAddr("10.88.0.1"),
		Pool:    model.AddressPool{From: netip.MustParseAddr("10.88.0.10"), To: netip.MustParseAddr("10.88.0.99")},
	}
	image.Image = &l.image
	release.Release = &model.Release{Bundle: "/bundle", Kubernetes: "v1.37.1"}
	c.Cluster = &model.Cluster{
		Release: "k8s", Provider: "lab", Image: "node", Network: "net",
		Masters: model.Masters{VMSize: model.VMSize{DataDisk: model.GiB}},
		Workers: []model.WorkerPool{{Name: "w", Count: 2}},
	}
	w := planner.World{
		Director: planner.Director{ID: s.db.DirectorID(), Playbooks: "tree"}, Provider: stored(provider),
		Network: stored(network), Image: stored(image),
		Release: stored(release), Cluster: stored(c), Used: map[netip.Addr]bool{}, Host: map[string]int{},
	}
	all, err := s.db.Machines(t.Context(), store.MachineFilter{Tombstones: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Deleted.IsZero() {
			w.Used[netip.MustParseAddr(m.Address)] = true
		}
		if m.Cluster == cluster {
			w.Machines = append(w.Machines, m)
		}
	}
	w.Releases = map[string]planner.Release{
		"v1.37.1": {Name: "k8s", Release: *w.Release.Release, Bundle: planner.Bundle{Digest: "b-v1.37.1"}},
	}
	w.Images = map[string]planner.NodeImage{l.image.NameOnProviders("node"): {Document: "node", Image: l.image}}
	return w
}

// contentFor plans the operation for a cluster that was created from the document of w, if the operation is for one
// that runs.
func contentFor(w planner.World, op plan.Operation) (plan.Content, error) {
	name := w.Cluster.Metadata.Name
	w.Installed = &planner.Installed{Generation: 1, Cluster: *w.Cluster.Cluster}
	switch op {
	case plan.ClusterDelete:
		return planner.Delete(w, plan.Request{})
	case plan.ClusterScale:
		one, other := w.Cluster.Cluster.Workers[0], w.Cluster.Cluster.Workers[0]
		one.Count, other.Count, other.Name = 1, 1, "x" // one less here, one more there
		w.Cluster.Cluster.Workers = []model.WorkerPool{one, other}
		return planner.Apply(w, plan.Request{Operation: op})
	case plan.ClusterUpgrade:
		w.Release.Release.Kubernetes = "v1.38.0"
		w.Cluster.Cluster.Maintenance.Strategy,
			w.Cluster.Cluster.Maintenance.MaxUnavailable = model.UpgradeReconstitute, 2
		return planner.Apply(w, plan.Request{Operation: op})
	case plan.NodeReplace:
		return planner.Node(w, plan.Request{Operation: op, Nodes: []string{name + "-w-1"}})
	case plan.NodeDelete, plan.NodeRejoin:
		return planner.Node(w, plan.Request{Operation: op, Nodes: []string{name + "-w-2"}, KeepVM: true})
	}
	w.Installed = nil
	return planner.Create(w)
}

// life is every kind of plan with steps that act, in an order in which a cluster can have them.
var life = []plan.Operation{
	plan.ClusterCreate, plan.NodeReplace, plan.NodeDelete, plan.NodeRejoin, plan.ClusterScale, plan.ClusterUpgrade,
	plan.ClusterDelete,
}

// records is the store as the steps want it.
type records struct{ adapted }

func (r records) ClusterInstalled(ctx context.Context, p step.ClusterParams, at time.Time) error {
	doc := model.Document{Kind: model.KindCluster, Metadata: model.Metadata{Name: p.Name}, Cluster: &p.Document}
	return r.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.SetMembers(p.UID, p.Nodes, p.Kubernetes); err != nil {
			return err
		}
		return tx.PutInstalled(store.Installed{
			UID: p.UID, Name: p.Name, Generation: p.Generation, Document: doc, Endpoint: p.Endpoint, At: at,
		})
	})
}

func (r records) SetNode(ctx context.Context, p step.NodeParams) error {
	return r.SetMembership(ctx, p.Machine, store.Membership{State: p.State, Kubernetes: p.Version, Image: p.Image})
}

func (r records) ForgetCluster(ctx context.Context, p step.ClusterParams, _ string, _ time.Time) error {
	return r.Store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetCluster(p.UID, p.Name) })
}

// booted says that every node has booted.
type booted struct{ world *sim.World }

func (b booted) Answers(_ context.Context, m director.Machine) (bool, error) {
	return b.world.Answers(m.Network, m.Address), nil
}

func (booted) FirstBoot(context.Context, director.Machine, string, bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, nil
}

func (booted) CloudInit(context.Context, director.Machine, string) (string, error) {
	return `{"v1": {"errors": []}}`, nil
}

func (booted) Script(ctx context.Context, _ director.Machine, _, _ string) error { return ctx.Err() }

func (booted) NextHostKey(_ context.Context, _ director.Machine, hostKey string) (string, error) {
	return hostKey, nil
}

func (booted) TakeHostKey(context.Context, director.Machine, string, string) error { return nil }

func (booted) HostCertificate(context.Context, director.Machine) (string, error) { return "", nil }

type oneBackend struct{ b hypervisor.Backend }

func (o oneBackend) Backend(context.Context, string) (hypervisor.Backend, error) { return o.b, nil }

// handlers returns the steps' own handlers on the installation; those that need more than a hypervisor do nothing.
func (l lab) handlers(t *testing.T, s installation) map[string]plan.Handler {
	t.Helper()
	env := steps.Env{
		Installation: steps.Installation{Director: s.db.DirectorID(), Now: time.Now},
		Machines: steps.Machines{
			Ledger: s.db, Disks: s.db, Backends: oneBackend{sim.Open(s.world)}, Nodes: booted{s.world},
		},
		Clusters: steps.Clusters{Records: records{s.db}, Keys: steps.Keys{Secrets: s.db, Sealer: l.sealer}},
	}
	out := steps.Handlers(env)
	nothing := plan.HandlerFunc(func(ctx context.Context, _ plan.Run) error { return ctx.Err() })
	for _, kind := range []string{
		step.ReleasePush, step.ClusterPKI, step.Play, step.KubeReady,
		step.KubeTraffic,
	} {
		out[kind] = nothing
	}
	// There is no cluster to ask: what was joined is ready.
	out[step.NodeReady] = out[step.NodeLeft]
	return out
}

func newInstallation(t *testing.T) installation {
	t.Helper()
	return installation{
		db: openStore(t, filepath.Join(t.TempDir(), "db")),
		world: sim.NewWorld(sim.Host{
			Name: "h1", CPUs: 64, Memory: 1 << 40, Disk: 1 << 44,
		}, sim.Host{Name: "h2", CPUs: 64, Memory: 1 << 40, Disk: 1 << 44}),
	}
}

func runOn(t *testing.T, db engine.Store, id string, handlers map[string]plan.Handler, workers int) *engine.Engine {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Config{
		Director: id, Store: db, Handlers: handlers, Workers: workers, Lease: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// beginReal stores the plan and starts it as the operations do: machines are reserved in the same transaction.
func beginReal(t *testing.T, e *engine.Engine, s installation, p plan.Plan) {
	t.Helper()
	addPlan(t, s.db, p)
	err := e.Begin(t.Context(), p.ID, "admin", func(tx engine.Tx, p *plan.Plan, _ *plan.State) error {
		if len(p.Facts) == 0 {
			return nil
		}
		facts, err := step.DecodeFacts(p.Content)
		for _, m := range facts.Nodes {
			err = errors.Join(err, tx.(*store.Tx).IntendMachine(m.Row(), time.Now()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// end is what a installation came to, without what differs from run to run.
func (s installation) end(t *testing.T) []string {
	t.Helper()
	lines := s.lines(t)
	if twins := s.world.Twins(); len(twins) > 0 {
		t.Errorf("twins: %v", twins)
	}
	return lines
}

// lines is end where two VMs may have one name.
func (s installation) lines(t *testing.T) []string {
	t.Helper()
	lines := s.world.Inventory("")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, s.db.DirectorID(), "d")
	}
	machines, err := s.db.Machines(t.Context(), store.MachineFilter{Tombstones: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		lines = append(
			lines, fmt.Sprintf("ledger %s %s %s %s deleted=%t", m.ID, m.Name, m.Address, m.State, !m.Deleted.IsZero()),
		)
	}
	return lines
}

// film is a store that keeps copies of the installation before and after every transaction that writes events.
type film struct {
	adapted
	t            *testing.T
	dir          string
	installation installation
	plan         string
	mu           sync.Mutex
	frames       []frame
	copies       int
}

// frame is the installation at one moment: what a crash at it would leave.
type frame struct {
	name  string
	seq   int64 // of the last event by then
	db    string
	world *sim.World
	fleet *pretendCluster
}

func (f *film) copy(name string, seq int64) frame {
	f.copies++
	path := filepath.Join(f.dir, fmt.Sprintf("db-%d", f.copies))
	if _, err := f.SQL().Exec("VACUUM INTO ?", path); err != nil {
		f.t.Error(err)
	}
	return frame{
		name: name, seq: seq, db: path, world: f.installation.world.Clone(),
		fleet: f.installation.fleet.clone(),
	}
}

func (f *film) seq(ctx context.Context) int64 {
	_, s, err := f.Plan(ctx, f.plan)
	if err != nil {
		return 0 // it is not stored yet
	}
	return s.Seq
}

func (f *film) Update(ctx context.Context, fn func(engine.Tx) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.seq(ctx)
	before := f.copy(fmt.Sprintf("before_event_%02d", was+1), was)
	if err := f.adapted.Update(ctx, fn); err != nil {
		return err
	}
	if is := f.seq(ctx); is > was && is > 1 { // before the first there is nothing to continue with
		if was > 0 {
			f.frames = append(f.frames, before)
		}
		f.frames = append(f.frames, f.copy(fmt.Sprintf("after_event_%02d", is), is))
	}
	return nil
}

// shoot runs the plan of the operation in a fresh installation, one step at a time, and returns the frames and the end.
func (l lab) shoot(t *testing.T, op plan.Operation) ([]frame, []string) {
	t.Helper()
	s := newInstallation(t)
	if op != plan.ClusterCreate {
		e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8)
		beginReal(t, e, s, l.plan(t, s, "p0", plan.ClusterCreate, "demo"))
		await(t, e, s.db, "p0", ended)
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f := &film{adapted: s.db, t: t, dir: t.TempDir(), installation: s, plan: "p1"}
	e := runOn(t, f, s.db.DirectorID(), l.handlers(t, s), 1)
	beginReal(t, e, s, l.plan(t, s, "p1", op, "demo"))
	if got := await(t, e, s.db, "p1", ended); got.Status != plan.StatusDone {
		t.Fatalf("the plan is %s: %s", got.Status, got.Message)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.frames, s.end(t)
}

// A director may die before or after any write to the journal. Its successor brings the installation to the same end,
// without twins, and repeats nothing that was done. A frame before an outcome shows an act that is done and not
// recorded.
func TestEveryCutOfRealPlansComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	for _, op := range life {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			frames, want := l.shoot(t, op)
			if len(frames) < 10 {
				t.Fatalf("%d frames are too few", len(frames))
			}
			for _, f := range frames {
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					s := installation{db: openStore(t, f.db), world: f.world}
					_, before, err := s.db.Plan(t.Context(), "p1")
					if err != nil {
						t.Fatal(err)
					}
					e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8)
					got := await(t, e, s.db, "p1", ended)
					if got.Status != plan.StatusDone {
						t.Fatalf("the plan is %s: %s", got.Status, got.Message)
					}
					for i, st := range before.Steps {
						if now := got.Steps[i]; st.Status == plan.Done && now.Attempt != st.Attempt {
							t.Errorf("%s was done and ran again", st.ID)
						}
					}
					if diff := cmp.Diff(want, s.end(t)); diff != "" {
						t.Errorf("another end (-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}

// wrapped returns handlers of which each is called through around.
func wrapped(
	in map[string]plan.Handler, around func(h plan.Handler, ctx context.Context, r plan.Run) error,
) map[string]plan.Handler {
	out := map[string]plan.Handler{}
	for kind, h := range in {
		out[kind] = plan.HandlerFunc(func(ctx context.Context, r plan.Run) error { return around(h, ctx, r) })
	}
	return out
}

// live runs the operations on one installation, each on what the one before it has left, and returns the ends.
func (l lab) live(
	t *testing.T, s installation, e *engine.Engine, ops []plan.Operation, settle func(id string),
) [][]string {
	t.Helper()
	var ends [][]string
	for i, op := range ops {
		id := fmt.Sprintf("p%d", i)
		beginReal(t, e, s, l.plan(t, s, id, op, "demo"))
		settle(id)
		if got := await(t, e, s.db, id, ended); got.Status != plan.StatusDone {
			t.Fatalf("%s is %s: %s", op, got.Status, got.Message)
		}
		ends = append(ends, s.end(t))
	}
	return ends
}

func (l lab) ends(t *testing.T, ops []plan.Operation) [][]string {
	t.Helper()
	s := newInstallation(t)
	return l.live(t, s, runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8), ops, func(string) {})
}

func TestEachStepTwice(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.ends(t, life)
	s := newInstallation(t)
	twice := wrapped(l.handlers(t, s), func(h plan.Handler, ctx context.Context, r plan.Run) error {
		if err := h.Run(ctx, r); err != nil {
			return err
		}
		return h.Run(ctx, r)
	})
	got := l.live(t, s, runOn(t, s.db, s.db.DirectorID(), twice, 8), life, func(string) {})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("another end (-want +got):\n%s", diff)
	}
}

// Each step fails: once before its act, once after it, and for good until a person tries again.
func TestEachStepFails(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ops := []plan.Operation{plan.ClusterCreate, plan.NodeReplace, plan.ClusterScale, plan.ClusterDelete}
	want := l.ends(t, ops)
	gone := director.Errorf(director.KindUnavailable, "test", "it does not answer")
	for name, tt := range map[string]struct {
		after     bool
		permanent bool
	}{
		"once before the act": {}, "once after the act": {after: true}, "for good before the act": {permanent: true},
		"for good after the act": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newInstallation(t)
			var mu sync.Mutex
			failed := map[string]bool{}
			failing := wrapped(l.handlers(t, s), func(h plan.Handler, ctx context.Context, r plan.Run) error {
				key := r.Plan.ID + " " + r.Step.ID
				mu.Lock()
				first := !failed[key]
				failed[key] = true
				mu.Unlock()
				if !first {
					return h.Run(ctx, r)
				}
				if tt.after {
					if err := h.Run(ctx, r); err != nil {
						return err
					}
				}
				if tt.permanent {
					return plan.Abort(gone)
				}
				return gone
			})
			e := runOn(t, s.db, s.db.DirectorID(), failing, 8)
			got := l.live(t, s, e, ops, func(id string) {
				for tt.permanent { // every step fails once, and a person tries again
					st := await(t, e, s.db, id, ended)
					if st.Status == plan.StatusDone {
						return
					}
					if err := e.Retry(t.Context(), id, "", "admin"); err != nil {
						t.Fatal(err)
					}
				}
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("another end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTwoPlansAtOnce(t *testing.T) {
	t.Parallel()
	l, s := newLab(t), newInstallation(t)
	e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 16)
	ids := []string{"a", "b"}
	for _, id := range ids { // planned one after the other, so that the second one sees the first one's addresses
		beginReal(t, e, s, l.plan(t, s, id, plan.ClusterCreate, "cluster-"+id))
	}
	for _, id := range ids {
		if got := await(t, e, s.db, id, ended); got.Status != plan.StatusDone {
			t.Fatalf("%s is %s: %s", id, got.Status, got.Message)
		}
	}
	if n := s.world.Count(); n != 6 {
		t.Errorf("%d VMs, want 6", n)
	}
	s.end(t) // looks for twins
}

// Two plans that were made from the same world want the same addresses: the second one must not start.
func TestTwoPlansWithTheSameAddresses(t *testing.T) {
	t.Parallel()
	l, s := newLab(t), newInstallation(t)
	e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 16)
	first, second := l.plan(t, s, "a", plan.ClusterCreate, "one"), l.plan(t, s, "b", plan.ClusterCreate, "two")
	beginReal(t, e, s, first)
	addPlan(t, s.db, second)
	err := e.Begin(t.Context(), "b", "admin", func(tx engine.Tx, p *plan.Plan, _ *plan.State) error {
		facts, err := step.DecodeFacts(p.Content)
		for _, m := range facts.Nodes {
			err = errors.Join(err, tx.(*store.Tx).IntendMachine(m.Row(), time.Now()))
		}
		return err
	})
	if director.KindOf(err) != director.KindConflict {
		t.Errorf("got %v, want conflict", err)
	}
	if got := await(t, e, s.db, "a", ended); got.Status != plan.StatusDone {
		t.Fatalf("the first plan is %s: %s", got.Status, got.Message)
	}
}

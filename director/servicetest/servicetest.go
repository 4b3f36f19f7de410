// Package servicetest is a director's database and an in-memory hypervisor for the tests of services: documents of
// clusters, their machines as the planner would write them, and the handlers of steps.
package servicetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
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

// Lab is a director with a ledger, on an in-memory hypervisor that has an image and a network.
type Lab struct {
	Store    *store.Store
	Director planner.Director
	Env      steps.Env
	Dir      string // of its state
	World    *sim.World
	Made     map[string]director.Machine // rows as the planner would write them, by name
	Docs     map[string]model.Stored
}

// Backend is the back end of every provider.
type Backend struct{ B hypervisor.Backend }

// Backend returns B.
func (b Backend) Backend(context.Context, string) (hypervisor.Backend, error) { return b.B, nil }

// Nowhere is a network on which nothing answers.
type Nowhere struct{}

// Answers says that no host answers.
func (Nowhere) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

// CloudInit says that cloud-init is done.
func (Nowhere) CloudInit(context.Context, director.Machine, string) (string, error) { return "{}", nil }

// FirstBoot reports nothing.
func (Nowhere) FirstBoot(context.Context, director.Machine, string, bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, nil
}

// Script does nothing.
func (Nowhere) Script(context.Context, director.Machine, string, string) error { return nil }

// NextHostKey returns the key that there is.
func (Nowhere) NextHostKey(_ context.Context, _ director.Machine, hostKey string) (string, error) {
	return hostKey, nil
}

// TakeHostKey does nothing.
func (Nowhere) TakeHostKey(context.Context, director.Machine, string, string) error { return nil }

// HostCertificate returns none.
func (Nowhere) HostCertificate(context.Context, director.Machine) (string, error) { return "", nil }

// Open returns a lab with so many clusters of so many workers, whose machines are not made yet.
func Open(t testing.TB, clusters, workers int) *Lab {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{
		Store: db, Director: planner.Director{ID: db.DirectorID()}, Dir: dir,
		World: sim.NewWorld(sim.Host{
			Name: "h1", CPUs: 64, Memory: 64 << 40, Disk: 1 << 60,
		}, sim.Host{Name: "h2", CPUs: 64, Memory: 64 << 40, Disk: 1 << 60}),
		Made: map[string]director.Machine{}, Docs: map[string]model.Stored{},
	}
	l.Env = steps.Env{
		Installation: steps.Installation{Director: db.DirectorID(), Now: time.Now},
		Machines:     steps.Machines{Ledger: db, Disks: db, Backends: Backend{B: sim.Open(l.World)}, Nodes: Nowhere{}},
		Clusters:     steps.Clusters{Keys: steps.Keys{Secrets: db, Sealer: box}},
	}
	image, sum := l.fill(t)
	docs := strings.NewReplacer("IMAGE", image, "SUM", sum).Replace(labDocuments)
	for i := range clusters {
		docs += fmt.Sprintf("---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c%03d}\nspec: {release: k8s, "+
			"provider: lab, image: node, network: net,"+
			" workers: [{name: w, count: %d}]}\n", i, workers)
	}
	l.Put(t, docs)
	l.populate(t, workers)
	return l
}

const labDocuments = `apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: sim, sim: {hosts: [{name: h1}, {name: h2}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec: {provider: lab, cidr: 10.64.0.0/16, pool: {from: 10.64.1.0, to: 10.64.250.0}}
---
apiVersion: kaas/v1
kind: Image
metadata: {name: node}
spec: {source: IMAGE, sha256: SUM, kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s}
spec: {bundle: /nowhere, kubernetes: v1.37.1}
`

// fill gives the hypervisor an image and a network, and returns the path of the image's file with its checksum.
func (l *Lab) fill(t testing.TB) (path, sum string) {
	t.Helper()
	b := sim.Open(l.World)
	text := []byte("a node image\n")
	digest := sha256.Sum256(text)
	path, sum = filepath.Join(l.Dir, "node.img"), hex.EncodeToString(digest[:])
	err := errors.Join(
		os.WriteFile(path, text, 0o600),
		b.EnsureImage(t.Context(), hypervisor.ImageSpec{Name: "node", Path: path, SHA256: sum, Format: "qcow2"}, nil),
		b.EnsureNetwork(t.Context(), hypervisor.NetworkSpec{
			Owner: director.Stamp{Director: l.Director.ID, Machine: "n1"}, Name: "net", Mode: "nat",
			CIDR:    netip.MustParsePrefix("10.64.0.0/16"),
			Gateway: netip.MustParseAddr("10.64.0.1"),
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return path, sum
}

// populate writes down the machines of every cluster as the planner would.
func (l *Lab) populate(t testing.TB, workers int) {
	t.Helper()
	stored, err := l.Store.Documents(t.Context(), model.KindCluster)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr("10.64.1.0")
	taken := map[string]bool{} // 24 bits: of 1,000 addresses, two are the same in one run of thirty
	free := func(mac string) bool {
		was := taken[mac]
		taken[mac] = true
		return !was
	}
	for _, c := range stored {
		l.Docs[c.Metadata.Name] = c
		for n := range workers {
			name := fmt.Sprintf("%s-w-%d", c.Metadata.Name, n+1)
			m, ok := planner.Member(c, name, planner.MachineID(c.UID, name, 0), free)
			if !ok {
				t.Fatalf("%s is no member", name)
			}
			m.Address, m.State, m.Host = address.String(), director.MachineIntended, "h1"
			address = address.Next()
			l.Made[name] = m
		}
	}
}

// Put stores the documents in text without a look at what exists.
func (l *Lab) Put(t testing.TB, text string) {
	t.Helper()
	Put(t, l.Store, text)
}

// Put stores the documents in text without a look at what exists.
func Put(t testing.TB, db *store.Store, text string) {
	t.Helper()
	docs, err := model.Parse([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		for i := range docs {
			if _, err := model.Validate(&docs[i]); err != nil {
				return err
			}
			if err := tx.PutDocument(docs[i], "admin", time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// AddPlan stores a plan that makes the machines, and starts it with their intents, as StartPlan does.
func (l *Lab) AddPlan(ctx context.Context, id string, start bool, machines ...director.Machine) error {
	var nodes []plan.MachineSpec
	for _, m := range machines {
		nodes = append(nodes, plan.SpecOf(m))
	}
	facts, err := json.Marshal(step.Facts{Nodes: nodes})
	if err != nil {
		return err
	}
	p := plan.Plan{
		ID: id, CreatedAt: time.Now(),
		Content: plan.Content{Operation: plan.ClusterCreate, Cluster: machines[0].Cluster, Facts: facts},
	}
	for _, m := range machines {
		p.Steps = append(p.Steps, plan.Step{
			ID: step.VMEnsure + "/" + m.Name, Kind: step.VMEnsure, Params: Params(m),
		})
	}
	p.Hash = plan.HashOf(p.Content)
	return l.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddPlan(p); err != nil || !start {
			return err
		}
		state := plan.NewState(&p)
		if err := tx.Append(&state, plan.Event{Plan: id, Kind: plan.PlanStarted, At: time.Now()}); err != nil {
			return err
		}
		for _, m := range machines {
			if err := tx.IntendMachine(m, time.Now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// EndPlan brings the plan to a status that is final.
func (l *Lab) EndPlan(ctx context.Context, id string, kinds ...plan.EventKind) error {
	return l.Store.Update(ctx, func(tx *store.Tx) error {
		_, s, err := tx.Plan(id)
		for _, k := range kinds {
			err = errors.Join(err, tx.Append(&s, plan.Event{Plan: id, Kind: k, At: time.Now()}))
		}
		return err
	})
}

// Params are those of the step that makes the VM of the machine.
func Params(m director.Machine) json.RawMessage {
	b, err := json.Marshal(step.VMParams{
		Machine: plan.SpecOf(m), Disk: 30 * model.GiB, ImageName: "node",
		Network: model.Network{CIDR: netip.MustParsePrefix("10.64.0.0/16"), Gateway: netip.MustParseAddr("10.64.0.1")},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// Step runs the handler of the kind for the machine.
func (l *Lab) Step(ctx context.Context, env steps.Env, kind string, m director.Machine) error {
	return steps.Handlers(
		env,
	)[kind].Run(ctx, plan.Run{Step: plan.Step{Kind: kind, Params: Params(m)}, Note: func(context.Context, string) {}})
}

// MakeVM brings the VM of the machine about, and writes it down.
func (l *Lab) MakeVM(t *testing.T, m director.Machine) hypervisor.VM {
	t.Helper()
	if err := l.Step(t.Context(), l.Env, step.VMEnsure, m); err != nil {
		t.Fatal(err)
	}
	return l.VM(t, m)
}

// VM returns the VM of the machine.
func (l *Lab) VM(t *testing.T, m director.Machine) hypervisor.VM {
	t.Helper()
	vms, err := sim.Open(l.World).List(t.Context(), hypervisor.Filter{Director: l.Director.ID})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(vms, func(v hypervisor.VM) bool { return v.Stamp.Machine == m.ID })
	if i < 0 {
		t.Fatalf("there is no VM of %s", m.Name)
	}
	return vms[i]
}

// Forget loses the row, as the restore of an older backup does.
func (l *Lab) Forget(t *testing.T, m director.Machine) {
	t.Helper()
	if _, err := l.Store.SQL().ExecContext(t.Context(), "DELETE FROM machines WHERE id = ?", m.ID); err != nil {
		t.Fatal(err)
	}
}

// WantKind fails unless err is of the kind and says the words.
func WantKind(t *testing.T, err error, kind director.Kind, words ...string) {
	t.Helper()
	if err == nil || director.KindOf(err) != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	text := err.Error() + " " + director.HintOf(err)
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

package operations

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
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// lab is a director with a ledger, on an in-memory hypervisor that has an image and a network.
type lab struct {
	*Operations
	dir   string // of its state
	world *sim.World
	made  map[string]director.Machine // rows as the planner would write them, by name
	docs  map[string]model.Stored
}

// nowhere is a network on which nobody answers.
type nowhere struct{}

func (nowhere) Answers(context.Context, director.Machine) (bool, error) { return false, nil }

func (nowhere) CloudInit(context.Context, director.Machine, string) (string, error) { return "{}", nil }

func (nowhere) FirstBoot(context.Context, director.Machine, string, bool) (cloudinit.Report, error) {
	return cloudinit.Report{}, nil
}

func (nowhere) Script(context.Context, director.Machine, string, string) error { return nil }

func (nowhere) NextHostKey(_ context.Context, _ director.Machine, hostKey string) (string, error) {
	return hostKey, nil
}

func (nowhere) TakeHostKey(context.Context, director.Machine, string) error { return nil }

func openLab(t *testing.T, clusters, workers int) *lab {
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
	l := &lab{
		dir: dir,
		world: sim.NewWorld(sim.Host{
			Name: "h1", CPUs: 64, Memory: 64 << 40, Disk: 1 << 60,
		}, sim.Host{Name: "h2", CPUs: 64, Memory: 64 << 40, Disk: 1 << 60}),
		made: map[string]director.Machine{}, docs: map[string]model.Stored{},
	}
	b := sim.Open(l.world)
	text := []byte("a node image\n")
	sum := sha256.Sum256(text)
	image := filepath.Join(dir, "node.img")
	err = errors.Join(
		os.WriteFile(image, text, 0o600),
		b.EnsureImage(
			t.Context(),
			hypervisor.ImageSpec{Name: "node", Path: image, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2"}, nil,
		),
		b.EnsureNetwork(t.Context(), hypervisor.NetworkSpec{
			Owner: director.Stamp{Director: db.DirectorID(), Machine: "n1"}, Name: "net", Mode: "nat",
			CIDR:    netip.MustParsePrefix("10.64.0.0/16"),
			Gateway: netip.MustParseAddr("10.64.0.1"),
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	l.Operations = New(Config{
		Store: db, Director: planner.Director{ID: db.DirectorID()}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}},
		Env: steps.Env{
			Director: db.DirectorID(), Ledger: db, Disks: db, Secrets: db, Sealer: box, Backends: oneBackend{b},
			Nodes: nowhere{}, Now: time.Now,
		},
	})
	docs := `apiVersion: kaas/v1
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
spec: {source: ` + image + `, sha256: ` + hex.EncodeToString(sum[:]) + `, kubernetes: v1.37.1}
---
apiVersion: kaas/v1
kind: Release
metadata: {name: k8s}
spec: {bundle: /nowhere, kubernetes: v1.37.1}
`
	for i := range clusters {
		docs += fmt.Sprintf("---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c%03d}\nspec: {release: k8s, "+
			"provider: lab, image: node, network: net,"+
			" workers: [{name: w, count: %d}]}\n", i, workers)
	}
	if _, err := l.Apply(t.Context(), "admin", []byte(docs), "", false); err != nil {
		t.Fatal(err)
	}
	stored, err := db.Documents(t.Context(), model.KindCluster)
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
		l.docs[c.Metadata.Name] = c
		for n := range workers {
			name := fmt.Sprintf("%s-w-%d", c.Metadata.Name, n+1)
			m, ok := planner.Member(c, name, planner.MachineID(c.UID, name, 0), free)
			if !ok {
				t.Fatalf("%s is no member", name)
			}
			m.Address, m.State, m.Host = address.String(), director.MachineIntended, "h1"
			address = address.Next()
			l.made[name] = m
		}
	}
	return l
}

// plan stores a plan that makes the machines, and starts it with their intents, as StartPlan does.
func (l *lab) plan(ctx context.Context, id string, start bool, machines ...director.Machine) error {
	facts, err := json.Marshal(planner.Facts{Nodes: machines})
	if err != nil {
		return err
	}
	p := plan.Plan{
		ID: id, CreatedAt: time.Now(),
		Content: plan.Content{Operation: plan.ClusterCreate, Cluster: machines[0].Cluster, Facts: facts},
	}
	for _, m := range machines {
		p.Steps = append(p.Steps, plan.Step{
			ID: planner.StepVMEnsure + "/" + m.Name, Kind: planner.StepVMEnsure, Params: params(m),
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

// end brings the plan to a phase that is final.
func (l *lab) end(ctx context.Context, id string, kinds ...plan.EventKind) error {
	return l.Store.Update(ctx, func(tx *store.Tx) error {
		_, s, err := tx.Plan(id)
		for _, k := range kinds {
			err = errors.Join(err, tx.Append(&s, plan.Event{Plan: id, Kind: k, At: time.Now()}))
		}
		return err
	})
}

func params(m director.Machine) json.RawMessage {
	b, err := json.Marshal(planner.VMParams{
		Machine: m, Disk: 30 * model.GiB, ImageName: "node",
		Network: model.Network{CIDR: netip.MustParsePrefix("10.64.0.0/16"), Gateway: netip.MustParseAddr("10.64.0.1")},
	})
	if err != nil {
		panic(err)
	}
	return b
}

// step runs the handler of the kind for the machine.
func (l *lab) step(ctx context.Context, env steps.Env, kind string, m director.Machine) error {
	return steps.Handlers(
		env,
	)[kind].Run(ctx, plan.Run{Step: plan.Step{Kind: kind, Params: params(m)}, Note: func(context.Context, string) {}})
}

// make brings the VM of the machine about, and writes it down.
func (l *lab) make(t *testing.T, m director.Machine) hypervisor.VM {
	t.Helper()
	if err := l.step(t.Context(), l.Env, planner.StepVMEnsure, m); err != nil {
		t.Fatal(err)
	}
	return l.vm(t, m)
}

func (l *lab) vm(t *testing.T, m director.Machine) hypervisor.VM {
	t.Helper()
	vms, err := l.list(t.Context(), "lab", false)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(vms, func(v hypervisor.VM) bool { return v.Stamp.Machine == m.ID })
	if i < 0 {
		t.Fatalf("there is no VM of %s", m.Name)
	}
	return vms[i]
}

// forget loses the row, as the restore of an older backup does.
func (l *lab) forget(t *testing.T, m director.Machine) {
	t.Helper()
	if _, err := l.Store.SQL().ExecContext(t.Context(), "DELETE FROM machines WHERE id = ?", m.ID); err != nil {
		t.Fatal(err)
	}
}

// found audits, and returns the kinds and names of what was found.
func (l *lab) found(t *testing.T) []string {
	t.Helper()
	r, err := l.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Name)
	}
	return out
}

func wantKind(t *testing.T, err error, kind director.Kind, words ...string) {
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

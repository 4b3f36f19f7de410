package planner

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

var update = flag.Bool("update", false, "rewrite golden files")

// demo is the world before the demo's cluster, with the documents of the model's own tests.
func demo(t testing.TB) World {
	t.Helper()
	text, err := os.ReadFile("../model/testdata/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := model.Parse(text, "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := World{
		Director: Director{ID: "d1", Address: "172.30.0.1", Registry: "172.30.0.1:5000", Playbooks: "tree1"},
		Bundle:   Bundle{Digest: "b1", ImageTags: map[string]string{"etcd": "v3.7.3", "coredns": "v1.14.6"}},
		Used:     map[netip.Addr]bool{},
	}
	for _, d := range docs {
		s := model.Stored{Document: d, UID: "u-" + strings.ToLower(string(d.Kind)), Generation: 1}
		switch d.Kind {
		case model.KindProvider:
			w.Provider = s
		case model.KindNetwork:
			w.Network = s
		case model.KindImage:
			w.Image = s
		case model.KindRelease:
			w.Release = s
		case model.KindCluster:
			w.Cluster = s
		}
	}
	return w
}

func TestGoldenCreate(t *testing.T) {
	t.Parallel()
	c, err := Create(demo(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/create.golden.json", c)
}

func TestGoldenDelete(t *testing.T) {
	t.Parallel()
	w := demo(t)
	w.Machines = ledger(t, w)
	c, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/delete.golden.json", c)
}

func golden(t *testing.T, path string, c plan.Content) {
	t.Helper()
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(b)); diff != "" {
		t.Errorf("%s is stale (make generate):\n%s", path, diff)
	}
}

// ledger is the machines of the demo's plan as rows.
func ledger(t *testing.T, w World) []director.Machine {
	t.Helper()
	c, err := Create(w)
	if err != nil {
		t.Fatal(err)
	}
	f, err := step.DecodeFacts(c)
	if err != nil {
		t.Fatal(err)
	}
	var rows []director.Machine
	for _, m := range f.Nodes {
		rows = append(rows, m.Row())
	}
	return rows
}

// Whoever reads of a failure reads whether the cluster is safe meanwhile, for every step of every operation.
func TestEveryStepSaysWhatIsSafe(t *testing.T) {
	t.Parallel()
	w := demo(t)
	created, err := Create(w)
	if err != nil {
		t.Fatal(err)
	}
	w.Machines = append(w.Machines, director.Machine{
		ID: "m1", Name: "demo-master-1", Role: director.RoleMaster, State: director.MachinePresent,
	})
	deleted, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range append(created.Steps, deleted.Steps...) {
		if s.Safety == "" || strings.HasSuffix(s.Safety, ".") {
			t.Errorf("%s says %q", s.ID, s.Safety)
		}
		got[s.ID] = s.Safety
	}
	for id, want := range map[string]string{
		"prepare/demo-master-1": safeNothingYet, "control_plane/demo-master-1": safeNoWorkloads,
		"verify/demo":        safeNodesRun,
		"cluster.ready/demo": safeRuns, "vm.delete/demo-master-1": safeDeleting, "cluster.forget/demo": safeDeleted,
	} {
		if got[id] != want {
			t.Errorf("%s: %q, want %q", id, got[id], want)
		}
	}
}

func TestSameWorldSameBytes(t *testing.T) {
	t.Parallel()
	w := demo(t)
	for i := range 1000 {
		w.Used[netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)})] = true // maps have no order
	}
	a, err1 := Create(w)
	b, err2 := Create(w)
	if err1 != nil || err2 != nil || plan.HashOf(a) != plan.HashOf(b) {
		t.Errorf("two plans of one world differ: %v %v", err1, err2)
	}
}

func TestPlanKeepsMachinesThatExist(t *testing.T) {
	t.Parallel()
	w := demo(t)
	first := ledger(t, w)
	w.Machines = first[:1]
	w.Machines[0].State, w.Machines[0].VMID = director.MachinePresent, "vm-1"
	for _, m := range first[:1] {
		w.Used[netip.MustParseAddr(m.Address)] = true
	}
	again := ledger(t, w)
	if again[0].ID != first[0].ID || again[0].Address != first[0].Address || again[0].MAC != first[0].MAC {
		t.Errorf("the existing master became %+v", again[0])
	}
	if again[1].Address == again[0].Address {
		t.Error("two nodes share an address")
	}
}

func TestANodeMadeAnewIsAnotherMachine(t *testing.T) {
	t.Parallel()
	w := demo(t)
	first := ledger(t, w)
	w.Machines = ledger(t, w)
	for i := range w.Machines {
		w.Machines[i].Deleted = time.Unix(1, 0)
	}
	again := ledger(t, w)
	for i := range first {
		if first[i].ID == again[i].ID || first[i].MAC == again[i].MAC {
			t.Errorf("%s has its predecessor's identity", again[i].Name)
		}
	}
}

func TestUsedAddressesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := demo(t)
	w.Used[netip.MustParseAddr("10.88.0.10")] = true
	for _, m := range ledger(t, w) {
		if m.Address == "10.88.0.10" || m.Address == "10.88.0.11" {
			t.Errorf("%s got %s, which is used or excluded", m.Name, m.Address)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*World)
		kind   director.Kind
	}{
		"pool exhausted": {
			func(w *World) { w.Network.Network.Pool.To = w.Network.Network.Pool.From }, director.KindExhausted,
		},
		"installed already": {
			func(w *World) { w.Installed = &Installed{Generation: 1, Cluster: *w.Cluster.Cluster} },
			director.KindConflict,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := demo(t)
			tt.change(&w)
			_, err := Create(w)
			if director.KindOf(err) != tt.kind || director.HintOf(err) == "" && tt.kind != director.KindInvalid {
				t.Errorf("got %v, want kind %s and what to do", err, tt.kind)
			}
		})
	}
}

func TestSharedNetworkSurvivesADeletion(t *testing.T) {
	t.Parallel()
	w := demo(t)
	w.Machines, w.Sharers = ledger(t, w), []string{"other"}
	c, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Steps {
		if s.Kind == step.NetworkDelete {
			t.Error("the plan deletes a network that another cluster uses")
		}
	}
}

func TestSpreadOverHosts(t *testing.T) {
	t.Parallel()
	w := demo(t)
	w.Provider.Provider.Libvirt.Hosts = []model.LibvirtHost{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	w.Host = map[string]int{"a": 1}
	w.Cluster.Cluster.Workers[0].Count = 4
	count := map[string]int{"a": 1}
	for _, m := range ledger(t, w) {
		count[m.Host]++
	}
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2}, count); diff != "" {
		t.Error(diff)
	}
}

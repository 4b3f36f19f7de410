package planner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// withDisks is a running cluster of three masters and three workers, all with data disks.
func withDisks(t *testing.T) World {
	t.Helper()
	w := running(t, 3, 3, v)
	want(&w, func(c *model.Cluster) { c.Masters.DataDisk, c.Workers[0].DataDisk = 2*model.GiB, 10*model.GiB })
	w.Installed.Cluster = *w.Cluster.Cluster
	return w
}

// volumes are the effects of the plan on data disks, and the disks that its steps destroy.
func volumes(t *testing.T, c plan.Content) (effects, doomed []string) {
	t.Helper()
	for _, s := range c.Steps {
		if s.Kind != step.VMDelete && s.Kind != step.VMEnsure {
			continue
		}
		var p step.VMParams
		if err := json.Unmarshal(s.Params, &p); err != nil {
			t.Fatal(err)
		}
		doomed = append(doomed, p.DeleteData...)
		for _, e := range s.Effects {
			if e.Object == "volume" && !s.Back() {
				effects = append(effects, e.Verb+" "+e.Name)
			}
		}
	}
	return effects, doomed
}

// Whatever takes VMs away keeps their data disks, and destroys them only on a person's word, with an approval that
// names each.
func TestDataDisksAreKept(t *testing.T) {
	t.Parallel()
	less := func(w *World) { want(w, func(c *model.Cluster) { c.Workers[0].Count = 2 }) }
	for name, tt := range map[string]struct {
		change  func(*World)
		request plan.Request
		disks   int
	}{
		"delete the cluster": {nil, plan.Request{Operation: plan.ClusterDelete}, 6},
		"scale in":           {less, plan.Request{}, 1},
		"a pool less": {
			func(w *World) { want(w, func(c *model.Cluster) { c.Workers = nil }) }, plan.Request{}, 3,
		},
		"delete a node": {nil, plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-worker-3"}}, 1},
	} {
		for _, data := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := withDisks(t)
				if tt.change != nil {
					tt.change(&w)
				}
				r := tt.request
				r.DeleteData = data
				var c plan.Content
				var err error
				switch {
				case r.Operation == plan.ClusterDelete:
					c, err = Delete(w, r)
				case r.Operation.OnNodes():
					c, err = Node(w, r)
				default:
					c, err = Apply(w, r)
				}
				ids(t, c, err)
				effects, doomed := volumes(t, c)
				verb, named := "keep", 0
				if data {
					verb = "delete"
				}
				for _, a := range c.Approvals {
					if strings.HasPrefix(a, "it destroys the data disk of demo-") &&
						strings.Contains(a, ".kaas-data, ") {
						named++
					}
				}
				if len(effects) != tt.disks ||
					slices.ContainsFunc(effects, func(e string) bool { return !strings.HasPrefix(e, verb+" ") }) {
					t.Errorf("data=%t: the effects are %q, want %s of %d", data, effects, verb, tt.disks)
				}
				if wantDoomed := map[bool]int{true: tt.disks}[data]; len(doomed) != wantDoomed || named != wantDoomed {
					t.Errorf(
						"data=%t: %d disks are destroyed and %d named in %q, want %d", data, len(doomed), named,
						c.Approvals, wantDoomed,
					)
				}
				if c.Request.DeleteData != data {
					t.Error("the request is not kept for the start")
				}
			})
		}
	}
}

// A rollback keeps the disk of the node that goes, whatever the request says.
func TestTheWayBackKeepsDisks(t *testing.T) {
	t.Parallel()
	w := withDisks(t)
	want(&w, func(c *model.Cluster) { c.Maintenance.Strategy = model.UpgradeReplace })
	w.Installed.Cluster = *w.Cluster.Cluster
	w.Releases = map[string]Release{v: {Name: "old", Release: *w.Release.Release, Bundle: w.Bundle}}
	w.Images = map[string]NodeImage{w.image(): {Document: w.Cluster.Cluster.Image, Image: *w.Image.Image}}
	release(&w, "v1.37.2")
	c, err := Apply(w, plan.Request{DeleteData: true})
	ids(t, c, err)
	back := 0
	for _, s := range c.Steps {
		if s.Kind == step.VMDelete && s.Back() {
			back++
			if strings.Contains(string(s.Params), "delete_data") {
				t.Errorf("%s destroys data: %s", s.ID, s.Params)
			}
		}
	}
	if back == 0 {
		t.Error("the plan has no rollback")
	}
}

func TestTakeOverDisks(t *testing.T) {
	t.Parallel()
	disk := director.KeptDisk{
		ID: "mold.kaas-data", Provider: "lab", Host: "lab", Machine: "mold", Serial: "kaas-data", Size: 1 << 30,
		Node: "demo-worker-4", Cluster: "demo",
	}
	change := func(set func(*director.KeptDisk)) director.KeptDisk {
		d := disk
		set(&d)
		return d
	}
	for name, tt := range map[string]struct {
		disk director.KeptDisk
		take map[string]string
		want string // of the error; empty for a plan
	}{
		"taken over":   {disk, map[string]string{"demo-worker-4": disk.ID}, ""},
		"another node": {disk, map[string]string{"demo-worker-9": disk.ID}, "does not make a VM"},
		"no such disk": {disk, map[string]string{"demo-worker-4": "m9.kaas-data"}, "keeps no disk"},
		"of somebody else": {
			change(func(d *director.KeptDisk) { d.Machine = "" }),
			map[string]string{"demo-worker-4": disk.ID},
			"did not make",
		},
		"taken by another": {
			change(func(d *director.KeptDisk) { d.Holder = "m7" }),
			map[string]string{"demo-worker-4": disk.ID},
			"has taken over",
		},
		"about to go": {
			change(func(d *director.KeptDisk) { d.Holder = director.DiskGoing }),
			map[string]string{"demo-worker-4": disk.ID},
			"is being deleted",
		},
		"offered, not used": {disk, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withDisks(t)
			w.Disks, w.Take = []director.KeptDisk{tt.disk}, tt.take
			want(&w, func(c *model.Cluster) { c.Workers[0].Count = 4 })
			c, err := Apply(w, plan.Request{AdoptDisks: tt.take})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			ids(t, c, err)
			var p step.VMParams
			for _, s := range c.Steps {
				if s.Kind == step.VMEnsure {
					if err := json.Unmarshal(s.Params, &p); err != nil {
						t.Fatal(err)
					}
				}
			}
			offered := slices.ContainsFunc(c.Warnings, func(w string) bool {
				return strings.Contains(w, "--adopt-disk demo-worker-4=mold.kaas-data")
			})
			if p.TakeDisk != tt.take["demo-worker-4"] || offered != (tt.take == nil) {
				t.Errorf("it takes %q over, and offers: %q", p.TakeDisk, c.Warnings)
			}
			if effects, _ := volumes(
				t, c,
			); tt.take != nil && !cmp.Equal(effects, []string{"change demo-worker-4 data"}) {
				t.Errorf("effects: %q", effects)
			}
		})
	}
}

// The disk of a former master, or one that holds a membership, does not begin a new cluster.
func TestNewClustersTakeOverData(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		node    string
		persist []string
		want    string
	}{
		"a worker":                  {"demo-worker-1", []string{"/var/lib/containerd"}, ""},
		"a worker with its kubelet": {"demo-worker-1", []string{"/var/lib/kubelet"}, "would begin a new cluster"},
		"a master":                  {"demo-master-1", nil, "cannot begin a new cluster"},
	} {
		w := demo(t)
		c := *w.Cluster.Cluster
		c.Workers = slices.Clone(c.Workers)
		c.Masters.DataDisk, c.Workers[0].DataDisk, c.Workers[0].Persist = model.GiB, model.GiB, tt.persist
		w.Cluster.Cluster = &c
		w.Used = map[netip.Addr]bool{}
		w.Disks, w.Take = []director.KeptDisk{{ID: "mold.kaas-data", Machine: "mold", Provider: "lab"}},
			map[string]string{tt.node: "mold.kaas-data"}
		got, err := Create(w)
		if tt.want == "" {
			ids(t, got, err)
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

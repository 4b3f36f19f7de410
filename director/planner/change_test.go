package planner

import (
	"encoding/json"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/playbooks"
)

// running is the world of the demo's cluster after its creation, with so many masters and workers at version.
func running(t *testing.T, masters, workers int, version string) World {
	t.Helper()
	w := demo(t)
	c := *w.Cluster.Cluster
	c.Masters.Count, c.Workers = masters, slices.Clone(c.Workers)
	c.Workers[0].Count = workers
	if masters > 1 {
		c.API.VIP = netip.MustParseAddr("10.88.0.5")
	}
	w.Cluster.Cluster = &c
	network := *w.Network.Network
	network.CIDR, network.Pool.To = netip.MustParsePrefix("10.88.0.0/16"), netip.MustParseAddr("10.88.255.0")
	w.Network.Network = &network
	w.Machines = ledger(t, w)
	w.Seen = map[string]Seen{}
	for i := range w.Machines {
		m := &w.Machines[i]
		m.State, m.Kubernetes, m.VMID = director.MachinePresent, version, "vm-"+m.Name
		w.Used[netip.MustParseAddr(m.Address)] = true
		w.Seen[m.Name] = Seen{Ready: true, Etcd: m.Role == director.RoleMaster}
	}
	w.Installed = &Installed{Generation: 1, Cluster: c}
	return w
}

// want changes the document of the cluster.
func want(w *World, change func(*model.Cluster)) {
	c := *w.Cluster.Cluster
	c.Workers = slices.Clone(c.Workers)
	change(&c)
	w.Cluster.Cluster = &c
	w.Cluster.Generation++
}

func release(w *World, version string) {
	w.Release.Release = &model.Release{Kubernetes: version, Bundle: "/bundles/" + version}
	want(w, func(c *model.Cluster) { c.Release = "r-" + version })
}

const v = "v1.37.1"

// hostKey is a public SSH host key.
const hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMBe3Lkx1Wd8XFJdJ5dEhvmEEHsLQYmoLY4n0UfLZkYi"

// ids returns the steps of a plan that passes its own check.
func ids(t *testing.T, c plan.Content, err error) []string {
	t.Helper()
	if err == nil {
		err = c.Check()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, s := range c.Steps {
		if s.Safety == "" {
			t.Errorf("%s does not say what is safe meanwhile", s.ID)
		}
		if s.Kind == step.Play {
			var p step.PlayParams
			if err := json.Unmarshal(s.Params, &p); err != nil {
				t.Fatal(err)
			}
			if _, err := fs.Stat(playbooks.FS(), p.Playbook); err != nil {
				t.Errorf("%s runs a playbook that is not there: %v", s.ID, err)
			}
		}
		out = append(out, s.ID)
	}
	return out
}

// runningPlans are the steps of plans for a cluster of so many masters and workers that runs, after a change of it.
var runningPlans = map[string]struct {
	masters, workers int
	change           func(*World)
	request          plan.Request
	want             []string
}{
	"nothing": {1, 1, nil, plan.Request{}, []string{}},
	"one worker more": {1, 1, func(w *World) {
		want(w, func(c *model.Cluster) { c.Workers[0].Count = 2 })
	}, plan.Request{}, []string{
		"release.push/k8s-1.37", "image.ensure/debian12-k8s-1.37", "vm.ensure/demo-worker-2",
		"vm.boot/demo-worker-2", "join/demo-worker-2",
		"node.ready/demo-worker-2", "cluster.ready/demo",
	}},
	"one worker less": {1, 2, func(w *World) {
		want(w, func(c *model.Cluster) { c.Workers[0].Count = 1 })
	}, plan.Request{}, []string{
		"drain/demo-worker-2", "delete/demo-worker-2", "node.left/demo-worker-2", "vm.delete/demo-worker-2",
		"cluster.ready/demo",
	}},
	"that worker less, and its VM stays": {
		1, 2, func(w *World) { want(w, func(c *model.Cluster) { c.Workers[0].Count = 1 }) },
		plan.Request{Nodes: []string{"demo-worker-1"}, KeepVM: true},
		[]string{"drain/demo-worker-1", "delete/demo-worker-1", "node.left/demo-worker-1", "cluster.ready/demo"},
	},
	"a worker that was taken out comes back": {1, 1, func(w *World) {
		w.Machines[1].Kubernetes, w.Machines[1].State = "", director.MachineDetached
	}, plan.Request{}, []string{
		"release.push/k8s-1.37", "image.ensure/debian12-k8s-1.37", "vm.ensure/demo-worker-1",
		"vm.boot/demo-worker-1", "join/demo-worker-1",
		"node.ready/demo-worker-1", "cluster.ready/demo",
	}},
	"a worker that others have recreated": {
		1, 1, nil,
		plan.Request{
			Operation: plan.NodeRejoin, Nodes: []string{"demo-worker-1"},
			HostKeys: map[string]string{"demo-worker-1": hostKey + " root@somewhere\n"},
		},
		[]string{
			"vm.adopt/demo-worker-1", "vm.boot/demo-worker-1", "join/demo-worker-1", "node.ready/demo-worker-1",
		},
	},
	"a dead worker goes without a drain": {
		1, 2, func(w *World) {
			want(w, func(c *model.Cluster) { c.Workers[0].Count = 1 })
			w.Seen["demo-worker-2"] = Seen{}
		},
		plan.Request{},
		[]string{
			"delete/demo-worker-2", "node.left/demo-worker-2", "vm.delete/demo-worker-2", "cluster.ready/demo",
		},
	},
	"two masters more, one after the other": {1, 0, func(w *World) {
		c := *w.Cluster.Cluster
		c.API.VIP = netip.MustParseAddr("10.88.0.5")
		w.Installed.Cluster, w.Cluster.Cluster = c, &c
		want(w, func(c *model.Cluster) { c.Masters.Count = 3 })
	}, plan.Request{}, []string{
		"release.push/k8s-1.37", "image.ensure/debian12-k8s-1.37",
		"vm.ensure/demo-master-2", "vm.boot/demo-master-2", "join/demo-master-2", "node.ready/demo-master-2",
		"vm.ensure/demo-master-3", "vm.boot/demo-master-3", "join/demo-master-3", "node.ready/demo-master-3",
		"api_balancer/demo", "cluster.ready/demo",
	}},
	"upgrade in place": {1, 1, func(w *World) { release(w, "v1.38.0") }, plan.Request{}, []string{
		"release.push/r-v1.38.0", "image.ensure/debian12-k8s-1.37",
		"drain/demo-master-1", "upgrade/demo-master-1", "node.ready/demo-master-1", "uncordon/demo-master-1",
		"pod_network/demo", "kube.traffic/demo", "drain/demo-worker-1", "snapshot.take/demo-worker-1",
		"upgrade/demo-worker-1", "node.ready/demo-worker-1", "uncordon/demo-worker-1", "snapshot.delete/demo-worker-1",
		"snapshot.revert-undo/demo-worker-1", "vm.boot-undo/demo-worker-1", "node.ready-undo/demo-worker-1",
		"uncordon-undo/demo-worker-1", "snapshot.delete-undo/demo-worker-1", "verify/demo", "cluster.ready/demo",
	}},
	"an upgrade that stopped half way": {1, 2, func(w *World) {
		release(w, "v1.38.0")
		w.Machines[0].Kubernetes, w.Machines[1].Kubernetes = "v1.38.0", "v1.38.0"
	}, plan.Request{}, []string{
		"release.push/r-v1.38.0", "image.ensure/debian12-k8s-1.37", "pod_network/demo", "kube.traffic/demo",
		"drain/demo-worker-2", "snapshot.take/demo-worker-2", "upgrade/demo-worker-2", "node.ready/demo-worker-2",
		"uncordon/demo-worker-2", "snapshot.delete/demo-worker-2", "snapshot.revert-undo/demo-worker-2",
		"vm.boot-undo/demo-worker-2", "node.ready-undo/demo-worker-2", "uncordon-undo/demo-worker-2",
		"snapshot.delete-undo/demo-worker-2", "verify/demo", "cluster.ready/demo",
	}},
	"upgrade by new VMs of the same name": {3, 1, func(w *World) {
		release(w, "v1.38.0")
		w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReconstitute
		w.Machines[1].Kubernetes, w.Machines[2].Kubernetes = "v1.38.0", "v1.38.0"
		w.Machines[0].Image, w.Machines[1].Image, w.Machines[2].Image, w.Machines[3].Image = "old",
			w.Cluster.Cluster.Image, w.Cluster.Cluster.Image, "old"
	}, plan.Request{}, []string{
		"release.push/r-v1.38.0", "image.ensure/debian12-k8s-1.37",
		"drain/demo-master-1", "delete/demo-master-1", "node.left/demo-master-1", "vm.remove/demo-master-1",
		"vm.ensure/demo-master-1", "vm.boot/demo-master-1",
		"join/demo-master-1", "node.ready/demo-master-1", "addons/demo-master-3", "pod_network/demo",
		"kube.traffic/demo",
		"drain/demo-worker-1", "delete/demo-worker-1", "node.left/demo-worker-1", "vm.remove/demo-worker-1",
		"vm.ensure/demo-worker-1", "vm.boot/demo-worker-1",
		"join/demo-worker-1", "node.ready/demo-worker-1", "verify/demo", "cluster.ready/demo",
	}},
	// The document of the image names another file: VMs that were made of the old one are renewed, but never an
	// only master.
	"an image that moved on": {1, 1, func(w *World) {
		w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReconstitute
		w.Machines[0].Image, w.Machines[1].Image = "debian12-k8s-1.37-ffffffffffff",
			"debian12-k8s-1.37-ffffffffffff"
	}, plan.Request{}, []string{
		"release.push/k8s-1.37", "image.ensure/debian12-k8s-1.37", "kube.traffic/demo",
		"drain/demo-worker-1", "delete/demo-worker-1", "node.left/demo-worker-1", "vm.remove/demo-worker-1",
		"vm.ensure/demo-worker-1", "vm.boot/demo-worker-1",
		"join/demo-worker-1", "node.ready/demo-worker-1", "verify/demo", "cluster.ready/demo",
	}},
	"an image that moved on, in place": {1, 1, func(w *World) {
		w.Machines[0].Image, w.Machines[1].Image = "debian12-k8s-1.37-ffffffffffff",
			"debian12-k8s-1.37-ffffffffffff"
	}, plan.Request{}, []string{}},
	"upgrade by new nodes": {1, 1, func(w *World) {
		release(w, "v1.38.0")
		w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReplace
		w.Machines[0].Kubernetes = "v1.38.0"
		w.Machines[0].Image = w.Cluster.Cluster.Image
	}, plan.Request{}, []string{
		"release.push/r-v1.38.0", "image.ensure/debian12-k8s-1.37", "pod_network/demo", "kube.traffic/demo",
		"vm.ensure/demo-worker-2", "vm.boot/demo-worker-2", "join/demo-worker-2", "node.ready/demo-worker-2",
		"drain/demo-worker-1", "delete/demo-worker-1", "node.left/demo-worker-1", "vm.delete/demo-worker-1",
		"verify/demo", "cluster.ready/demo",
	}},
	"drain": {
		1, 1, nil,
		plan.Request{Operation: plan.NodeDrain, Nodes: []string{"demo-worker-1"}},
		[]string{"drain/demo-worker-1"},
	},
	"cordon and the master too": {
		1, 1, nil,
		plan.Request{Operation: plan.NodeCordon, Nodes: []string{"demo-worker-1", "demo-master-1"}},
		[]string{"cordon/demo-worker-1", "cordon/demo-master-1"},
	},
	"delete a worker and keep its VM": {
		1, 1, nil,
		plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-worker-1"}, KeepVM: true},
		[]string{"drain/demo-worker-1", "delete/demo-worker-1", "node.left/demo-worker-1"},
	},
	"delete without a drain, on a person's word": {
		1, 1, nil,
		plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-worker-1"}, KeepVM: true, Undrained: true},
		[]string{"delete/demo-worker-1", "node.left/demo-worker-1"},
	},
	"delete what is out already": {1, 1, func(w *World) {
		w.Machines[1].Kubernetes, w.Machines[1].State = "", director.MachineDetached
	}, plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-worker-1"}, KeepVM: true}, []string{}},
	"rejoin": {
		1, 1, nil,
		plan.Request{Operation: plan.NodeRejoin, Nodes: []string{"demo-worker-1"}},
		[]string{
			"vm.ensure/demo-worker-1", "vm.boot/demo-worker-1", "join/demo-worker-1", "node.ready/demo-worker-1",
		},
	},
	"rejoin a master, and the balancers learn of it": {3, 0, func(w *World) {
		w.Machines[0].Kubernetes, w.Machines[0].State = "", director.MachineDetached
	}, plan.Request{Operation: plan.NodeRejoin, Nodes: []string{"demo-master-1"}}, []string{
		"vm.ensure/demo-master-1", "vm.boot/demo-master-1", "join/demo-master-1", "node.ready/demo-master-1",
		"api_balancer/demo",
	}},
	"upgrade while nodes are out": {3, 1, func(w *World) {
		release(w, "v1.38.0")
		for i := range w.Machines {
			if w.Machines[i].Name == "demo-master-1" || w.Machines[i].Name == "demo-worker-1" {
				w.Machines[i].Kubernetes, w.Machines[i].State = "", director.MachineDetached
			}
		}
	}, plan.Request{}, []string{
		"release.push/r-v1.38.0", "image.ensure/debian12-k8s-1.37",
		"drain/demo-master-2", "upgrade/demo-master-2", "node.ready/demo-master-2", "uncordon/demo-master-2",
		"drain/demo-master-3", "upgrade/demo-master-3", "node.ready/demo-master-3", "uncordon/demo-master-3",
		"pod_network/demo", "verify/demo", "cluster.ready/demo",
	}},
	"replace a dead first master": {3, 0, func(w *World) {
		w.Seen["demo-master-1"] = Seen{}
	}, plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-master-1"}}, []string{
		"delete/demo-master-1", "node.left/demo-master-1", "vm.remove/demo-master-1", "vm.ensure/demo-master-1",
		"vm.boot/demo-master-1", "join/demo-master-1",
		"node.ready/demo-master-1",
	}},
}

func TestPlansOfARunningCluster(t *testing.T) {
	t.Parallel()
	for name, tt := range runningPlans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, tt.masters, tt.workers, v)
			if tt.change != nil {
				tt.change(&w)
			}
			make := Apply
			if tt.request.Operation.OnNodes() {
				make = Node
			}
			c, err := make(w, tt.request)
			if diff := cmp.Diff(tt.want, ids(t, c, err)); diff != "" {
				t.Error(diff)
			}
			again, err := make(w, tt.request)
			if err != nil || plan.HashOf(again) != plan.HashOf(c) {
				t.Errorf("the same request in the same world gives another plan: %v", err)
			}
		})
	}
}

// TestAPlanHasTheDocumentBefore looks at plans that put a document into force, and at one that does not. The document
// before is no part of the hash.
func TestAPlanHasTheDocumentBefore(t *testing.T) {
	t.Parallel()
	w := running(t, 1, 1, v)
	w.Installed.Labels = map[string]string{"env": "test"}
	want(&w, func(c *model.Cluster) { c.Workers[0].Count = 2 })
	c, err := Apply(w, plan.Request{})
	if err != nil || c.Before == nil {
		t.Fatalf("%v, %v", c.Before, err)
	}
	var was model.Cluster
	if err := json.Unmarshal(c.Before.Spec, &was); err != nil {
		t.Fatal(err)
	}
	if c.Before.Generation != 1 || was.Workers[0].Count != 1 || c.Before.Labels["env"] != "test" {
		t.Errorf("before: generation %d, %s, %v", c.Before.Generation, c.Before.Spec, c.Before.Labels)
	}
	without := c
	without.Before = nil
	if plan.HashOf(without) != plan.HashOf(c) {
		t.Error("the document before is in the hash")
	}
	if b, err := Backup(w, plan.Request{Operation: plan.ClusterBackup}); err == nil && b.Before != nil {
		t.Error("a backup puts no document into force")
	}
	first := demo(t)
	if c, err = Create(first); err != nil || c.Before != nil {
		t.Errorf("the first document of a cluster has %v before it: %v", c.Before, err)
	}
}

// A master that is off does not stop the balancers of the others, and one that the plan brings back gets its own.
func TestBalancersOfDeadMasters(t *testing.T) {
	t.Parallel()
	dead := func(w *World, name string) { w.Seen[name] = Seen{} }
	for name, tt := range map[string]struct {
		change  func(*World)
		request plan.Request
		limits  [][]string
		warns   bool
	}{
		"all are well": {
			nil,
			plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-master-2"}},
			[][]string{{"demo-master-1", "demo-master-3", "demo-master-4", "demo-master-5"}},
			false,
		},
		"another one is dead": {
			func(w *World) { dead(w, "demo-master-4") },
			plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-master-2"}},
			[][]string{{"demo-master-1", "demo-master-3", "demo-master-5"}},
			true,
		},
		"the one that goes is dead": {
			func(w *World) { dead(w, "demo-master-2") },
			plan.Request{Operation: plan.NodeDelete, Nodes: []string{"demo-master-2"}},
			[][]string{{"demo-master-1", "demo-master-3", "demo-master-4", "demo-master-5"}},
			false,
		},
		"the one that comes back was dead, and another one is": {
			func(w *World) {
				w.Machines[1].Kubernetes, w.Machines[1].State = "", director.MachineDetached
				dead(w, "demo-master-2")
				dead(w, "demo-master-5")
			},
			plan.Request{Operation: plan.NodeRejoin, Nodes: []string{"demo-master-2"}},
			[][]string{{"demo-master-1", "demo-master-2", "demo-master-3", "demo-master-4"}},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, 5, 1, v)
			if tt.change != nil {
				tt.change(&w)
			}
			c, err := Node(w, tt.request)
			if err != nil {
				t.Fatal(err)
			}
			var limits [][]string
			for _, s := range c.Steps {
				var p step.PlayParams
				if err := json.Unmarshal(s.Params, &p); err != nil {
					t.Fatal(err)
				}
				if p.Playbook == "api_balancer.yml" {
					limits = append(limits, p.Limit)
				}
			}
			if diff := cmp.Diff(tt.limits, limits); diff != "" {
				t.Error(diff)
			}
			warned := slices.ContainsFunc(c.Warnings, func(s string) bool {
				return strings.Contains(s, "does not answer: its balancer learns")
			})
			if warned != tt.warns {
				t.Errorf("it warns of %q", c.Warnings)
			}
		})
	}
}

// One worker more costs the same however many there are (B3): the peers' cost grows with the cluster.
func TestOneWorkerMoreTouchesOneNode(t *testing.T) {
	t.Parallel()
	plans := map[int]plan.Content{}
	for _, n := range []int{3, 300} {
		w := running(t, 1, n, v)
		want(&w, func(c *model.Cluster) { c.Workers[0].Count++ })
		c, err := Apply(w, plan.Request{})
		ids(t, c, err)
		plans[n] = c
		for _, s := range c.Steps {
			if s.Node != "" && s.Node != "demo-worker-"+strconv.Itoa(n+1) {
				t.Errorf("%s touches %s", s.ID, s.Node)
			}
			if s.Kind == step.Play && s.Node == "" {
				t.Errorf("%s runs on more than the new node", s.ID)
			}
		}
	}
	if len(plans[3].Steps) != len(plans[300].Steps) {
		t.Errorf("%d steps with 3 workers, %d with 300", len(plans[3].Steps), len(plans[300].Steps))
	}
}

func TestWorkersAreUpgradedInAWindow(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 9, v)
	release(&w, "v1.38.0")
	w.Cluster.Cluster.Maintenance.MaxUnavailable, w.Cluster.Cluster.Maintenance.PerHost = 4, 2
	c, err := Apply(w, plan.Request{})
	ids(t, c, err)
	if diff := cmp.Diff(
		[]plan.Window{{ID: "workers", Size: 4, PerHost: 2, Goal: "run v1.38.0"}}, c.Windows,
	); diff != "" {
		t.Error(diff)
	}
	mastersDone := -1
	for i, s := range c.Steps {
		if strings.Contains(s.ID, "/demo-worker-") && s.Window != "workers" {
			t.Errorf("%s is outside of the window", s.ID)
		}
		if s.ID == "uncordon/demo-master-3" {
			mastersDone = i
		}
	}
	// No master is begun before the one before it is back, and no worker before the last master is.
	for _, pair := range [][2]string{
		{"drain/demo-master-2", "uncordon/demo-master-1"},
		{"drain/demo-master-3", "uncordon/demo-master-2"},
		{"drain/demo-worker-1", "kube.traffic/demo"},
		{"kube.traffic/demo", "pod_network/demo"},
		{"pod_network/demo", c.Steps[mastersDone].ID},
	} {
		i := slices.IndexFunc(c.Steps, func(s plan.Step) bool { return s.ID == pair[0] })
		if !slices.Contains(c.Steps[i].Needs, pair[1]) {
			t.Errorf("%s needs %v, and not %s", pair[0], c.Steps[i].Needs, pair[1])
		}
	}
}

func TestThreeMasters(t *testing.T) {
	t.Parallel()
	w := demo(t)
	w.Cluster.Cluster.Masters.Count = 3
	w.Cluster.Cluster.API.VIP = netip.MustParseAddr("10.88.0.5")
	w.Provider.Provider.Libvirt.Hosts = []model.LibvirtHost{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	w.Host = map[string]int{"a": 7, "b": 7}
	c, err := Create(w)
	ids(t, c, err)
	golden(t, "testdata/create-ha.golden.json", c)
	hosts := map[string]bool{}
	for _, m := range c.Machines {
		if m.Role == "master" {
			hosts[m.Host] = true
		}
	}
	if len(hosts) != 3 {
		t.Errorf("the masters share hosts: %v", hosts)
	}
}

// What is recorded of an upgrade must not make members of nodes that were out meanwhile.
func TestUpgradeRecordsMembersAlone(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 2, v)
	release(&w, "v1.38.0")
	for i := range w.Machines {
		if strings.HasSuffix(w.Machines[i].Name, "-1") {
			w.Machines[i].Kubernetes, w.Machines[i].State = "", director.MachineDetached
		}
	}
	c, err := Apply(w, plan.Request{})
	ids(t, c, err)
	var p step.ClusterParams
	if err := json.Unmarshal(c.Steps[len(c.Steps)-1].Params, &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"demo-master-2", "demo-master-3", "demo-worker-2"}, p.Nodes); diff != "" {
		t.Error(diff)
	}
}

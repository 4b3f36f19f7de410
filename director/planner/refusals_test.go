package planner

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Who takes over a VM made by others says so, and is told which key that is about.
func TestAnAdoptionIsAPersonsWord(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 1, v)
	c, err := Node(w, plan.Request{
		Operation: plan.NodeRejoin, Nodes: []string{"demo-master-2", "demo-worker-1"},
		HostKeys: map[string]string{"demo-master-2": hostKey},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Approvals) != 1 ||
		!strings.Contains(c.Approvals[0], "VM named demo-master-2 made by others") ||
		!strings.Contains(c.Approvals[0], "SHA256:") {
		t.Errorf("it asks for %q", c.Approvals)
	}
	for _, s := range c.Steps {
		if s.ID == "node.ready/demo-master-2" && strings.Contains(string(s.Params), `"image"`) {
			t.Errorf("it records the image of a VM made by others: %s", s.Params)
		}
	}
}

func TestBadHostKeys(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		op   plan.Operation
		keys map[string]string
		says string
	}{
		"of another node": {
			plan.NodeRejoin,
			map[string]string{"demo-worker-2": hostKey},
			"host_keys.demo-worker-2: the node is not one of the request's",
		},
		"a private key": {
			plan.NodeRejoin,
			map[string]string{"demo-worker-1": "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"},
			"is not one public SSH host key",
		},
		"two keys": {
			plan.NodeRejoin,
			map[string]string{"demo-worker-1": hostKey + "\n" + hostKey},
			"is not one public SSH host key",
		},
		"cut off": {
			plan.NodeRejoin, map[string]string{"demo-worker-1": "ssh-ed25519 AAAA"}, "is not one public SSH host key",
		},
		"of another type": {
			plan.NodeRejoin,
			map[string]string{"demo-worker-1": strings.Replace(hostKey, "ed25519", "rsa", 1)},
			"is not one public SSH host key",
		},
		"for a drain": {
			plan.NodeDrain, map[string]string{"demo-worker-1": hostKey}, "host keys are for node.rejoin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Node(running(
				t, 1, 1, v,
			), plan.Request{Operation: tt.op, Nodes: []string{"demo-worker-1"}, HostKeys: tt.keys})
			if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func requestOn(op plan.Operation, names ...string) plan.Request {
	return plan.Request{Operation: op, Nodes: names}
}

// runningRefusals are requests for a cluster of so many masters that runs, and why there is no plan for them.
var runningRefusals = map[string]struct {
	masters int
	change  func(*World)
	request plan.Request
	kind    director.Kind
	says    string
}{
	"a skipped minor": {
		1, func(w *World) { release(w, "v1.39.0") },
		plan.Request{},
		director.KindConflict,
		"would skip 1 minor version",
	},
	"a downgrade": {
		1, func(w *World) { release(w, "v1.36.9") }, plan.Request{}, director.KindConflict, "does not go back",
	},
	"another network": {
		1, func(w *World) { want(w, func(c *model.Cluster) { c.Pods.MTU = 9000 }) },
		plan.Request{},
		director.KindConflict, "mtu: 9000",
	},
	"masters without VIP": {
		1, func(w *World) { want(w, func(c *model.Cluster) { c.Masters.Count = 3 }) },
		plan.Request{},
		director.KindConflict, "without a virtual address",
	},
	"release and numbers at once": {1, func(w *World) {
		release(w, "v1.38.0")
		want(w, func(c *model.Cluster) { c.Workers[0].Count = 9 })
	}, plan.Request{}, director.KindConflict, "at once"},
	"an unknown node": {
		1, nil, requestOn(plan.NodeDrain, "demo-worker-9"), director.KindNotFound, `no node "demo-worker-9"`,
	},
	"no node": {1, nil, requestOn(plan.NodeDrain), director.KindInvalid, "names no node"},
	"a node twice": {
		1, nil, requestOn(plan.NodeDrain, "demo-worker-1", "demo-worker-1"), director.KindInvalid, "named twice",
	},
	"the last master":      {1, nil, requestOn(plan.NodeDelete, "demo-master-1"), director.KindConflict, "last master"},
	"the only master anew": {1, nil, requestOn(plan.NodeRejoin, "demo-master-1"), director.KindConflict, "only master"},
	"two of three masters": {
		3, nil, requestOn(plan.NodeDelete, "demo-master-1", "demo-master-2"), director.KindConflict,
		"without demo-master-2 cluster demo would have 1 of the 3 masters that its document asks for, and 2 " +
			"must stay",
	},
	"a second master anew while one is out": {3, func(w *World) {
		w.Machines[0].Kubernetes, w.Machines[0].State = "", director.MachineDetached
	}, requestOn(plan.NodeReplace, "demo-master-2"), director.KindConflict, "would have 1 of the 3 masters"},
	"three of five masters": {
		5, nil, requestOn(plan.NodeDelete, "demo-master-1", "demo-master-2", "demo-master-3"), director.KindConflict,
		"would have 2 of the 5 masters that its document asks for, and 3 must stay",
	},
	"an upgrade by new VMs while a master is out": {3, func(w *World) {
		release(w, "v1.38.0")
		w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReconstitute
		w.Machines[0].Kubernetes, w.Machines[0].State = "", director.MachineDetached
	}, plan.Request{}, director.KindConflict, "would have 1 of the 3 masters"},
	"a rejoin before the upgrade": {3, func(w *World) {
		release(w, "v1.38.0")
		w.Machines[0].Kubernetes, w.Machines[0].State = "", director.MachineDetached
	}, requestOn(plan.NodeRejoin, "demo-master-1"), director.KindConflict, "its document wants v1.38.0"},
	"a master beside a dead one": {
		3, func(w *World) { w.Seen["demo-master-2"] = Seen{} }, requestOn(plan.NodeDelete, "demo-master-1"),
		director.KindConflict, "lose its quorum",
	},
	"a master that nobody sees": {
		3, func(w *World) { w.Seen, w.Blind = nil, "connection refused" }, requestOn(plan.NodeDelete, "demo-master-1"),
		director.KindConflict, "connection refused",
	},
	"a drain of what is out": {
		1, func(w *World) { w.Machines[1].Kubernetes, w.Machines[1].State = "", director.MachineDetached },
		requestOn(plan.NodeDrain, "demo-worker-1"), director.KindConflict, "not a node",
	},
	"a scale in of a node that stays": {
		1, func(w *World) { want(w, func(c *model.Cluster) { c.Workers[0].Count = 2 }) },
		plan.Request{Nodes: []string{"demo-worker-1"}},
		director.KindConflict, "would stay",
	},
}

func TestRefusalsOnARunningCluster(t *testing.T) {
	t.Parallel()
	for name, tt := range runningRefusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, tt.masters, 1, v)
			if tt.change != nil {
				tt.change(&w)
			}
			make := Apply
			if tt.request.Operation != "" {
				make = Node
			}
			_, err := make(w, tt.request)
			if director.KindOf(err) != tt.kind || director.HintOf(err) == "" ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf(
					"got %v (hint %q), want kind %s, what to do, and %q", err, director.HintOf(err), tt.kind, tt.says,
				)
			}
		})
	}
}

func TestASecondHost(t *testing.T) {
	t.Parallel()
	onHost := func(w World, host string) (names []string) {
		for _, m := range w.Machines {
			if m.Host == host {
				names = append(names, m.Name)
			}
		}
		return names
	}
	out := func(w World, names ...string) {
		for i := range w.Machines {
			if slices.Contains(names, w.Machines[i].Name) {
				w.Machines[i].Kubernetes, w.Machines[i].State = "", director.MachineDetached
			}
		}
	}
	const again = "directorctl phase post-node-unlock --host h1 --task-id ID --wait"
	tests := map[string]struct {
		masters, workers, allowed int
		away, leaving             []string
		host                      string
		says, hint                string // says "" for allowed
	}{
		"the first host":                    {3, 3, 1, nil, nil, "h1", "", ""},
		"the first host, with many workers": {3, 9, 1, nil, nil, "h1", "", ""},
		"the same host again":               {3, 3, 1, []string{"demo-worker-1"}, nil, "h1", "", ""},
		"a master is out": {
			3, 3, 9,
			[]string{"demo-master-1"},
			nil, "h2",
			"host h1 is out with demo-master-1 of cluster demo, and without the masters on host h2 cluster demo " +
				"would have 1 of the 3 masters that its document asks for, and 2 must stay",
			again,
		},
		"a master is on its way out": {
			3, 3, 9, nil, []string{"demo-master-1"}, "h2", "host h1 is out with demo-master-1", again,
		},
		"a master of five is out": {
			5, 3, 9,
			[]string{"demo-master-3"},
			nil, "h2",
			"host h3 is out with demo-master-3 of cluster demo, and without the masters on host h2 cluster demo " +
				"would have 2 of the 5 masters",
			"--host h3 ",
		},
		"a worker is out": {
			3, 3, 1,
			[]string{"demo-worker-1"},
			nil, "h2",
			"host h1 is out with demo-worker-1 of cluster demo, and with demo-worker-2 on host h2 2 workers would " +
				"be out, and spec.maintenance.maxUnavailable is 1",
			again,
		},
		"a worker is out, and two may be": {3, 3, 2, []string{"demo-worker-1"}, nil, "h2", "", ""},
		"a worker is on its way out": {
			3, 3, 1, nil, []string{"demo-worker-1"}, "h2", "host h1 is out with demo-worker-1", again,
		},
		"workers out on the other hosts": {
			3, 6, 2, []string{"demo-worker-1"}, nil, "h2", "3 workers would be out", again,
		},
		"the only master": {
			1, 3, 1, nil, nil, "h1", "would have 0 of the 1 master", "a cluster with one master does nothing",
		},
		"two of five masters on a host": {5, 3, 1, nil, nil, "h1", "", ""},
		"two hosts of five masters": {
			5, 3, 9, []string{"demo-master-1"}, nil, "h2", "would have 2 of the 5 masters", again,
		},
		"most masters on one host": {
			3, 0, 1, nil, nil, "same", "without the masters on host same cluster demo would have 0 of the 3 masters",
			"put them on different hosts",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, tt.masters, tt.workers, v)
			w.Cluster.Cluster.Maintenance.MaxUnavailable = tt.allowed
			for i := range w.Machines { // masters and workers by turns: demo-worker-2 is on h2
				w.Machines[i].Host = "h" + strconv.Itoa((number(w.Machines[i])-1)%3+1)
				if tt.host == "same" {
					w.Machines[i].Host = tt.host
				}
			}
			out(w, tt.away...)
			err := TakeOut(w, tt.host, onHost(w, tt.host), tt.leaving)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.says) ||
				!strings.Contains(director.HintOf(err), tt.hint) {
				t.Errorf("got %v\nhint %s\nwant %q\nhint %q", err, director.HintOf(err), tt.says, tt.hint)
			}
		})
	}
}

package planner

import (
	"errors"
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

// onHosts is a running cluster on hosts h1 to h4: master N and worker N on host N.
func onHosts(t *testing.T, masters, workers int) World {
	t.Helper()
	w := running(t, masters, workers, v)
	p := model.Stored{Document: w.Provider.Document}
	p.Provider = &model.Provider{
		Type: model.ProviderSim,
		Sim:  &model.Sim{Hosts: []model.SimHost{{Name: "h1"}, {Name: "h2"}, {Name: "h3"}, {Name: "h4"}}},
	}
	w.Provider = p
	w.Host = map[string]int{}
	for i := range w.Machines {
		m := &w.Machines[i]
		m.Host = "h" + m.Name[len(m.Name)-1:]
		w.Host[m.Host]++
	}
	w.All = []string{"h1", "h2", "h3", "h4"}
	w.Down = map[string]string{}
	return w
}

// losing is w while the host does not answer; declared if somebody has said that it is lost.
func losing(w World, host string, declared bool) World {
	w.Down = map[string]string{host: "silence"}
	if declared {
		w.Lost = map[string]bool{host: true}
	}
	for _, m := range w.Machines {
		if m.Host == host {
			delete(w.Seen, m.Name)
		}
	}
	return w
}

func TestMoves(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		w    World
		r    plan.Request
		want []string // steps
	}{
		"a worker that answers": {w: onHosts(t, 1, 2), r: replacing("h3", "", "demo-worker-2"), want: []string{
			"drain/demo-worker-2", "delete/demo-worker-2", "node.left/demo-worker-2", "vm.move/demo-worker-2",
			"vm.ensure/demo-worker-2", "vm.boot/demo-worker-2",
			"join/demo-worker-2", "node.ready/demo-worker-2",
		}},
		"a worker on a lost host": {w: losing(
			onHosts(t, 1, 2), "h2", true,
		), r: replacing("", "h2", "demo-worker-2"), want: []string{
			"delete/demo-worker-2", "node.left/demo-worker-2", "vm.move/demo-worker-2", "vm.ensure/demo-worker-2",
			"vm.boot/demo-worker-2", "join/demo-worker-2",
			"node.ready/demo-worker-2",
		}},
		"a master on a lost host": {w: losing(
			onHosts(t, 3, 1), "h2", true,
		), r: replacing("", "h2", "demo-master-2"), want: []string{
			"delete/demo-master-2", "node.left/demo-master-2", "vm.move/demo-master-2", "vm.ensure/demo-master-2",
			"vm.boot/demo-master-2", "join/demo-master-2",
			"node.ready/demo-master-2", "api_balancer/demo",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Node(tt.w, tt.r)
			if diff := cmp.Diff(tt.want, ids(t, c, err)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			again, err := Node(tt.w, tt.r)
			if err != nil || plan.HashOf(again) != plan.HashOf(c) {
				t.Errorf("planned twice it is another plan: %v", err)
			}
		})
	}
}

// replacing asks for the nodes on another host.
func replacing(host, lost string, names ...string) plan.Request {
	return plan.Request{Operation: plan.NodeReplace, Nodes: names, Host: host, LostHost: lost}
}

func TestMovesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		w   World
		r   plan.Request
		err string
	}{
		"nobody has said that the host is lost": {
			w: losing(onHosts(t, 1, 2), "h2", false), r: replacing("", "", "demo-worker-2"),
			err: "it is unknown whether its VM runs",
		},
		"and a target does not say it": {
			w: losing(onHosts(t, 1, 2), "h2", false), r: replacing("h3", "", "demo-worker-2"),
			err: "it is unknown whether its VM runs",
		},
		"the host answers": {
			w: onHosts(t, 1, 2), r: replacing("", "h2", "demo-worker-2"), err: "lost_host: host h2 answers",
		},
		"the node is alive": {w: func() World {
			w := losing(onHosts(t, 1, 2), "h2", true)
			w.Alive = map[string]string{"demo-worker-2": "it answers at 10.88.0.12"}
			return w
		}(), r: replacing("", "h2", "demo-worker-2"), err: "lost_host: demo-worker-2 is alive: it answers"},
		"two nodes on two hosts": {
			w: losing(onHosts(t, 1, 3), "h2", true), r: replacing("", "h2", "demo-worker-2", "demo-worker-3"),
			err: "demo-worker-3 is on host \"h3\", and not on h2",
		},
		"to a host that is not there": {
			w: onHosts(t, 1, 2), r: replacing("h9", "", "demo-worker-2"), err: "has no host \"h9\"",
		},
		"to a host that is lost too": {w: func() World {
			w := losing(onHosts(t, 1, 2), "h2", true)
			w.Lost["h3"] = true
			return w
		}(), r: replacing("h3", "h2", "demo-worker-2"), err: "host: host h3 was declared lost"},
		"where it is": {
			w: onHosts(t, 1, 2), r: replacing("h2", "", "demo-worker-2"), err: "is on host h2 already",
		},
		"the only master": {
			w: losing(onHosts(t, 1, 2), "h1", true), r: replacing("", "h1", "demo-master-1"),
			err: "is the last master of cluster demo",
		},
		"beside another master": {
			w: losing(onHosts(t, 3, 1), "h2", true), r: replacing("h3", "h2", "demo-master-2"),
			err: "host h3 has a master of cluster demo, and h4 has none",
		},
		"without quorum": {w: func() World {
			w := losing(onHosts(t, 3, 1), "h2", true)
			delete(w.Seen, "demo-master-3")
			return w
		}(), r: replacing("", "h2", "demo-master-2"), err: "etcd would lose its quorum"},
		"nowhere to go": {w: func() World {
			w := losing(onHosts(t, 1, 2), "h2", true)
			w.Down["h1"], w.Down["h3"], w.Down["h4"] = "silence", "silence", "silence"
			return w
		}(), r: replacing("", "h2", "demo-worker-2"), err: "has no other host that answers"},
		"rejoined where it was": {
			w:   losing(onHosts(t, 1, 2), "h2", true),
			r:   plan.Request{Operation: plan.NodeRejoin, Nodes: []string{"demo-worker-2"}},
			err: "which was declared lost",
		},
		"a host for a drain": {
			w:   onHosts(t, 1, 2),
			r:   plan.Request{Operation: plan.NodeDrain, Nodes: []string{"demo-worker-2"}, Host: "h3"},
			err: "are for node.replace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Node(tt.w, tt.r)
			text := ""
			if e, ok := errors.AsType[*director.Error](err); ok {
				text = e.Error()
				for _, f := range e.Fields {
					text += "; " + f.String()
				}
			}
			if !strings.Contains(text, tt.err) {
				t.Errorf("got %q, want %q", text, tt.err)
			}
		})
	}
}

// What follows a VM that was given up shares nothing with it but the name; what follows one that is deleted keeps its
// addresses.
func TestSuccessorsOnOtherHosts(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"deleted": false, "given up": true} {
		w := onHosts(t, 1, 3)
		r := plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-worker-2"}, Host: "h4"}
		if lost {
			w, r.LostHost = losing(w, "h2", true), "h2"
		}
		was := w.Machines[slices.IndexFunc(w.Machines, func(m director.Machine) bool {
			return m.Name == "demo-worker-2"
		})]
		c, err := Node(w, r)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := step.DecodeFacts(c)
		if err != nil || len(facts.Moves) != 1 {
			t.Fatalf("%s: %+v, %v", name, facts.Moves, err)
		}
		is := facts.Moves[0]
		if is.ID == was.ID || is.MAC == was.MAC || is.Name != was.Name || is.Host != "h4" ||
			(is.Address != was.Address) != lost || w.Used[netip.MustParseAddr(is.Address)] != !lost {
			t.Errorf("%s: %+v follows %+v", name, is, was)
		}
		if now := facts.Moved([]string{
			"demo-worker-2",
		}); !slices.ContainsFunc(now.Nodes, func(m plan.MachineSpec) bool { return m.ID == is.ID }) ||
			slices.ContainsFunc(now.Nodes, func(m plan.MachineSpec) bool { return m.ID == was.ID }) {
			t.Errorf("%s: inventories have %+v", name, now.Nodes)
		}
		// A plan made when the ledger has the successor moves nothing.
		w = onHosts(t, 1, 3)
		i := slices.IndexFunc(w.Machines, func(m director.Machine) bool { return m.Name == "demo-worker-2" })
		row := is.Row()
		row.State, row.Kubernetes = director.MachinePresent, v
		w.Machines[i] = row
		if next, err := Apply(w, plan.Request{}); err != nil || len(next.Steps) > 0 {
			t.Errorf("%s: the next plan has %d steps, %v", name, len(next.Steps), err)
		}
	}
}

// An address that the document gives to the node cannot be had while its lost VM may have it.
func TestMoveWithAStaticAddress(t *testing.T) {
	t.Parallel()
	w := losing(onHosts(t, 1, 2), "h2", true)
	i := slices.IndexFunc(w.Machines, func(m director.Machine) bool { return m.Name == "demo-worker-2" })
	want(&w, func(c *model.Cluster) {
		c.Workers[0].Interfaces = []model.Interface{
			{
				Role: model.NICInternal, Network: c.Network,
				Addresses: []netip.Addr{netip.MustParseAddr("10.88.9.9"), netip.MustParseAddr(w.Machines[i].Address)},
			},
		}
	})
	_, err := Node(w, plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-worker-2"}, LostHost: "h2"})
	if e, ok := errors.AsType[*director.Error](err); !ok || e.Kind != director.KindConflict || len(e.Fields) != 1 ||
		!strings.Contains(e.Msg, "its lost VM may still have it") {
		t.Errorf("got %v", err)
	}
}

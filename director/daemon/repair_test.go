package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// clinic is a cluster of three masters and three workers that asks for automatic repair.
type clinic struct {
	t   *testing.T
	d   *Daemon
	api *client.Client
	vms hypervisor.Backend
	now time.Time
}

func openClinic(t *testing.T, maintenance string) *clinic {
	t.Helper()
	d, api := created(t, simulating(t, threeHosts+"  maintenance: {"+maintenance+"}\n"))
	b, err := d.services.env.Backends.Backend(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	return &clinic{t, d, api, b, time.Now()}
}

func (c *clinic) vm(name string) hypervisor.VM {
	c.t.Helper()
	all, err := c.vms.List(c.t.Context(), hypervisor.Filter{Director: c.d.services.director.ID})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, vm := range all {
		if vm.Name == name {
			return vm
		}
	}
	return hypervisor.VM{}
}

func (c *clinic) off(name string) {
	c.t.Helper()
	if err := c.vms.SetPower(c.t.Context(), c.vm(name).ID, hypervisor.PowerOff); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) remove(name string) {
	c.t.Helper()
	vm := c.vm(name)
	if err := c.vms.Delete(c.t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp}); err != nil {
		c.t.Fatal(err)
	}
}

// round is two looks that are so far apart that what is ill at both is mended. It returns the plan that was begun,
// ended, or what is said in its place.
func (c *clinic) round() (operation, said string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	before := c.plans()
	for range 2 {
		if err := c.d.services.nodes.Repair(ctx, c.now); err != nil {
			c.t.Fatal(err)
		}
		c.now = c.now.Add(11 * time.Minute)
	}
	after := c.plans()
	if len(after) == len(before) {
		v, err := c.api.Nodes(ctx, "demo")
		if err != nil {
			c.t.Fatal(err)
		}
		return "", v.AutoRepair
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		p, err := c.api.Plan(ctx, after[0])
		if err != nil {
			c.t.Fatal(err)
		}
		if status := plan.Status(p.Status); status.Ended() || status == plan.StatusParked {
			if p.CreatedBy != "automatic repair" {
				c.t.Errorf("plan %s was made by %q", p.ID, p.CreatedBy)
			}
			return p.Operation + " " + strings.TrimSpace(p.Status), p.Message
		}
	}
}

func (c *clinic) plans() []string {
	c.t.Helper()
	ids, err := c.d.services.db.Plans(c.t.Context(), store.PlanFilter{Cluster: "demo"})
	if err != nil {
		c.t.Fatal(err)
	}
	return ids
}

// A VM that is off is switched on, one that is off again is recreated, and then it is a person's turn. The budget ends
// repairs of others too.
func TestAutomaticRepair(t *testing.T) {
	t.Parallel()
	c := openClinic(t, "repair: {auto: true}")
	want := func(operation, said string) {
		t.Helper()
		if gotOp, gotSaid := c.round(); gotOp != operation || !strings.Contains(gotSaid, said) {
			t.Fatalf("it did %q and says %q, want %q and %q", gotOp, gotSaid, operation, said)
		}
	}
	want("", "all nodes are well")
	first := c.vm("demo-w-1")
	c.off("demo-w-1")
	want("node.rejoin done", "")
	if vm := c.vm("demo-w-1"); vm.ID != first.ID || vm.Power != hypervisor.PowerOn {
		t.Errorf("the VM is %+v, and was %s", vm, first.ID)
	}
	c.off("demo-w-1")
	want("node.replace done", "")
	if vm := c.vm("demo-w-1"); vm.ID == first.ID || vm.Power != hypervisor.PowerOn {
		t.Errorf("the VM was not recreated: %+v", vm)
	}
	c.off("demo-w-1")
	want("", "was recreated by plan")
	c.remove("demo-w-2")
	want("node.replace done", "")
	c.off("demo-master-1")
	want("", "the budget of 3 repairs a day is used up")
	c.now = c.now.Add(48 * time.Hour)
	want("node.rejoin done", "") // of the master, which comes first
}

// Many nodes that are ill at once have one cause, and no VM is destroyed for it; neither is when the hypervisor or the
// cluster cannot be asked.
func TestAutomaticRepairKeepsOffOutages(t *testing.T) {
	t.Parallel()
	c := openClinic(t, "repair: {auto: true, maxUnhealthyPercent: 20}")
	c.off("demo-w-1")
	c.off("demo-w-2")
	if op, said := c.round(); op != "" || !strings.Contains(said, "2 of 6 nodes are ill at once") {
		t.Fatalf("it did %q and says %q", op, said)
	}
	seen, err := c.api.Stream(t.Context(), client.StreamFilter{})
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range seen.Items {
		if e.By == "automatic repair" && strings.HasPrefix(e.What, "stopped: 2 of 6 nodes") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times that it has stopped", told)
	}
}

// Nothing is repaired without a request.
func TestRepairIsOffByDefault(t *testing.T) {
	t.Parallel()
	c := openClinic(t, "repair: {after: 1m}")
	c.off("demo-w-1")
	if op, said := c.round(); op != "" || said != "" {
		t.Fatalf("it did %q and says %q", op, said)
	}
}

package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// outage is a cluster on a provider of several hosts, which can be lost.
type outage struct {
	t     *testing.T
	d     *Daemon
	api   *client.Client
	world *sim.World
}

func openOutage(t *testing.T, documents string) *outage {
	t.Helper()
	d, api := created(t, simulating(t, documents))
	b, err := d.services.env.Backends.Backend(t.Context(), "lab")
	if err != nil {
		t.Fatal(err)
	}
	return &outage{t, d, api, b.(*sim.Backend).World()}
}

// do makes the plan, approves and starts it, and waits for its end. It returns the plan as it was made, with what it
// ended with.
func (o *outage) do(r plan.Request) (made, ended wire.Plan) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	made, err := o.api.MakePlan(ctx, "demo", r)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.api.StartPlan(ctx, made.ID, made.Hash); err != nil {
		o.t.Fatal(err)
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		ended, err := o.api.Plan(ctx, made.ID)
		if err != nil {
			o.t.Fatal(err)
		}
		if status := plan.Status(ended.Status); status.Ended() || status == plan.StatusParked {
			return made, ended
		}
	}
}

func (o *outage) done(r plan.Request) wire.Plan {
	o.t.Helper()
	made, ended := o.do(r)
	if ended.Status != string(plan.StatusDone) {
		o.t.Fatalf("the plan is %s: %s", ended.Status, ended.Message)
	}
	return made
}

func (o *outage) refused(r plan.Request, want string) {
	o.t.Helper()
	p, err := o.api.MakePlan(o.t.Context(), "demo", r)
	if err == nil {
		o.t.Fatalf("plan %s was made: %s", p.ID, p.Summary)
	}
	text := err.Error() + " | " + director.HintOf(err)
	if e, ok := errors.AsType[*director.Error](err); ok {
		for _, f := range e.Fields {
			text += " | " + f.String()
		}
	}
	if !strings.Contains(text, want) {
		o.t.Errorf("it was refused with %q, want %q", text, want)
	}
}

func (o *outage) node(name string) wire.Node {
	o.t.Helper()
	v, err := o.api.Nodes(o.t.Context(), "demo")
	if err != nil {
		o.t.Fatal(err)
	}
	i := slices.IndexFunc(v.Items, func(n wire.Node) bool { return n.Name == name })
	if i < 0 {
		return wire.Node{}
	}
	return v.Items[i]
}

// vms are all VMs of the name, on any host, whether it can be reached or not.
func (o *outage) vms(name string) []hypervisor.VM {
	o.t.Helper()
	var out []hypervisor.VM
	all, err := sim.Open(o.world.Clone().Reach()).List(o.t.Context(),
		hypervisor.Filter{Director: o.d.services.director.ID})
	if err != nil {
		o.t.Fatal(err)
	}
	for _, vm := range all {
		if vm.Name == name {
			out = append(out, vm)
		}
	}
	return out
}

func (o *outage) sweep() {
	o.t.Helper()
	if err := o.d.fencing.Sweep(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outage) audit() []string {
	o.t.Helper()
	r, err := o.d.services.vms.Audit(o.t.Context(), "lab")
	if err != nil {
		o.t.Fatal(err)
	}
	var out []string
	for _, p := range r.Providers {
		if p.Err != nil {
			out = append(out, p.Err.Error())
		}
	}
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Name+" "+f.Host)
	}
	return out
}

func (o *outage) nothingToDo() {
	o.t.Helper()
	p, err := o.api.MakePlan(o.t.Context(), "demo", plan.Request{})
	if err != nil || len(p.Steps) > 0 {
		o.t.Errorf("the next plan has %d steps (%s), %v", len(p.Steps), p.Summary, err)
	}
}

// withDisks is the cluster of three masters and three workers, whose workers have data disks.
var withDisks = strings.Replace(threeHosts, "{name: w, count: 3}", "{name: w, count: 3, dataDisk: 1GiB}", 1)

// A worker whose host is gone is made on another one only after a person has said so. Its old VM is powered off when
// the host is back, and never started.
func TestLostHostOfAWorker(t *testing.T) {
	t.Parallel()
	o := openOutage(t, withDisks)
	was := o.node("demo-w-1")
	old := o.vms("demo-w-1")[0]
	replace := plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-w-1"}}
	lost := replace
	lost.LostHost = was.Host
	o.refused(lost, "host "+was.Host+" answers")

	o.world.SetReachable(was.Host, false)
	if n := o.node("demo-w-1"); n.HostDown == "" || n.Power != "" || n.Repair != string(plan.NodeReplace) {
		t.Errorf("the node on the silent host is %+v", n)
	}
	o.refused(replace, "--lost-host "+was.Host)
	for field, r := range map[string]plan.Request{
		"host: Provider/lab has no host": {
			Operation: plan.NodeReplace, Nodes: replace.Nodes, LostHost: was.Host, Host: "h9",
		},
		"is on host " + was.Host +
			" already": {Operation: plan.NodeReplace, Nodes: replace.Nodes, LostHost: was.Host, Host: was.Host},
		"and not on h9":        {Operation: plan.NodeReplace, Nodes: replace.Nodes, LostHost: "h9"},
		"are for node.replace": {Operation: plan.NodeDelete, Nodes: replace.Nodes, LostHost: was.Host},
	} {
		o.refused(r, field)
	}

	made := o.done(lost)
	words := strings.Join(made.Approvals, "\n")
	if want := "host " + was.Host + " is off, or cut off for good: its VM demo-w-1 (" + string(old.ID) +
		") of node demo-w-1 will never run again"; !strings.Contains(words, want) {
		t.Errorf("it asks for agreement with %q, want %q", words, want)
	}
	if !strings.Contains(words, "stays behind on host "+was.Host) {
		t.Errorf("the data disk is not among the words: %q", words)
	}
	is := o.node("demo-w-1")
	if is.Host == was.Host || is.Address == was.Address || is.Power != "on" || is.HostLost || is.Problem != "" {
		t.Errorf("the node is %+v, and was %+v", is, was)
	}
	if all := o.vms("demo-w-1"); len(all) != 2 || all[0].Stamp == all[1].Stamp {
		t.Errorf("its VMs are %+v", all)
	}
	o.nothingToDo()
	o.sweep()
	if n := o.node("demo-w-1"); n.Host != is.Host {
		t.Errorf("the node went from %s to %s", is.Host, n.Host)
	}

	// The host is back, with the VM that was never off.
	o.world.SetReachable(was.Host, true)
	before := o.world.Calls(sim.VerbEnsure)
	o.sweep()
	o.sweep()
	for _, vm := range o.vms("demo-w-1") {
		if on := vm.Power == hypervisor.PowerOn; on == (vm.ID == old.ID) {
			t.Errorf("VM %s on %s is %s", vm.ID, vm.Host, vm.Power)
		}
	}
	if n := o.world.Calls(sim.VerbEnsure); n != before {
		t.Errorf("%d VMs were asked for by the sweep", n-before)
	}
	if got := o.audit(); !slices.Contains(got, "fenced demo-w-1 "+was.Host) {
		t.Errorf("the audit finds %q", got)
	}
	o.nothingToDo()
	if _, err := o.d.services.vms.Reclaim(t.Context(), "ann", "lab", string(old.ID), false); err != nil {
		t.Fatal(err)
	}
	o.sweep()
	if got := o.audit(); len(got) > 0 {
		t.Errorf("behind the reclaim the audit finds %q", got)
	}
	v, err := o.api.Disks(t.Context(), client.DiskFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Items) != 1 || v.Items[0].Host != was.Host || v.Items[0].State != "kept" || v.Items[0].Node != "demo-w-1" {
		t.Errorf("the disks are %+v", v.Items)
	}
}

// A master of three goes to another host while the other two keep the quorum. What else was on the lost host follows
// without another word about the host, and what is not replaced can be deleted.
func TestLostHostOfAMaster(t *testing.T) {
	t.Parallel()
	o := openOutage(t, threeHosts)
	host := o.node("demo-master-1").Host
	v, err := o.api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	var others, masters []string
	for _, n := range v.Items {
		if n.Host == host && n.Name != "demo-master-1" {
			others = append(others, n.Name)
		}
		if n.Host != host && n.Role == "master" {
			masters = append(masters, n.Host)
		}
	}
	if len(others) != 1 || len(masters) != 2 {
		t.Fatalf("on %s are %q, and masters on %q", host, others, masters)
	}
	o.world.SetReachable(host, false)
	r := plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-master-1"}, LostHost: host, Host: masters[0]}
	o.refused(r, "masters of a cluster stay apart")
	r.Host = ""
	made := o.done(r)
	if !slices.ContainsFunc(made.Steps, func(s wire.Step) bool { return strings.HasPrefix(s.ID, "api_balancer/") }) {
		t.Error("the balancers do not learn of the master's new address")
	}
	is := o.node("demo-master-1")
	if is.Host == host || slices.Contains(masters, is.Host) || is.Power != "on" {
		t.Errorf("the master is %+v", is)
	}
	made = o.done(plan.Request{Operation: plan.NodeReplace, Nodes: others})
	if words := strings.Join(
		made.Approvals, "\n",
	); !strings.Contains(words, "of node "+others[0]+" will never run again") {
		t.Errorf("it asks for agreement with %q", words)
	}
	o.nothingToDo()
	o.world.SetReachable(host, true)
	o.sweep()
	on := 0
	for _, vm := range o.vms("demo-master-1") {
		if vm.Power == hypervisor.PowerOn {
			on++
		}
	}
	if on != 1 {
		t.Errorf("%d VMs of the master run", on)
	}
}

// The last master cannot go anywhere: its etcd is the cluster.
func TestLostHostOfTheOnlyMaster(t *testing.T) {
	t.Parallel()
	o := openOutage(t, strings.Replace(threeHosts, "masters: {count: 3}", "masters: {count: 1}", 1))
	host := o.node("demo-master-1").Host
	o.world.SetReachable(host, false)
	o.refused(
		plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-master-1"}, LostHost: host},
		"is the last master of cluster demo",
	)
	if all, err := o.d.services.db.LostHosts(t.Context(), ""); err != nil || len(all) > 0 {
		t.Errorf("a refused request has declared %+v lost, %v", all, err)
	}
}

// A node that is well goes to another host with its addresses: its VM is deleted first.
func TestMoveToAnotherHost(t *testing.T) {
	t.Parallel()
	o := openOutage(t, withDisks)
	was := o.node("demo-w-2")
	target := map[bool]string{true: "h2", false: "h1"}[was.Host == "h1"]
	made := o.done(plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-w-2"}, Host: target})
	if !slices.ContainsFunc(made.Steps, func(s wire.Step) bool { return strings.HasPrefix(s.ID, "drain/") }) {
		t.Error("a node that answers was not drained")
	}
	is := o.node("demo-w-2")
	if is.Host != target || is.Address != was.Address || is.Problem != "" {
		t.Errorf("the node is %+v, and was %+v", is, was)
	}
	if all := o.vms("demo-w-2"); len(all) != 1 || all[0].Host != target {
		t.Errorf("its VMs are %+v", all)
	}
	o.nothingToDo()
	if got := o.audit(); len(got) > 0 {
		t.Errorf("the audit finds %q", got)
	}
	v, err := o.api.Disks(t.Context(), client.DiskFilter{})
	if err != nil || len(v.Items) != 1 || v.Items[0].Host != was.Host || v.Items[0].State != "kept" {
		t.Errorf("the disks are %+v, %v", v.Items, err)
	}
}

// A host that was declared lost holds nothing else up: other nodes are added and deleted, what is on it is shown and
// can be given up, and a host that is back before its node was moved is none the worse.
func TestDeclaredLost(t *testing.T) {
	t.Parallel()
	o := openOutage(
		t,
		strings.Replace(
			withDisks, "{name: h1}, {name: h2}, {name: h3}, {name: spare}", "{name: h1}, {name: h2}, {name: h3}", 1,
		),
	)
	host := o.node("demo-w-1").Host
	var here []wire.Node
	v, err := o.api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Items {
		if n.Host == host && n.Role == "master" {
			here = append(here, n)
		}
	}
	if len(here) != 1 {
		t.Fatalf("on %s are %+v", host, here)
	}
	o.world.SetReachable(host, false)
	o.done(plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-w-1"}, LostHost: host})
	master := o.node(here[0].Name)
	if !master.HostLost || master.Problem == "" || master.Power != "" {
		t.Errorf("the master on the lost host is %+v", master)
	}
	if got := o.audit(); !slices.Equal(got, []string{"lost-host " + master.Name + " " + host}) {
		t.Errorf("the audit finds %q", got)
	}
	o.refused(
		plan.Request{Operation: plan.NodeRejoin, Nodes: []string{master.Name}},
		"directorctl node replace demo "+master.Name,
	)
	made := o.done(plan.Request{Operation: plan.NodeDelete, Nodes: []string{master.Name}})
	if words := strings.Join(
		made.Approvals, "\n",
	); !strings.Contains(words, "will never run again with this identity") {
		t.Errorf("it asks for agreement with %q", words)
	}
	o.world.SetReachable(host, true)
	o.sweep()
	for _, vm := range o.vms(master.Name) {
		if vm.Power == hypervisor.PowerOn {
			t.Errorf("VM %s on %s is %s", vm.ID, vm.Host, vm.Power)
		}
	}
	lost, err := o.d.services.db.LostHosts(t.Context(), "lab")
	if err != nil || len(lost) > 0 {
		t.Errorf("lost are %+v, %v", lost, err)
	}
}

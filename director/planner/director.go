package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// DirectorPool is the pool of the machine of a director's VM. It is of no document.
const DirectorPool = "director"

const opDirector = "planner.director"

// OfDirector returns the document of a director as that of a cluster of one machine, which is how the world knows its
// VM, and its image as a document of its own.
func OfDirector(doc model.Stored) (cluster, image model.Stored) {
	d := doc.Director
	c := model.Cluster{Provider: d.Provider, Network: d.Network, Image: model.ApplianceImage}
	c.Masters.Count = 1
	c.Masters.VMSize = model.VMSize{CPUs: d.CPUs, Memory: d.Memory, Disk: d.Disk, DataDisk: d.DataDisk}
	im := d.Image.AsImage()
	cluster, image = doc, doc
	cluster.Cluster, image.Image = &c, &im
	return cluster, image
}

// ofDirector reports whether the world is that of a director's VM.
func (w World) ofDirector() bool { return w.Cluster.Kind == model.KindDirector }

// MakeDirector returns the plan that makes the VM of a director, or continues an unfinished one.
// Errors: conflict if the director is there already or its address is taken, exhausted if the network has no address.
func MakeDirector(w World) (plan.Content, error) {
	name := w.Cluster.Metadata.Name
	if w.Installed != nil {
		return plan.Content{}, conflict(opDirector, "director "+name+" is there already",
			"to make it once more, delete it first: directorctl director delete "+name)
	}
	m, err := w.directorMachine()
	if err != nil {
		return plan.Content{}, err
	}
	d := w.draft(plan.DirectorCreate)
	d.Request = plan.Request{Operation: plan.DirectorCreate}
	d.Summary = fmt.Sprintf(
		"Make director %s: a VM at %s, with a data disk of %s, on provider %s.", name, m.Address, m.DataDisk,
		w.Cluster.Cluster.Provider,
	)
	made := d.ensure(m, encode(w.params().vmParams(m)), []string{d.makeNetwork(), d.imageEnsure()}, group{})
	d.directorRecord(m, d.directorReady(m, made, group{}), group{})
	return d.ofVM(m), nil
}

// ofVM returns the finished content of a plan that makes the VM of m.
func (d *draft) ofVM(m sized) plan.Content {
	d.concerns(m)
	d.Facts = encode(step.Facts{
		Cluster: d.Cluster, UID: d.w.Cluster.UID, Document: *d.w.Cluster.Cluster, Network: *d.w.Network.Network,
		Nodes: []plan.MachineSpec{plan.SpecOf(m.Machine)},
	})
	return d.done()
}

// directorReady waits until the director on the VM of m says that it is ready.
func (d *builder) directorReady(m sized, made string, in group) string {
	s := in.step(step.DirectorReady, m.Name, "Wait until director "+m.Name+" is ready")
	s.Needs, s.Params = []string{made}, encode(d.w.params().directorParams(m))
	s.Attempts, s.Timeout, s.Estimate = 2, 15*time.Minute, 90*time.Second
	if in.window != "" { // another VM was there, and clusters wait for it
		s.Attempts, s.Timeout = 3, 5*time.Minute
	}
	return d.add(s)
}

// directorRecord writes down what the VM of m was made by.
func (d *builder) directorRecord(m sized, ready string, in group) string {
	s := in.step(step.DirectorRecord, m.Name, "Record what was made")
	s.Needs, s.Params = []string{ready}, encode(d.w.params().directorParams(m))
	s.Attempts, s.Timeout, s.Estimate = 3, time.Minute, time.Second
	return d.add(s)
}

// directorMachine returns the machine of the director: that of an unfinished creation, or a new one.
func (w World) directorMachine() (sized, error) {
	for _, m := range w.alive() {
		return w.sized(m), nil
	}
	doc, name := w.Cluster.Director, w.Cluster.Metadata.Name
	m := w.sized(director.Machine{
		ID: MachineID(w.Cluster.UID, name, len(w.Machines)), ClusterUID: w.Cluster.UID, Cluster: name, Name: name,
		Role: director.RoleDirector, Pool: DirectorPool, Provider: doc.Provider, Network: doc.Network,
		Image: w.image(), CPUs: doc.CPUs, Memory: int64(doc.Memory), State: director.MachineIntended,
	})
	m.MAC = w.macs().give(m.ID)
	static := netip.Addr{}
	if doc.Address.IsValid() {
		static = doc.Address
	}
	if err := (allocator{w}).fill(doc.Network, []slot{{&m.Address, static, "spec.address"}}); err != nil {
		return m, err
	}
	load, hosts := map[string]int{}, w.hosts().open()
	for _, host := range hosts {
		load[host] = w.Host[host]
	}
	m.Host = doc.Host
	switch {
	case m.Host == "":
		m.Host = leastLoaded(load, w.Peers)
	case !slices.Contains(hosts, m.Host):
		return m, director.Invalid(opDirector, "director "+name+" cannot be placed", []director.Field{{
			Path: "Director/" + name + ": spec.host", Hint: "one of " + strings.Join(hosts, ", "),
			Msg: fmt.Sprintf("Provider/%s has no host %q that VMs can be made on", doc.Provider, m.Host),
		}})
	}
	return m, nil
}

// DeleteDirector returns the plan that takes the VM of a director away with its address, its secrets and its document.
// The data disk is kept unless r says otherwise.
func DeleteDirector(w World, r plan.Request) (plan.Content, error) {
	d := w.draft(plan.DirectorDelete)
	d.Request = plan.Request{Operation: plan.DirectorDelete, DeleteData: r.DeleteData}
	var gone []string
	var m sized
	for _, machine := range w.alive() {
		m = w.sized(machine)
		d.concerns(m)
		d.Approvals = append(d.Approvals, fmt.Sprintf(
			"it destroys the VM of director %s, and nothing manages its clusters from then on", d.Cluster,
		))
		gone = append(gone, d.deleteVM(m, nil, group{}))
	}
	gone = d.deleteNetworks(gone)
	s := plan.Step{
		ID: step.DirectorForget + "/" + d.Cluster, Kind: step.DirectorForget, Title: "Forget the director",
		Needs: gone, Params: encode(w.params().directorParams(m)),
		Effects: []plan.Effect{
			{Verb: "delete", Object: "document", Name: "Director/" + d.Cluster},
			{Verb: "delete", Object: "secret", Name: d.Cluster},
		},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	}
	d.add(s)
	d.Summary = fmt.Sprintf(
		"Delete director %s: its VM with its address, and its document%s.", d.Cluster, d.dataDisks(),
	)
	return d.done(), nil
}

func (w worldParams) directorParams(m sized) step.DirectorParams {
	return step.DirectorParams{
		UID: w.Cluster.UID, Name: w.Cluster.Metadata.Name, Generation: w.Cluster.Generation,
		Labels: w.Cluster.Metadata.Labels, Document: *w.Cluster.Director, Machine: plan.SpecOf(m.Machine),
	}
}

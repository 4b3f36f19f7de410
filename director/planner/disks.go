package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// dataDisk is a data disk of a machine, as far as the ledger and the documents tell.
type dataDisk struct {
	id   string
	size model.Size
	of   string // the node that left it behind, if the machine took it over
}

// worldDisks knows the data disks of a world, and those that outlived their VMs.
type worldDisks struct{ World }

func (w World) disks() worldDisks { return worldDisks{w} }

// String renders the disk for people.
func (d dataDisk) String() string {
	text := d.id
	if d.size > 0 {
		text += ", " + d.size.String()
	}
	return text
}

// dataDisks are the data disks of the machine: the one that it took over, or its own.
func (w worldDisks) dataDisks(m sized) []dataDisk {
	var out []dataDisk
	for _, d := range w.Disks {
		if d.Holder == m.ID {
			out = append(out, dataDisk{d.ID, model.Size(d.Size), d.Node})
		}
	}
	size := m.DataDisk
	if size == 0 && w.Installed != nil { // its pool may be gone from the document
		for _, p := range w.Installed.Cluster.Workers {
			if p.Name == m.Pool {
				size = p.DataDisk
			}
		}
	}
	if len(out) == 0 && size > 0 {
		out = append(out, dataDisk{id: director.DiskID(m.ID, director.DataDiskSerial), size: size})
	}
	return out
}

// disksLeft says what becomes of the data disks of m, whose VM goes for good: they are kept, unless the request says
// otherwise. What a plan undoes keeps them whatever the request says.
func (d *builder) disksLeft(m sized, back bool) (effects []plan.Effect, doomed []string) {
	for _, disk := range d.w.disks().dataDisks(m) {
		e := plan.Effect{Verb: "keep", Object: "volume", Name: m.Name + " data", Detail: disk.String()}
		if d.Request.DeleteData && !back {
			e.Verb = "delete"
			doomed = append(doomed, disk.id)
			d.Approvals = append(
				d.Approvals, fmt.Sprintf("it destroys the data disk of %s (%s) with everything on it", m.Name, disk),
			)
		}
		effects = append(effects, e)
	}
	return effects, doomed
}

// dataDisks says in the plan's summary what becomes of the data disks of its machines; "" where there are none.
func (d *builder) dataDisks() string {
	kept, gone := 0, 0
	for _, s := range d.Steps {
		for _, e := range s.Effects {
			if s.Kind == step.VMDelete && e.Object == "volume" {
				if e.Verb == "keep" {
					kept++
				} else {
					gone++
				}
			}
		}
	}
	switch {
	case gone > 0:
		return ", and " + director.Count(gone, "data disk")
	case kept > 0:
		return "; " + director.Count(kept, "data disk") + " kept"
	}
	return ""
}

// takes checks which kept disks the new nodes take over, and binds the nodes to the hosts of the disks, in place.
// Errors: invalid, conflict or not_found for a disk or a node that does not fit.
func (w worldDisks) takes(add []sized) error {
	const op = "planner.disks"
	used := map[string]string{}
	for _, node := range slices.Sorted(maps.Keys(w.Take)) {
		id := w.Take[node]
		if other := used[id]; other != "" {
			return invalid(
				op, fmt.Sprintf("the disk %s is for %s and for %s", id, other, node), "a disk is for one node",
			)
		}
		used[id] = node
		i := slices.IndexFunc(add, func(m sized) bool { return m.Name == node })
		if i < 0 || add[i].State != director.MachineIntended || add[i].VMID != "" {
			return conflict(op, "the plan does not make a VM of the name "+node+", which is to take over the disk "+id,
				"the new nodes are: "+strings.Join(names(add), ", "))
		}
		disk, err := w.keptDisk(id)
		if err != nil {
			return err
		}
		m := &add[i]
		switch {
		case m.DataDisk == 0:
			return conflict(
				op, fmt.Sprintf("pool %s has no data disk, so %s cannot take over %s", m.Pool, node, id),
				"give the pool dataDisk in the document",
			)
		case w.Installed == nil && m.Role == director.RoleMaster:
			return conflict(
				op, "the disk of a former master cannot begin a new cluster: "+id,
				"restore the cluster from a backup of etcd, or let a worker take the disk over",
			)
		case w.Installed == nil && holdsNode(m.persist):
			return conflict(op, fmt.Sprintf(
				"%s would begin a new cluster with what its former one left in %s", node, strings.Join(m.persist, ", "),
			),
				"create the cluster first, and add the node with the disk afterwards")
		}
		if disk.Host != "" {
			m.Host = disk.Host
		}
	}
	return nil
}

// holdsNode tells whether a node's membership is among what is persisted.
func holdsNode(persist []string) bool {
	return slices.ContainsFunc(persist, func(p string) bool {
		return strings.HasPrefix(p+"/", "/etc/kubernetes/") || strings.HasPrefix(p+"/", "/var/lib/kubelet/") ||
			strings.HasPrefix(p+"/", "/var/lib/etcd/")
	})
}

// keptDisk returns the disk with the id that a new node can take over.
func (w worldDisks) keptDisk(id string) (director.KeptDisk, error) {
	const op = "planner.disks"
	var free []string
	for _, d := range w.Disks {
		if d.Free() {
			free = append(free, d.ID)
		}
		switch {
		case d.ID != id:
		case d.Foreign():
			return d, conflict(
				op, "the director did not make the disk "+id, "attach it with the hypervisor's own tools",
			)
		case d.Holder == director.DiskGoing:
			return d, conflict(op, "the disk "+id+" is being deleted", "")
		case d.CopyOf != "":
			return d, conflict(op, "the disk "+id+" is a copy that plan "+d.Plan+" made", "see: directorctl disks list")
		case d.Holder != "":
			return d, conflict(op, "machine "+d.Holder+" has taken over the disk "+id, "see: directorctl disks list")
		default:
			return d, nil
		}
	}
	return director.KeptDisk{}, director.Errorf(
		director.KindNotFound, op, "provider %s keeps no disk %q", w.Cluster.Cluster.Provider, id,
	).
		WithHint("it keeps: %s", strings.Join(free, ", "))
}

// offer warns of kept disks that bear the name of a node that is made without them.
func (d *builder) offer(m sized) {
	if m.DataDisk == 0 || d.w.Take[m.Name] != "" || m.State != director.MachineIntended {
		return
	}
	for _, k := range d.w.Disks {
		if k.Free() && k.Node == m.Name && k.Machine != m.ID {
			d.warn(
				fmt.Sprintf(
					"the data disk of an earlier %s was kept; to attach it: --adopt-disk %s=%s", m.Name, m.Name, k.ID,
				),
			)
		}
	}
}

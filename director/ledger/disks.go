package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// DiskState is the state of a disk that no longer belongs to its machine.
type DiskState string

// The states of disks.
const (
	DiskKept  DiskState = "kept"  // a node has left it behind, and another can take it over
	DiskTaken DiskState = "taken" // a machine has taken it over
	// its VM was given up with its host, and may write to it until it is seen to be off.
	DiskLost    DiskState = "lost"
	DiskForeign DiskState = "foreign" // attached by someone else; the director never deletes it
	DiskOrphan  DiskState = "orphan"  // it has the stamp, and the ledger has neither its machine nor the disk
	DiskMissing DiskState = "missing" // the ledger keeps it, and the hypervisor does not have it
	DiskCopy    DiskState = "copy"    // of another disk, for the plan that made it
	DiskGoing   DiskState = "going"   // its deletion was asked for and has not come to its end
)

// DiskStates returns every state in a fixed order.
func DiskStates() []DiskState {
	return []DiskState{
		DiskKept, DiskTaken, DiskLost, DiskForeign, DiskOrphan, DiskMissing, DiskCopy, DiskGoing,
	}
}

// Disk is a disk that outlived its VM, as the ledger and the hypervisor have it.
type Disk struct {
	director.KeptDisk
	State DiskState
	VM    string // name of the VM that has it
}

// Volumes is what a provider has of data disks, and what the ledger says of them. Volumes were read first.
type Volumes struct {
	Provider string
	Director string // our id
	Seen     bool   // the provider answered
	Volumes  []hypervisor.VolumeInfo
	Kept     []director.KeptDisk // those of other providers are left out
	Rows     []director.Machine  // living
	Lost     map[string]bool     // hosts that were declared lost and were not contacted
}

// Disks returns the provider's disks that are not the own ones of living machines, by cluster, node and id.
func Disks(p Volumes) []Disk {
	living := map[string]bool{}
	for _, m := range p.Rows {
		living[m.ID] = true
	}
	volumes := map[string]hypervisor.VolumeInfo{}
	for _, v := range p.Volumes {
		if v.Stamp.Director == p.Director {
			volumes[director.DiskID(v.Stamp.Machine, v.Serial)] = v
		}
	}
	var out []Disk
	for _, k := range p.Kept {
		if k.Provider != p.Provider {
			continue
		}
		v, there := volumes[k.ID]
		delete(volumes, k.ID)
		d := Disk{KeptDisk: k, State: stateOf(k, there || !p.Seen || k.Host != "" && p.Lost[k.Host]), VM: v.VM}
		if there {
			d.Name, d.Host, d.Size = v.Name, v.Host, v.Size
		}
		out = append(out, d)
	}
	for id, v := range volumes {
		if living[v.Stamp.Machine] || v.VM != "" { // its own machine's, or of a VM that is an orphan itself
			continue
		}
		out = append(out, Disk{State: DiskOrphan, KeptDisk: director.KeptDisk{
			ID: id, Provider: p.Provider, Name: v.Name, Host: v.Host, Machine: v.Stamp.Machine, Serial: v.Serial,
			Size:    v.Size,
			Cluster: v.Label.Cluster, Pool: v.Label.Pool, Node: v.Label.Node,
		}})
	}
	slices.SortFunc(out, func(a, b Disk) int {
		return cmp.Or(
			strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID),
		)
	})
	return out
}

func stateOf(k director.KeptDisk, there bool) DiskState {
	switch {
	case k.Holder == director.DiskGoing:
		return DiskGoing
	case k.Foreign():
		return DiskForeign
	case !there:
		return DiskMissing
	case k.CopyOf != "":
		return DiskCopy
	case k.Holder != "" && k.Holder == k.Machine:
		return DiskLost
	case k.Holder != "":
		return DiskTaken
	}
	return DiskKept
}

// DiskFindings are what is wrong with the disks. Clusters that are busy may differ.
func DiskFindings(disks []Disk, busy map[string]bool) []Finding {
	var out []Finding
	for _, d := range disks {
		f := Finding{Provider: d.Provider, Host: d.Host, Name: d.ID, Machine: d.Machine, Cluster: d.Cluster}
		remove := fmt.Sprintf("directorctl disks delete %s %s", d.Provider, d.ID)
		switch {
		case busy[d.Cluster]:
			continue
		case d.State == DiskOrphan:
			f.Kind, f.Next = OrphanDisk, "copy what is wanted of it, and delete it: "+remove
			f.Problem = fmt.Sprintf(
				"the data disk %s on %s carries our stamp, and the ledger knows neither it nor machine %s", d.Name,
				d.Provider, d.Machine,
			)
		case d.State == DiskCopy:
			f.Kind, f.Next = OrphanDisk, "delete it: "+remove
			f.Problem = fmt.Sprintf(
				"the copy %s of the disk %s was made by plan %s, and no plan works on %s", d.ID, d.CopyOf, d.Plan,
				d.Cluster,
			)
		case d.State == DiskMissing:
			f.Kind, f.Next = GhostDisk, "find it on the hypervisor, or take it off the list: "+remove
			f.Problem = fmt.Sprintf(
				"the disk %s of %s is kept in the ledger, and %s does not have it", d.ID, d.Node, d.Provider,
			)
		case d.State == DiskGoing:
			f.Kind, f.Next = GhostDisk, "finish its deletion: "+remove
			f.Problem = fmt.Sprintf("the deletion of the disk %s of %s has not come to its end", d.ID, d.Node)
		case d.State == DiskKept && d.VM != "":
			f.Kind, f.Next = GhostDisk, "detach it from that VM, or leave it to its owner"
			f.Problem = fmt.Sprintf("the disk %s of %s is kept in the ledger, and the VM %s has it", d.ID, d.Node, d.VM)
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

const gib = 1 << 30

func row(id, cluster string, state director.MachineState) director.Machine {
	return director.Machine{
		ID: id, Name: cluster + "-" + id, Cluster: cluster, Provider: "a", Host: "h1", State: state, CPUs: 2,
		Memory:  4 * gib,
		Network: "net", MAC: "52:54:00:00:00:01",
	}
}

func vm(id, name string) hypervisor.VM {
	return hypervisor.VM{
		ID: hypervisor.ID(
			"u-" + id,
		), Name: name, Host: "h1", Stamp: director.Stamp{Director: "d", Machine: id}, Power: hypervisor.PowerOn,
		CPUs: 2, Memory: 4 * gib,
		Adapters: []hypervisor.Adapter{
			{Network: "other", MAC: "52:54:00:00:00:99"}, {Network: "net", MAC: "52:54:00:00:00:01"},
		},
	}
}

func with(v hypervisor.VM, change func(*hypervisor.VM)) hypervisor.VM {
	change(&v)
	return v
}

// moved is the row with another id, on another host.
func moved(m director.Machine, id, host string) director.Machine {
	m.ID, m.Host = id, host
	return m
}

var m1 = row("m1", "c", director.MachinePresent)

// comparisons are worlds of one provider, and what Compare finds in them.
var comparisons = map[string]struct {
	rows  []director.Machine
	given []director.Machine
	lost  map[string]bool
	vms   []hypervisor.VM
	nodes map[string]string
	busy  map[string]bool
	home  string
	want  []string
}{
	"agreed": {rows: []director.Machine{m1}, vms: []hypervisor.VM{vm("m1", "c-m1")}},
	"what is only intended, or goes, need not be there": {
		rows: []director.Machine{
			row("m1", "c", director.MachineIntended), row("m2", "c", director.MachineDeleting),
			row("m3", "c", director.MachineDetached),
		},
	},
	"a back end that does not tell sizes and adapters": {
		rows: []director.Machine{m1},
		vms: []hypervisor.VM{
			with(vm("m1", "c-m1"), func(v *hypervisor.VM) { v.CPUs, v.Memory, v.Adapters = 0, 0, nil }),
		},
	},
	"rows of other providers are not missed": {
		rows: []director.Machine{{ID: "m9", Provider: "b", State: director.MachinePresent}},
	},
	"ghost": {
		rows: []director.Machine{m1},
		want: []string{"ghost: machine c-m1 of cluster c is in the ledger, and a/h1 does not have it | " +
			"create its VM again: directorctl node replace c c-m1; or delete the node: directorctl node delete c " +
			"c-m1"},
	},
	"orphan": {
		vms: []hypervisor.VM{vm("lost", "c-lost")},
		want: []string{
			"orphan: VM c-lost on a/h1 carries our stamp, and the ledger has no machine lost | delete it: " +
				"directorctl vms reclaim a u-lost",
		},
	},
	"orphan of a living cluster": {
		vms: []hypervisor.VM{vm("lost", "c-lost")}, home: "c",
		want: []string{"orphan: VM c-lost on a/h1 carries our stamp, and the ledger has no machine lost | " +
			"take it back into cluster c: directorctl vms adopt a u-lost; or delete it: directorctl vms reclaim " +
			"a u-lost"},
	},
	"given up with its host": {
		rows: []director.Machine{moved(m1, "m2", "h2")}, given: []director.Machine{m1},
		vms: []hypervisor.VM{
			with(vm("m1", "c-m1"), func(v *hypervisor.VM) { v.Power = hypervisor.PowerOff }),
			with(vm("m2", "c-m1"), func(v *hypervisor.VM) { v.Host = "h2" }),
		},
		want: []string{"fenced: VM c-m1 on a/h1 was given up when its host was lost: it is off, and is never " +
			"started again | " +
			"delete it when nothing of its root disk is wanted: directorctl vms reclaim a u-m1"},
	},
	"given up, and runs": {
		given: []director.Machine{m1}, vms: []hypervisor.VM{vm("m1", "c-m1")},
		want: []string{"fenced: VM c-m1 on a/h1 was given up when its host was lost: it runs, and is powered " +
			"off within a minute | " +
			"delete it when nothing of its root disk is wanted: directorctl vms reclaim a u-m1"},
	},
	"on a lost host": {
		rows: []director.Machine{m1, moved(row("m2", "c", director.MachinePresent), "m2", "h2")},
		lost: map[string]bool{"h1": true},
		vms:  []hypervisor.VM{with(vm("m2", "c-m2"), func(v *hypervisor.VM) { v.Host = "h2" })},
		want: []string{"lost-host: machine c-m1 of cluster c is on a/h1, which was declared lost | " +
			"make it on another host: directorctl node replace c c-m1; or bring the host back"},
	},
	"twin": {
		rows: []director.Machine{m1},
		vms:  []hypervisor.VM{vm("m1", "c-m1"), with(vm("m1", "copy"), func(v *hypervisor.VM) { v.ID = "u-copy" })},
		want: []string{"twin: VM copy on a/h1 has the stamp of machine c-m1, which VM u-m1 has too | " +
			"find out which of the two is the node, and remove the other by hand: the director deletes neither " +
			"while there are two"},
	},
	"strangers": {
		rows: []director.Machine{m1}, nodes: map[string]string{"c-w-7": "c"},
		vms: []hypervisor.VM{
			vm("m1", "c-m1"),
			with(vm("x", "c-m1"), func(v *hypervisor.VM) { v.Stamp = director.Stamp{} }),
			with(vm("y", "c-w-7"), func(v *hypervisor.VM) { v.Stamp.Director = "theirs" }),
			with(vm("z", "mail"), func(v *hypervisor.VM) { v.Stamp = director.Stamp{} }),
		},
		want: []string{
			"stranger: VM c-m1 on a/h1 has the name of a node of cluster c, and no stamp | " + leave,
			"stranger: VM c-w-7 on a/h1 has the name of a node of cluster c, and the stamp of director theirs | " +
				leave,
		},
	},
	"drift": {
		rows: []director.Machine{m1},
		vms: []hypervisor.VM{with(vm("m1", "renamed"), func(v *hypervisor.VM) {
			v.Power, v.Host, v.CPUs, v.Memory = hypervisor.PowerOff, "h2", 4, 8*gib
			v.Adapters = []hypervisor.Adapter{{Network: "wild", MAC: "52:54:00:00:00:01"}}
		})},
		want: []string{
			"drift: machine c-m1 of cluster c on a: it has 4 vCPUs and not 2 | " + anew,
			"drift: machine c-m1 of cluster c on a: it has 8192 MiB of memory and not 4096 MiB | " + anew,
			"drift: machine c-m1 of cluster c on a: it is on host h2 and not on h1 | move it back, or write " +
				"down where it is: directorctl vms adopt a u-m1",
			"drift: machine c-m1 of cluster c on a: it is powered off | switch it on and bring it back: " +
				"directorctl node repair c c-m1",
			"drift: machine c-m1 of cluster c on a: its VM is called renamed | give it its name back on the " +
				"hypervisor",
			"drift: machine c-m1 of cluster c on a: its adapter 52:54:00:00:00:01 is on network wild and not on " +
				"net | " +
				"connect it again on the hypervisor, or create the VM again: directorctl node replace c c-m1",
		},
	},
	"an adapter that is gone": {
		rows: []director.Machine{m1},
		vms: []hypervisor.VM{
			with(vm("m1", "c-m1"), func(v *hypervisor.VM) { v.Adapters = []hypervisor.Adapter{} }),
		},
		want: []string{"drift: machine c-m1 of cluster c on a: it has no adapter 52:54:00:00:00:01 | " +
			"connect it again on the hypervisor, or create the VM again: directorctl node replace c c-m1"},
	},
	"a plan works on the cluster": {
		rows: []director.Machine{m1, row("m2", "c", director.MachinePresent)}, busy: map[string]bool{"c": true},
		vms: []hypervisor.VM{with(vm("m1", "c-m1"), func(v *hypervisor.VM) { v.Power = hypervisor.PowerOff })},
	},
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for name, tt := range comparisons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Provider{
				Name: "a", Director: "d", VMs: tt.vms, Rows: tt.rows, Given: tt.given, Lost: tt.lost, Nodes: tt.nodes,
				Busy: tt.busy, Home: func(hypervisor.VM) string { return tt.home },
			}
			var got []string
			for _, f := range Compare(p) {
				got = append(got, f.String()+" | "+f.Next)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

const (
	leave = "rename or remove it by hand if it is yours, or give the cluster another name: the director leaves it " +
		"as it is"
	anew = "change it back on the hypervisor, or create the VM again: directorctl node replace c c-m1"
)

// What a first look finds and a second does not was on its way.
func TestBoth(t *testing.T) {
	t.Parallel()
	first := []Finding{{Kind: Orphan, VM: "a"}, {Kind: Ghost, Machine: "m"}}
	second := []Finding{{Kind: Orphan, VM: "b"}, {Kind: Ghost, Machine: "m", Problem: "still"}}
	if diff := cmp.Diff([]Finding{{Kind: Ghost, Machine: "m", Problem: "still"}}, Both(first, second)); diff != "" {
		t.Error(diff)
	}
}

package apitest

import (
	"context"
	"maps"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/vms"
)

// Ledger implements api.Ledger with the real comparison, over VMs and rows that a test has put there.
type Ledger struct {
	*Operations
	VMsOf map[string][]hypervisor.VM // by provider
	Rows  []director.Machine
	Down  map[string]error // providers that do not answer
}

var _ api.Ledger = (*Ledger)(nil)

const directorID = "d-test"

// NewLedger returns a ledger for clusters named demo on provider lab: an orphan, a ghost and a stranger.
func NewLedger(ops *Operations) *Ledger {
	ours := func(id, name string) hypervisor.VM {
		return hypervisor.VM{
			ID: hypervisor.ID("vm-" + id), Name: name, Host: "host1", Power: hypervisor.PowerOn, CPUs: 2,
			Memory: 4 << 30,
			Stamp:  director.Stamp{Director: directorID, Machine: id},
		}
	}
	row := func(id, name string) director.Machine {
		return director.Machine{
			ID: id, Name: name, Cluster: "demo", Provider: "lab", Host: "host1", Address: "10.88.0.10",
			State: director.MachinePresent, CPUs: 2, Memory: 4 << 30,
		}
	}
	return &Ledger{
		Operations: ops,
		VMsOf: map[string][]hypervisor.VM{
			"lab": {
				ours("m1", "demo-master-1"), ours("m7", "demo-worker-7"),
				{ID: "vm-x", Name: "demo-worker-1", Host: "host1"},
			},
		},
		Rows: []director.Machine{row("m1", "demo-master-1"), row("m2", "demo-worker-1")},
	}
}

func (l *Ledger) names(ctx context.Context, named []string) ([]string, error) {
	if len(named) == 0 {
		docs, _, err := l.ListDocuments(ctx, documents.Query{Kind: model.KindProvider})
		for _, d := range docs {
			named = append(named, d.Metadata.Name)
		}
		return named, err
	}
	for _, n := range named {
		if _, err := l.Document(ctx, model.Ref{Kind: model.KindProvider, Name: n}); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// List lists VMs.
func (l *Ledger) List(ctx context.Context, strangers bool, providers ...string) (vms.View, error) {
	names, err := l.names(ctx, providers)
	var v vms.View
	for _, n := range names {
		v.Providers = append(v.Providers, ledger.Compared{Name: n, VMs: len(l.VMsOf[n]), Err: l.Down[n]})
		for _, vm := range l.VMsOf[n] {
			item := vms.Item{Provider: n, Owner: vms.OwnerOrphan, VM: vm}
			if i := slices.IndexFunc(l.Rows, func(
				m director.Machine,
			) bool {
				return m.ID == vm.Stamp.Machine
			}); i >= 0 {
				item.Owner, item.Machine = vms.OwnerLedger, l.Rows[i]
			}
			if vm.Stamp.Director != directorID {
				item.Owner = vms.OwnerStranger
			}
			if strangers || item.Owner != vms.OwnerStranger {
				v.Items = append(v.Items, item)
			}
		}
	}
	return v, err
}

// Audit compares.
func (l *Ledger) Audit(ctx context.Context, providers ...string) (ledger.Report, error) {
	r := ledger.Report{At: l.now()}
	names, err := l.names(ctx, providers)
	for _, n := range names {
		ours := 0
		for _, vm := range l.VMsOf[n] {
			if vm.Stamp.Director == directorID {
				ours++
			}
		}
		r.Providers = append(r.Providers, ledger.Compared{Name: n, VMs: ours, Err: l.Down[n]})
		if l.Down[n] != nil {
			continue
		}
		r.Findings = append(r.Findings, ledger.Compare(ledger.Provider{
			Name: n, Director: directorID, VMs: l.VMsOf[n], Rows: l.Rows,
			Home: func(hypervisor.VM) string { return "demo" },
		})...)
	}
	return r, err
}

func (l *Ledger) orphan(provider, id string) (int, error) {
	i := slices.IndexFunc(l.VMsOf[provider], func(v hypervisor.VM) bool { return string(v.ID) == id })
	if i < 0 {
		return i, notFound("there is no VM with the id %s", id)
	}
	vm := l.VMsOf[provider][i]
	if vm.Stamp.Director != directorID ||
		slices.ContainsFunc(l.Rows, func(m director.Machine) bool { return m.ID == vm.Stamp.Machine }) {
		return i, director.Errorf(director.KindConflict, "apitest.orphan", "VM %s (%s) is no orphan", id, vm.Name).
			WithHint("it is left as it is")
	}
	return i, nil
}

// Adopt adds a row.
func (l *Ledger) Adopt(_ context.Context, _, provider, id string, said vms.Addresses) (director.Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.orphan(provider, id)
	if err != nil {
		return director.Machine{}, err
	}
	vm := l.VMsOf[provider][i]
	m := director.Machine{
		ID: vm.Stamp.Machine, Name: vm.Name, Cluster: "demo", Provider: provider, Host: vm.Host, Address: said.First,
		VMID: id, State: director.MachinePresent,
	}
	for _, network := range slices.Sorted(maps.Keys(said.Further)) {
		m.NICs = append(m.NICs, director.NIC{Network: network, Address: said.Further[network]})
	}
	l.Rows = append(l.Rows, m)
	return m, nil
}

// Reclaim deletes a VM.
func (l *Ledger) Reclaim(_ context.Context, _, provider, id string, _ bool) (hypervisor.VM, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, err := l.orphan(provider, id)
	if err != nil {
		return hypervisor.VM{}, err
	}
	vm := l.VMsOf[provider][i]
	l.VMsOf[provider] = slices.Delete(l.VMsOf[provider], i, i+1)
	return vm, nil
}

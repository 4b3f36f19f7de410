package planner

import (
	"fmt"
	"maps"
	"testing"

	"github.com/director-kaas/kaas/director"
)

// fewMACs is a hash of 12 bits: of some thousand adapters most collide.
func fewMACs(text string) [3]byte {
	h := macHash(text)
	return [3]byte{0, h[1] & 15, h[2]}
}

// 3,000 adapters of 4,096 addresses: each has one of its own.
func TestManyMACsWithoutADouble(t *testing.T) {
	t.Parallel()
	for name, hash := range map[string]func(string) [3]byte{"forced collisions": fewMACs, "as it is": nil} {
		ledger, first := map[string]bool{}, 0
		for n := range 300 { // clusters, one after the other
			w := World{MACs: ledger, macHash: hash}
			m := w.macs()
			made := map[string]bool{}
			for k := range 10 {
				id := MachineID(fmt.Sprintf("u%d", n), "node", k)
				mac := m.give(id)
				if ledger[mac] || made[mac] {
					t.Fatalf("%s: %s was given twice", name, mac)
				}
				made[mac] = true
				if mac == macOf(m.hash, id, 0) {
					first++
				}
			}
			if again := (World{MACs: maps.Clone(ledger), macHash: hash}).macs().give(
				MachineID(fmt.Sprintf("u%d", n), "node", 0),
			); !made[again] {
				t.Fatalf("%s: the same world gives %s", name, again)
			}
			maps.Copy(ledger, made)
		}
		if hash != nil && first > 2500 || hash == nil && first < 2990 {
			t.Errorf("%s: %d of 3,000 have their first address", name, first)
		}
	}
}

// A new node gets another address when a machine of any cluster has its first one; nodes that exist keep theirs,
// whoever shares them.
func TestPlansAvoidTakenMACs(t *testing.T) {
	t.Parallel()
	w := demo(t)
	before := ledger(t, w)
	w.MACs = map[string]bool{before[0].MAC: true}
	after := ledger(t, w)
	if after[0].MAC == before[0].MAC || after[0].ID != before[0].ID {
		t.Errorf("%s has %s, which is taken", after[0].Name, after[0].MAC)
	}
	if after[1].MAC != before[1].MAC {
		t.Errorf("%s has %s, want %s", after[1].Name, after[1].MAC, before[1].MAC)
	}
	if again := ledger(t, w); again[0].MAC != after[0].MAC {
		t.Errorf("the same world gives %s and %s", after[0].MAC, again[0].MAC)
	}
	w.Machines = []director.Machine{before[0]}
	w.Machines[0].State = director.MachineIntended
	if kept := ledger(t, w); kept[0].MAC != before[0].MAC {
		t.Errorf("the machine that exists has %s, want %s", kept[0].MAC, before[0].MAC)
	}
}

// The row of a VM that nobody remembers has the address that the VM has, also when it was not the first that was
// derived.
func TestMemberHasTheMACOfItsVM(t *testing.T) {
	t.Parallel()
	w := demo(t)
	before := ledger(t, w)[0]
	w.MACs = map[string]bool{before.MAC: true}
	vm := ledger(t, w)[0]
	for _, has := range []string{vm.MAC, before.MAC} {
		m, ok := Member(w.Cluster, vm.Name, vm.ID, func(mac string) bool { return mac == has })
		if !ok || m.MAC != has {
			t.Errorf("the row has %s, want %s", m.MAC, has)
		}
	}
	if m, ok := Member(w.Cluster, vm.Name, vm.ID, nil); !ok || m.MAC != before.MAC {
		t.Errorf("without a VM the row has %s, want %s", m.MAC, before.MAC)
	}
}

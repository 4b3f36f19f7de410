package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// Every adapter's address is reserved with the intent, is nobody else's on that network whatever it is for, and is free
// after the burial.
func TestAddressesOfAllAdapters(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0).UTC()
		intend := func(m director.Machine) error {
			return update(t, s, func(tx *Tx) error { return tx.IntendMachine(m, now) })
		}
		m := director.Machine{
			ID: "m1", ClusterUID: "u", Cluster: "c", Name: "c-w-1", Provider: "p", Network: "n", Address: "10.0.0.1",
			MAC: "a",
			NICs: []director.NIC{
				{Role: "services", Network: "v", Address: "10.1.0.1", MAC: "b"},
				{Role: "storage", Network: "s", Address: "10.2.0.1", MAC: "c"},
			},
		}
		for range 2 {
			if err := intend(m); err != nil {
				t.Fatal(err)
			}
		}
		got, there, err := s.Machine(ctx, "m1")
		if err != nil || !there {
			t.Fatal(there, err)
		}
		if diff := cmp.Diff(m.NICs, got.NICs); diff != "" {
			t.Errorf("the adapters (-want +got):\n%s", diff)
		}
		// Taken as somebody's first address, or as another adapter's.
		for name, other := range map[string]director.Machine{
			"first": {
				ID: "m2", ClusterUID: "u2", Cluster: "d", Name: "d-w-1", Provider: "p", Network: "s",
				Address: "10.2.0.1",
			},
			"further": {
				ID: "m2", ClusterUID: "u2", Cluster: "d", Name: "d-w-1", Provider: "p", Network: "o",
				Address: "10.3.0.1", NICs: []director.NIC{{Role: "storage", Network: "n", Address: "10.0.0.1"}},
			},
		} {
			if err := intend(other); director.KindOf(err) != director.KindConflict {
				t.Errorf("%s: %v, want conflict", name, err)
			}
			if _, there, err := s.Machine(ctx, "m2"); there || err != nil {
				t.Errorf("%s: a refused intent left its row, %v", name, err)
			}
		}
		for _, network := range []string{"n", "v", "s"} {
			user, err := s.NetworkUser(ctx, "p", network)
			list, err2 := s.Machines(ctx, MachineFilter{NetworkName: network})
			if err != nil || err2 != nil || user != "c" || len(list) != 1 || len(list[0].NICs) != 2 {
				t.Errorf("network %s is used by %q, %+v: %v %v", network, user, list, err, err2)
			}
		}
		of, err := s.MachinesOf(ctx, []string{"u"})
		if err != nil || len(of["u"]) != 1 || len(of["u"][0].NICs) != 2 {
			t.Errorf("the cluster's machines are %+v, %v", of, err)
		}
		if err := s.BuryMachine(ctx, "m1", now); err != nil {
			t.Fatal(err)
		}
		other := director.Machine{
			ID: "m3", ClusterUID: "u3", Cluster: "e", Name: "e-w-1", Provider: "p", Network: "s", Address: "10.2.0.1",
		}
		if err := intend(other); err != nil {
			t.Errorf("an address is not free after the burial: %v", err)
		}
		// The tombstone comes to life with its adapters, unless somebody has an address by now.
		buried, _, err := s.Machine(ctx, "m1")
		if err != nil || len(buried.NICs) != 2 {
			t.Fatalf("the tombstone has the adapters %+v, %v", buried.NICs, err)
		}
		adopt := func() error { return update(t, s, func(tx *Tx) error { return tx.AdoptMachine(buried, now) }) }
		if err := adopt(); director.KindOf(err) != director.KindConflict {
			t.Errorf("an address was given away twice: %v", err)
		}
		if err := s.BuryMachine(ctx, "m3", now); err != nil {
			t.Fatal(err)
		}
		if err := adopt(); err != nil {
			t.Fatal(err)
		}
		if again, _, err := s.Machine(ctx, "m1"); err != nil || !cmp.Equal(again.NICs, m.NICs) {
			t.Errorf("it came to life with %+v, %v", again.NICs, err)
		}
	})
}

// A database from before the table of adapters gives no address of its machines away again.
func TestOldMachinesKeepTheirAddresses(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0).UTC()
		intend := func(s *Store, m director.Machine) error {
			return update(t, s, func(tx *Tx) error { return tx.IntendMachine(m, now) })
		}
		old := director.Machine{
			ID: "m1", ClusterUID: "u", Cluster: "c", Name: "c-w-1", Provider: "p", Network: "n", Address: "10.0.0.1",
			MAC: "a",
		}
		gone := director.Machine{
			ID: "m0", ClusterUID: "u", Cluster: "c", Name: "c-w-2", Provider: "p", Network: "n", Address: "10.0.0.2",
			MAC: "b",
		}
		for _, m := range []director.Machine{old, gone} {
			if err := intend(s, m); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.BuryMachine(ctx, "m0", now); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"DROP TABLE machine_nics",
			"DELETE FROM schema_migrations WHERE version IN ('0016_machine_nics', '0033_unique_macs')",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		s = open()
		got, _, err := s.Machine(ctx, "m1")
		if err != nil || got.Address != old.Address || got.NICs != nil {
			t.Errorf("the old machine is %+v, %v", got, err)
		}
		further := func(address string) director.Machine {
			return director.Machine{
				ID: "m2", ClusterUID: "u2", Cluster: "d", Name: "d-w-1", Provider: "p", Network: "o",
				Address: "10.3.0.1",
				NICs:    []director.NIC{{Role: "storage", Network: "n", Address: address}},
			}
		}
		if err := intend(s, further("10.0.0.1")); director.KindOf(err) != director.KindConflict {
			t.Errorf("the old machine's address was given away: %v", err)
		}
		if err := intend(s, further("10.0.0.2")); err != nil {
			t.Errorf("a tombstone's address is not free: %v", err)
		}
	})
}

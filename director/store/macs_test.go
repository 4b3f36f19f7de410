package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// withMACs is a machine of a cluster of its own, with an adapter for each MAC address.
func withMACs(n int, macs ...string) director.Machine {
	m := director.Machine{
		ID: fmt.Sprintf("m%d", n), ClusterUID: fmt.Sprintf("u%d", n), Cluster: fmt.Sprintf("c%d", n),
		Name: fmt.Sprintf("c%d-w-1", n), Provider: "p",
		Network: "n", Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), MAC: macs[0],
	}
	for i, mac := range macs[1:] {
		m.NICs = append(m.NICs, director.NIC{
			Role: fmt.Sprintf("r%d", i), Network: fmt.Sprintf("n%d", i), Address: m.Address, MAC: mac,
		})
	}
	return m
}

func intend(t *testing.T, s *Store, m director.Machine) error {
	t.Helper()
	return update(t, s, func(tx *Tx) error { return tx.IntendMachine(m, time.Unix(5, 0)) })
}

// wantTaken expects the conflict of a MAC address that another machine has.
func wantTaken(t *testing.T, when string, err error, mac string) {
	t.Helper()
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), mac) ||
		!strings.Contains(director.HintOf(err), "plan again") {
		t.Errorf("%s: %v (%s), want a conflict over %s", when, err, director.HintOf(err), mac)
	}
}

// A MAC address belongs to one living machine, as its first or as another adapter's, and is free after the burial.
func TestAMACHasOneLivingMachine(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0)
		for _, m := range []director.Machine{withMACs(1, "a", "b"), withMACs(2, "c", "d")} {
			if err := intend(t, s, m); err != nil {
				t.Fatal(err)
			}
		}
		wantTaken(t, "as the first", intend(t, s, withMACs(3, "b")), "b")
		wantTaken(t, "as another", intend(t, s, withMACs(3, "e", "c")), "c")
		if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "c": true, "d": true}, macsOf(t, s)); diff != "" {
			t.Errorf("MAC addresses (-want +got):\n%s", diff)
		}
		if err := s.BuryMachine(ctx, "m1", now); err != nil {
			t.Fatal(err)
		}
		if err := intend(t, s, withMACs(3, "b")); err != nil {
			t.Errorf("after the burial: %v", err)
		}
		wantTaken(t, "the tombstone", s.IntendAgain(ctx, withMACs(1, "a", "b"), now), "b")
		wantTaken(t, "adopted", update(t, s, func(tx *Tx) error { return tx.AdoptMachine(withMACs(4, "d"), now) }), "d")
		shared, err := s.SharedMACs(ctx)
		if err != nil || shared != nil {
			t.Errorf("shared are %v, %v", shared, err)
		}
	})
}

func macsOf(t *testing.T, s *Store) map[string]bool {
	t.Helper()
	macs, err := s.MACs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return macs
}

// Machines from before that share an address keep it and are named; it is given to no further machine, whichever of
// them goes.
func TestSharedMACsOfBefore(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0)
		for n, mac := range []string{"x", "y", "z", "w"} {
			if err := intend(t, s, withMACs(n, mac)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.BuryMachine(ctx, "m3", now); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"DROP INDEX machine_nics_mac", "ALTER TABLE machine_nics DROP COLUMN mac_double",
			"UPDATE machine_nics SET mac = 'x' WHERE mac <> 'z'",
			"DELETE FROM schema_migrations WHERE version = '0033_unique_macs'",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		s = open()
		shared, err := s.SharedMACs(ctx)
		if diff := cmp.Diff(
			[]SharedMAC{{MAC: "x", Machines: []string{"c0-w-1", "c1-w-1"}}}, shared,
		); diff != "" || err != nil {
			t.Errorf("shared (-want +got), %v:\n%s", err, diff)
		}
		for _, gone := range []string{"m9", "m0", "m1"} {
			if err := s.BuryMachine(ctx, gone, now); err != nil {
				t.Fatal(err)
			}
			err := intend(t, s, withMACs(5, "x"))
			if gone != "m1" {
				wantTaken(t, "after "+gone, err, "x")
			} else if err != nil {
				t.Errorf("nobody has it any more: %v", err)
			}
		}
	})
}

// Directors that reserve the same addresses at the same time: each address goes to one of them, and the others are
// told.
func TestMACsOfARace(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open()}
		const rounds = 30
		var all sync.WaitGroup
		var lock sync.Mutex
		won := map[string]int{}
		for i, s := range stores {
			all.Go(func() {
				for n := range rounds {
					mac := fmt.Sprintf("mac-%d", n)
					err := intend(t, s, withMACs(i*rounds+n, mac))
					lock.Lock()
					if err == nil {
						won[mac]++
					} else {
						wantTaken(t, "the loser", err, mac)
					}
					lock.Unlock()
				}
			})
		}
		all.Wait()
		for n := range rounds {
			if mac := fmt.Sprintf("mac-%d", n); won[mac] != 1 {
				t.Errorf("%s went to %d machines", mac, won[mac])
			}
		}
		// The index holds also a writer that does not look.
		err := update(t, stores[0], func(tx *Tx) error {
			return errors.Join(tx.db.Create(&nicRow{MachineID: "m0", Ord: 7, MAC: "mac-1"}).Error)
		})
		if director.KindOf(err) != director.KindConflict {
			t.Errorf("a second adapter with the address: %v", err)
		}
	})
}

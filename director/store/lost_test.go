package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// A machine that was given up with its host never comes to life again; its successor has the name, and is written down
// in the same moment.
func TestLostMachines(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, now := open(), time.Unix(100, 0).UTC()
		machine := func(id, name, address, mac string) director.Machine {
			return director.Machine{
				ID: id, ClusterUID: "u", Cluster: "c", Name: name, Provider: "lab", Network: "net", Address: address,
				MAC: mac, Host: "h1",
			}
		}
		was, next := machine("m1", "c-w-1", "10.0.0.1", "52:54:00:00:00:01"),
			machine("m2", "c-w-1", "10.0.0.2", "52:54:00:00:00:02")
		neighbour := machine("m3", "c-w-2", "10.0.0.3", "52:54:00:00:00:03")
		host := director.LostHost{Provider: "lab", Host: "h1", By: "ann", Plan: "p1", At: now}
		err := s.Update(t.Context(), func(tx *Tx) error {
			for _, m := range []director.Machine{was, neighbour} {
				if err := tx.IntendMachine(m, now); err != nil {
					return err
				}
			}
			if err := tx.LoseHost(host); err != nil {
				return err
			}
			again := host
			again.By = "bob"
			return tx.LoseHost(again)
		})
		if err != nil {
			t.Fatal(err)
		}
		lost, err := s.LostHosts(t.Context(), "lab")
		if diff := cmp.Diff([]director.LostHost{host}, lost); diff != "" || err != nil {
			t.Errorf("lost hosts, %v (-want +got):\n%s", err, diff)
		}
		taken := next
		taken.Address = neighbour.Address
		if err := s.MoveMachine(t.Context(), "m1", true, taken, now); director.KindOf(err) != director.KindConflict {
			t.Errorf("a successor with another's address: %v", err)
		}
		if m, _, err := s.Machine(t.Context(), "m1"); err != nil || !m.Deleted.IsZero() {
			t.Errorf("half of a move was written: %+v, %v", m, err)
		}
		for range 2 {
			if err := s.MoveMachine(t.Context(), "m1", true, next, now); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.IntendAgain(t.Context(), was, now); director.KindOf(err) != director.KindConflict {
			t.Errorf("a machine that was given up is wanted again: %v", err)
		}
		given, err := s.LostMachines(t.Context(), "")
		if err != nil || len(given) != 1 || given[0].ID != "m1" || given[0].State != director.MachineLost ||
			given[0].Address != was.Address {
			t.Errorf("given up are %+v, %v", given, err)
		}
		found := false
		err = s.Update(t.Context(), func(tx *Tx) error {
			if found, err = tx.FindHost("lab", "h1"); err != nil {
				return err
			}
			return tx.ForgetLost("m1")
		})
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if given, err = s.LostMachines(t.Context(), ""); err != nil || len(given) > 0 {
			t.Errorf("given up are %+v, %v", given, err)
		}
		if lost, err = s.LostHosts(t.Context(), ""); err != nil || len(lost) > 0 {
			t.Errorf("lost are %+v, %v", lost, err)
		}
	})
}

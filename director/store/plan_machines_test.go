package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
)

// making is a plan of which the first machines are nodes that stay, and the last one is made.
func making(id string, at int64, machines ...string) plan.Plan {
	type m struct{ ID string }
	type params struct {
		Machine m `json:"machine"`
	}
	text := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return b
	}
	var nodes []m
	for _, id := range machines {
		nodes = append(nodes, m{id})
	}
	last := machines[len(machines)-1]
	return plan.Plan{ID: id, CreatedAt: time.Unix(at, 0), Content: plan.Content{
		Cluster: id, Facts: text(map[string]any{"nodes": nodes}),
		Steps: []plan.Step{
			{ID: "vm.ensure/" + last, Kind: "vm.ensure", Params: text(params{m{last}})},
			{ID: "vm.boot/" + last, Kind: "vm.boot", Params: text(params{m{last}})},
			{ID: "vm.delete/" + machines[0], Kind: "vm.delete", Params: text(params{m{machines[0]}})},
			{ID: "undo/vm.ensure/" + last, Kind: "vm.ensure", Params: text(params{m{last}})},
		},
	}}
}

// answers is what the store says of the machines: which plans have them as nodes, and which steps make them.
func answers(t *testing.T, s *Store, machines ...string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range machines {
		id, err := s.PlanWithMachine(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		out[m] = append(out[m], "of "+id)
		err = update(t, s, func(tx *Tx) error {
			makings, err := tx.Makings(m)
			for _, k := range makings {
				out[m] = append(out[m], k.Plan+" "+k.Step)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Which plan makes which machine is told without a look into the plans, of new plans, of those from before the table,
// and of those that an older peer makes.
func TestPlansOfMachines(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		p1, p2, p3 := making("p1", 1, "a", "b"), making("p2", 2, "b", "c"), making("p3", 3, "c")
		states := map[string]*plan.State{}
		for _, p := range []plan.Plan{p1, p2, p3} {
			st := plan.NewState(&p)
			states[p.ID] = &st
			if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(p) }); err != nil {
				t.Fatal(err)
			}
		}
		err := update(t, s, func(tx *Tx) error {
			return errors.Join(
				tx.Append(states["p3"], plan.Event{Plan: "p3", Kind: plan.PlanDiscarded, At: time.Unix(9, 0)}),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{
			"a": {"of p1"}, "b": {"of p2", "p1 undo/vm.ensure/b", "p1 vm.ensure/b"},
			"c": {"of p3", "p2 undo/vm.ensure/c", "p2 vm.ensure/c"}, "d": {"of "},
		}
		if diff := cmp.Diff(want, answers(t, s, "a", "b", "c", "d")); diff != "" {
			t.Errorf("new plans (-want +got):\n%s", diff)
		}

		// The database of a director from before the table.
		for _, statement := range []string{
			"DROP TABLE plan_machines", "DROP INDEX plans_unindexed", "DROP INDEX plans_phase",
			"ALTER TABLE plans DROP COLUMN indexed",
			"DELETE FROM schema_migrations WHERE version = '0034_plan_machines'",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		s = open()
		if diff := cmp.Diff(want, answers(t, s, "a", "b", "c", "d")); diff != "" {
			t.Errorf("old plans (-want +got):\n%s", diff)
		}

		// An older peer makes a plan beside us, which writes no machines. The transaction that asks finds it.
		p4 := making("p4", 4, "d")
		if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(p4) }); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"DELETE FROM plan_machines WHERE plan_id = 'p4'", "UPDATE plans SET indexed = 0 WHERE id = 'p4'",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		err = update(t, s, func(tx *Tx) error {
			makings, err := tx.Makings("d")
			if diff := cmp.Diff([]Making{{"p4", "undo/vm.ensure/d"}, {"p4", "vm.ensure/d"}}, makings); diff != "" {
				t.Errorf("an older peer's plan (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// Directors that start together write the machines of an older one's plans together.
		if err := s.write.Exec("UPDATE plans SET indexed = 0").Error; err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, peer := range []*Store{s, open()} {
			all.Go(func() {
				if err := peer.IndexPlans(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if rows, err := unindexed(s.read); err != nil || len(rows) != 0 {
			t.Errorf("%v are not indexed, %v", rows, err)
		}
	})
}

// An unfinished plan that cannot be read is no reason to say that nobody makes the machine; one that is over for good
// is.
func TestUnreadablePlansOfMachines(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, p := open(), making("p1", 1, "a")
		st := plan.NewState(&p)
		if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(p) }); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"UPDATE plan_contents SET content = 'no JSON'", "UPDATE plans SET indexed = 0",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		look := func() error {
			return update(t, s, func(tx *Tx) error {
				_, err := tx.Makings("a")
				return err
			})
		}
		if look() == nil {
			t.Error("a plan that cannot be read makes nothing")
		}
		err := update(t, s, func(tx *Tx) error {
			return tx.Append(&st, plan.Event{Plan: "p1", Kind: plan.PlanDiscarded, At: time.Unix(9, 0)})
		})
		if err := errors.Join(err, look()); err != nil {
			t.Error(err)
		}
	})
}

// The question is answered through the index, however many plans there are.
func TestPlansOfMachinesUseTheIndex(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var details []struct{ Detail string }
	err = s.read.Raw(
		"EXPLAIN QUERY PLAN SELECT plan_id FROM plan_machines JOIN plans ON plans.id = plan_machines.plan_id WHERE " +
			"plan_machines.machine_id = 'm'",
	).Scan(&details).Error
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(details, func(d struct{ Detail string }) bool {
		return len(d.Detail) > 4 && d.Detail[:4] == "SCAN"
	}) {
		t.Errorf("it reads everything: %s", fmt.Sprint(details))
	}
}

package consulsync

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func entry(identity Identity, id string) Entry {
	meta := identity.Meta()
	meta[MetaKey] = "service/" + id
	return Entry{ID: id, Name: "web", Address: "10.0.0.1", Port: 80, Tags: []string{"a"}, Meta: meta, Passing: true}
}

func stored(e Entry) Actual { return Actual{Entry: e, Checked: true, Index: 7} }

func TestDiff(t *testing.T) {
	t.Parallel()
	base := entry(one, "a")
	if c := Diff(one, []Entry{base}, []Actual{stored(base)}); len(c.Put)+len(c.Delete)+len(c.Strangers) > 0 {
		t.Errorf("equal sides give %+v", c)
	}
	for name, change := range map[string]func(*Actual){
		"name":    func(a *Actual) { a.Name = "x" },
		"address": func(a *Actual) { a.Address = "10.0.0.2" },
		"port":    func(a *Actual) { a.Port = 1 },
		"tags":    func(a *Actual) { a.Tags = nil },
		"meta":    func(a *Actual) { a.Meta = maps.Clone(a.Meta); a.Meta["x"] = "y" },
		"health":  func(a *Actual) { a.Passing = false },
		"check":   func(a *Actual) { a.Checked = false },
	} {
		a := stored(base)
		change(&a)
		if c := Diff(one, []Entry{base}, []Actual{a}); len(c.Put) != 1 || len(c.Delete) > 0 {
			t.Errorf("%s: changes = %+v, want one entry to write", name, c)
		}
	}
}

// Only what carries the owner and the cluster is deleted, and what carries another one is not written over.
func TestDiffKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	otherOwner := entry(Identity{Owner: "director-2", Cluster: one.Cluster}, "other-owner")
	bare := entry(one, "bare")
	bare.Meta = nil
	director := entry(one, "kaas-api-vip")
	director.Meta = map[string]string{MetaOwner: one.Owner, MetaWriter: "director"}
	c := Diff(one, []Entry{entry(one, "bare")}, []Actual{
		stored(entry(two, "other-cluster")), stored(otherOwner), stored(bare), stored(entry(one, "old")),
		stored(director),
	})
	if diff := cmp.Diff(Changes{
		Delete:    []Actual{stored(entry(one, "old"))},
		Strangers: []string{"bare", "other-cluster", "other-owner"}, Own: 1,
	}, c); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// A node takes so many entries, because Consul reads all checks of a node for each one that changes on it. What is
// there stays on its node, also where older syncs have put more.
func TestDiffUsesSeveralNodes(t *testing.T) {
	t.Parallel()
	var wanted []Entry
	for i := range 2*most + 1 {
		wanted = append(wanted, entry(one, fmt.Sprintf("e%05d", i)))
	}
	on := func(entries []Entry) map[int]int {
		n := map[int]int{}
		for _, e := range entries {
			n[e.Node]++
		}
		return n
	}
	c := Diff(one, wanted, nil)
	if diff := cmp.Diff(map[int]int{0: most, 1: most, 2: 1}, on(c.Put)); diff != "" {
		t.Errorf("on empty nodes (-want +got):\n%s", diff)
	}
	var older, stays []Actual
	for i, e := range wanted[:most+100] {
		older = append(older, stored(e))
		e.Node = 7
		e.Passing = i > 0
		stays = append(stays, stored(e))
	}
	older = append(older, stored(entry(two, "another's")))
	if diff := cmp.Diff(map[int]int{1: most - 99}, on(Diff(one, wanted, older).Put)); diff != "" {
		t.Errorf("next to a full node (-want +got):\n%s", diff)
	}
	if c = Diff(one, wanted[:most+100], stays); len(c.Put) != 1 || c.Put[0].Node != 7 || len(c.Delete) > 0 {
		t.Errorf("an entry that changes leaves its node: %+v", c)
	}
	twice := stored(wanted[0])
	twice.Node = 1
	c = Diff(one, wanted[:1], []Actual{stored(wanted[0]), twice})
	if diff := cmp.Diff(Changes{Delete: []Actual{twice}, Own: 2}, c); diff != "" {
		t.Errorf("an entry that is on two nodes (-want +got):\n%s", diff)
	}
}

func TestNumbersOfNodes(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		if got, ok := one.Number(one.Node(n)); got != n || !ok {
			t.Errorf("%s is %d, %t", one.Node(n), got, ok)
		}
	}
	for _, other := range []string{
		two.Node(0), two.Node(1), one.Node(0) + ".", one.Node(0) + ".1", one.Node(0) + ".0", one.Node(0) + ".-2",
		one.Node(0) + ".02", one.Node(0) + ".+2", one.Node(0) + "-2", "kaas-demo-1", "",
	} {
		if n, ok := one.Number(other); ok {
			t.Errorf("%q is the cluster's node %d", other, n)
		}
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	names := func(n int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("e%03d", i))
		}
		return out
	}
	g := Guard{Percent: 20, Minimum: 5}
	for _, c := range []struct {
		gone, total int
		held        bool
	}{{0, 0, false}, {5, 5, false}, {6, 6, true}, {6, 30, false}, {7, 30, true}, {20, 100, false}, {21, 100, true}} {
		if h := g.Check(HoldExport, names(c.gone), c.total, nil); (h != nil) != c.held {
			t.Errorf("%d of %d: held %+v, want %v", c.gone, c.total, h, c.held)
		}
	}
	h := g.Check(HoldExport, names(30), 50, []string{"other"})
	if h == nil || h.Count != 30 || h.Total != 50 || len(h.Sample) != sampleSize {
		t.Fatalf("hold = %+v", h)
	}
	reversed := names(30)
	reversed[0], reversed[29] = reversed[29], reversed[0]
	if g.Check(HoldExport, reversed, 50, []string{h.ID}) != nil {
		t.Error("the same set in another order is not the confirmed one")
	}
	if g.Check(HoldExport, names(31), 50, []string{h.ID}) == nil {
		t.Error("a confirmation holds for a larger set too")
	}
	if g.Check(HoldImport, names(30), 50, []string{h.ID}) == nil {
		t.Error("a confirmation holds for another kind of removal too")
	}
}

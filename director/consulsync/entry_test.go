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
		stored(entry(two, "other-cluster")), stored(otherOwner), stored(bare), stored(entry(one, "old")), stored(director),
	})
	if diff := cmp.Diff(Changes{
		Delete: []Actual{stored(entry(one, "old"))}, Strangers: []string{"bare", "other-cluster", "other-owner"}, Own: 1,
	}, c); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
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

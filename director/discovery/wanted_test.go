package discovery

import (
	"strings"
	"testing"
	"time"
)

// The director's own entry says when it was written, and is written again before that is old; others are not.
func TestOwnEntrySaysWhen(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	w := World{Director: "d", URL: "https://director.example.org", Now: at}
	first, _ := Wanted(w, "dc1")
	if len(first) != 1 || !strings.HasPrefix(first[0].Output, "the director wrote this at 2026-03-02T10:00:00Z; ") {
		t.Fatalf("wanted is %+v", first)
	}
	have := Catalog{
		Nodes:   []CatalogNode{{Name: Node("d"), Address: NodeAddress, Meta: nodeMeta("d", "")}},
		Entries: []Actual{{Entry: first[0], Checked: true}},
	}
	for after, want := range map[time.Duration]int{0: 0, 4 * time.Minute: 0, 5 * time.Minute: 1, -time.Minute: 1} {
		w.Now = at.Add(after)
		wanted, keep := Wanted(w, "dc1")
		if c := Compare("d", wanted, keep, have); len(c.Refresh) != want || len(c.Put) != 0 {
			t.Errorf("after %s: %+v", after, c)
		}
	}
	have.Entries[0].Output = "the director has written this" // by an older director
	wanted, keep := Wanted(w, "dc1")
	if c := Compare("d", wanted, keep, have); len(c.Refresh) != 1 {
		t.Errorf("the entry of an older director: %+v", c)
	}
	have.Entries[0].Cluster, wanted[0].Cluster = "c1", "c1"
	if stale(wanted[0], have.Entries[0].Entry) {
		t.Error("an entry that the director asks about is written again")
	}
}

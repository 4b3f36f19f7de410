package consulsync

import (
	"maps"
	"slices"
	"strings"
)

// Entry is an instance of a service in Consul, on the cluster's node.
type Entry struct {
	ID      string
	Name    string // of the service
	Address string // an IP address or a host name
	Port    int
	Tags    []string // sorted
	Meta    map[string]string
	Passing bool // what its one check says
}

// Actual is an entry as Consul has it.
type Actual struct {
	Entry
	Checked bool   // false if it lacks its check
	Index   uint64 // at which it changed last; a deletion names it
}

// Changes is what brings Consul from what is to what is wanted.
type Changes struct {
	Put    []Entry
	Delete []Actual
	// Strangers are the ids of entries on the cluster's node that are not the cluster's. They are left alone, and what
	// is wanted under such an id is not written.
	Strangers []string
	Own       int // entries of the cluster that are there
}

// Diff compares what a cluster wants with what is on its node, each in any order. Only entries that carry the
// identity are ever deleted. All results are sorted by id.
func Diff(identity Identity, wanted []Entry, actual []Actual) Changes {
	var c Changes
	byID := make(map[string]*Actual, len(actual))
	for i := range actual {
		byID[actual[i].ID] = &actual[i]
	}
	want := make(map[string]bool, len(wanted))
	for _, w := range wanted {
		want[w.ID] = true
		a, ok := byID[w.ID]
		switch {
		case ok && !identity.Owns(a.Meta): // reported below
		case !ok || !a.Checked || !same(w, a.Entry):
			c.Put = append(c.Put, w)
		}
	}
	for id, a := range byID {
		switch {
		case identity.Known(a.Meta):
			continue
		case !identity.Owns(a.Meta):
			c.Strangers = append(c.Strangers, id)
		case !want[id]:
			c.Delete = append(c.Delete, *a)
			c.Own++
		default:
			c.Own++
		}
	}
	slices.SortFunc(c.Put, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Delete, func(a, b Actual) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(c.Strangers)
	return c
}

func same(a, b Entry) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port && a.Passing == b.Passing &&
		slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Meta, b.Meta)
}

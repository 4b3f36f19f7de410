package consulsync

import (
	"maps"
	"slices"
	"strings"
)

// Entry is an instance of a service in Consul, on one of the cluster's nodes.
type Entry struct {
	Node    int // which of them; it does not matter for what is wanted
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
	// Strangers are the ids of entries on the cluster's nodes that are not the cluster's. They are left alone, and what
	// is wanted under such an id is not written.
	Strangers []string
	Own       int // entries of the cluster that are there
}

// most is how many entries one of the cluster's nodes takes.
const most = 500

// Diff compares what a cluster wants with what is on its nodes, each in any order. Only entries that carry the identity
// are ever deleted. What is there already stays on its node, and what is not gets the first one with room. All results
// are sorted by id.
func Diff(identity Identity, wanted []Entry, actual []Actual) Changes {
	var c Changes
	want := make(map[string]bool, len(wanted))
	for _, w := range wanted {
		want[w.ID] = true
	}
	own, others := make(map[string]*Actual, len(actual)), map[string]bool{}
	on := map[int]int{} // entries by node
	for i := range actual {
		a := &actual[i]
		on[a.Node]++
		switch {
		case !identity.Owns(a.Meta):
			others[a.ID] = true
			if !identity.Known(a.Meta) {
				c.Strangers = append(c.Strangers, a.ID)
			}
			continue
		case !want[a.ID] || own[a.ID] != nil: // a node that was lost and came back has some twice
			c.Delete = append(c.Delete, *a)
		default:
			own[a.ID] = a
		}
		c.Own++
	}
	for _, w := range wanted {
		a := own[w.ID]
		switch {
		case a == nil && !others[w.ID]:
			c.Put = append(c.Put, w)
		case a != nil && (!a.Checked || !same(w, a.Entry)):
			w.Node = a.Node
			c.Put = append(c.Put, w)
		}
	}
	slices.SortFunc(c.Put, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Delete, func(a, b Actual) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(c.Strangers)
	c.Strangers = slices.Compact(c.Strangers)
	place(c.Put, own, on)
	return c
}

// place gives the entries that are on no node yet the first ones with room.
func place(put []Entry, own map[string]*Actual, on map[int]int) {
	node := 0
	for i := range put {
		if own[put[i].ID] != nil {
			continue
		}
		for on[node] >= most {
			node++
		}
		put[i].Node = node
		on[node]++
	}
}

func same(a, b Entry) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port && a.Passing == b.Passing &&
		slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Meta, b.Meta)
}

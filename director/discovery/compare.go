package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Catalog is what a Consul has on the nodes of the director.
type Catalog struct {
	Nodes   []CatalogNode
	Entries []Actual
	Agents  []CatalogNode // the nodes that agents have registered themselves; what is on them is theirs
}

// CatalogNode is a node whose meta names the director as its owner.
type CatalogNode struct {
	Name, Address string
	Meta          map[string]string
	Index         uint64 // at which it changed last; a removal names it
	Alive         bool   // other members of the datacenter see its agent
}

// Actual is an entry as the catalog has it. Entries that others write on a node of the director are among them.
type Actual struct {
	Entry
	Checked bool   // it has its check
	Index   uint64 // at which it changed last; a removal names it
}

// Changes are what brings a catalog to what is wanted.
type Changes struct {
	Put []Entry
	// Refresh are entries that are as wanted, and say when they were written.
	Refresh []Entry
	Remove  []Actual
	// Nodes go with everything on them, also what a program in the cluster has written there: the cluster is gone.
	Nodes []CatalogNode
	gone  []string // what goes, of entries and nodes alike
	// handed counts removals of entries that agents have by now: no service loses an instance.
	handed int
	own    int // entries on the director's nodes, those of other writers too
}

// Compare returns what has to change. It removes only entries of this director, on nodes of this director; what the
// sync of a cluster has written only once the cluster has no sync any more. It is pure.
func Compare(id string, wanted []Entry, keep map[string]Kept, have Catalog) Changes {
	c := Changes{own: len(have.Entries)}
	want := make(map[[2]string]bool, len(wanted))
	nodes := map[string]CatalogNode{}
	for _, n := range have.Nodes {
		if n.Meta[MetaOwner] == id {
			nodes[n.Name] = n
		}
	}
	leaving := leavers(id, nodes, keep, have.Entries)
	actual := make(map[[2]string]Actual, len(have.Entries))
	for _, a := range have.Entries {
		actual[[2]string{a.Node, a.ID}] = a
	}
	for _, w := range wanted {
		key := [2]string{w.Node, w.ID}
		want[key] = true
		a, there := actual[key]
		n, known := nodes[w.Node]
		if !there || !a.Checked || !same(w, a.Entry) || !known || !sameNode(id, w, n) {
			c.Put = append(c.Put, w)
		} else if stale(w, a.Entry) {
			c.Refresh = append(c.Refresh, w)
		}
	}
	for key, a := range actual {
		n, known := nodes[a.Node]
		cluster := n.Meta[MetaCluster]
		own := known && !want[key] && a.Meta[MetaOwner] == id
		synced := cluster != "" && a.Meta[MetaCluster] == cluster && a.Meta[MetaWriter] == ""
		switch {
		case leaving[a.Node]:
			c.gone = append(c.gone, a.Node+"/"+a.ID)
		case own && a.Meta[MetaWriter] == writer && keep[cluster].Watched[a.ID]:
			c.Remove = append(c.Remove, a)
			c.handed++
		case own && (a.Meta[MetaWriter] == writer || synced && !keep[cluster].Synced):
			c.Remove = append(c.Remove, a)
			c.gone = append(c.gone, a.Node+"/"+a.ID)
		}
	}
	slices.Sort(c.gone)
	slices.SortFunc(c.Remove, func(a, b Actual) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	for _, name := range slices.Sorted(maps.Keys(leaving)) {
		c.Nodes = append(c.Nodes, nodes[name])
	}
	return c
}

// leavers returns the nodes of the director that should go: those of clusters that are gone, and those on which there
// is nothing any more of a sync that has ended.
func leavers(id string, nodes map[string]CatalogNode, keep map[string]Kept, entries []Actual) map[string]bool {
	carries := map[string]bool{}
	for _, a := range entries {
		carries[a.Node] = true
	}
	out := map[string]bool{}
	for name, n := range nodes {
		uid := n.Meta[MetaCluster]
		kept, stays := keep[uid]
		ended := name != Node(uid) && !kept.Synced && !carries[name]
		if name != Node(id) && (!stays || uid == "" || ended) {
			out[name] = true
		}
	}
	return out
}

func same(a, b Entry) bool {
	return a.Service == b.Service && a.Address == b.Address && a.Port == b.Port && a.Passing == b.Passing &&
		slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Meta, b.Meta)
}

func sameNode(id string, w Entry, n CatalogNode) bool {
	return n.Address == NodeAddress && maps.Equal(n.Meta, nodeMeta(id, w.Cluster))
}

// nodeMeta marks a node: that of a cluster, or the director's own.
func nodeMeta(id, cluster string) map[string]string {
	if cluster == "" {
		return map[string]string{MetaOwner: id}
	}
	return map[string]string{MetaOwner: id, MetaCluster: cluster}
}

// The bounds of removals that need no one's word: as many entries as a cluster or two have, or a fifth of all.
const (
	fewRemovals = 10
	mostPercent = 20
	sampleSize  = 10
)

// held returns the removals if they are so many at once that a person has to agree to them, and has not. An id is that
// of one set: another removal is another question.
func (c Changes) held(confirmed string) *director.Removals {
	n := len(c.gone)
	if n <= fewRemovals || n*100 <= mostPercent*c.own {
		return nil
	}
	sum := sha256.Sum256([]byte(strings.Join(c.gone, "\n")))
	id := hex.EncodeToString(sum[:6])
	if id == confirmed {
		return nil
	}
	return &director.Removals{ID: id, Count: n, Total: c.own, Sample: c.gone[:min(n, sampleSize)]}
}

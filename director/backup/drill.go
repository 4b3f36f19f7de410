package backup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Contents is what etcd has at a revision.
type Contents struct {
	// Resources are the numbers of keys by resource, as in /registry/RESOURCE/: pods, or apps.example/widgets. What
	// ends by itself is left out: events, and the addresses of API servers.
	Resources map[string]int64 `json:"resources"`
	// Names of what a cluster cannot do without. Of a kind with very many objects the names are left out.
	Namespaces []string `json:"namespaces,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
	CRDs       []string `json:"crds,omitempty"`
}

// Keys returns how many keys there are of all resources.
func (c Contents) Keys() (n int64) {
	for _, of := range c.Resources {
		n += of
	}
	return n
}

// The resources of what Contents and Answer name.
const (
	resourceNamespaces = "namespaces"
	resourceNodes      = "minions"
	resourceCRDs       = "apiextensions.k8s.io/customresourcedefinitions"
	resourceSecrets    = "secrets"
)

// Answer is what a restored etcd and its API server said.
type Answer struct {
	Restored Contents `json:"restored"` // of etcd, before the API server was started
	API      struct {
		Version    string   `json:"version"`
		Namespaces []string `json:"namespaces"`
		Nodes      []string `json:"nodes"`
		CRDs       []string `json:"crds"`
		Secrets    int64    `json:"secrets"` // that it decrypted
	} `json:"api"`
	// Keys are the names of the keys that Secrets in the restored etcd are encrypted with; "" is for one in the clear.
	Keys    []string           `json:"keys"`
	Seconds map[string]float64 `json:"seconds"` // what took how long on the VM
}

// mostProblems bounds what Problems tells.
const mostProblems = 20

// Problems says in which way the answer is not what the manifest promises; nil if it is. known are the names of the
// keys that the director has for Secrets of the cluster.
func (m Manifest) Problems(a Answer, known []string) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	want := a.Restored // a manifest that does not tell is compared with etcd itself
	if m.Contents != nil {
		want = *m.Contents
		for _, r := range slices.Sorted(maps.Keys(merged(want.Resources, a.Restored.Resources))) {
			if was, is := want.Resources[r], a.Restored.Resources[r]; was != is {
				add("etcd has %d keys of %s, and had %d when the backup was made", is, r, was)
			}
		}
	}
	if want.Resources[resourceNamespaces] == 0 {
		add("the backup has no namespace")
	}
	counted := func(what, resource string, named, got []string) {
		if n := want.Resources[resource]; n != int64(len(got)) {
			add("the API has %d %s, and the backup %d", len(got), what, n)
		}
		if missing := without(named, got); len(missing) > 0 {
			add("the API does not have the %s %s", what, strings.Join(missing, ", "))
		}
	}
	counted("namespaces", resourceNamespaces, want.Namespaces, a.API.Namespaces)
	counted("nodes", resourceNodes, want.Nodes, a.API.Nodes)
	counted("CRDs", resourceCRDs, want.CRDs, a.API.CRDs)
	if n := want.Resources[resourceSecrets]; n != a.API.Secrets {
		add("the API decrypts %d Secrets, and the backup has %d", a.API.Secrets, n)
	}
	for _, key := range a.Keys {
		switch {
		case key == "":
			add("a Secret in the backup is not encrypted")
		case !slices.Contains(known, key):
			add("a Secret in the backup is encrypted with %s, which the director does not have", key)
		}
	}
	if len(out) > mostProblems {
		out = append(out[:mostProblems], fmt.Sprintf("and %d more", len(out)-mostProblems))
	}
	return out
}

func merged(a, b map[string]int64) map[string]int64 {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]int64{}
	}
	maps.Copy(all, b)
	return all
}

// without returns what is in all and not in some.
func without(all, some []string) []string {
	have := map[string]bool{}
	for _, s := range some {
		have[s] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return have[s] })
}

// Drill is one try to restore a backup into a VM of its own.
type Drill struct {
	Plan       string // that does it, which is also the drill's id
	Cluster    string
	ClusterUID string
	Backup     string
	Began      time.Time
	Answered   time.Time // when etcd and the API had said what the manifest promises; zero until then
	Ended      time.Time // when the VM was gone; zero until then
	Problem    string    // why it did not succeed
	Keys       int64     // that were compared
}

// OK reports whether the backup was restored and was what its manifest promises.
func (d Drill) OK() bool { return !d.Answered.IsZero() && d.Problem == "" }

// Took returns how long it took from the start to the last answer.
func (d Drill) Took() time.Duration { return d.Answered.Sub(d.Began) }

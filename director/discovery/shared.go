package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
)

// names looks whether anyone else registers API servers under the names of the clusters, such as another director with
// a cluster of the same name: Consul's DNS answers with the servers of both. What the token may not read stays unknown.
func (t *tester) names(ctx context.Context, h host, clusters []Cluster) {
	const what = "names of API servers"
	var mu sync.Mutex
	var others []string
	err := each(readers, clusters, func(c Cluster) error {
		list, _, err := h.api.Health().Service(service(c.Name), "", false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return explain(h.name, err)
		}
		for _, e := range list {
			if e.Node.Meta[MetaOwner] == t.director && e.Node.Meta[MetaCluster] == c.UID {
				continue
			}
			mu.Lock()
			others = append(others, fmt.Sprintf("%s at %s, on the node %s of %s", service(c.Name),
				clean(cmp.Or(e.Service.Address, e.Node.Address)), clean(e.Node.Node),
				clean(cmp.Or(e.Node.Meta[MetaOwner], "an unknown owner"))))
			mu.Unlock()
		}
		return nil
	})
	if err == nil && len(others) > 0 {
		slices.Sort(others)
		all := len(others)
		err = director.Errorf(
			director.KindConflict, "discovery.test", "%d instances are not of this director's clusters: %s", all,
			strings.Join(others[:min(all, sampleSize)], "; "),
		).WithHint("a lookup of such a name may find another API server: remove these instances, or give one of the " +
			"clusters another name")
	}
	t.add("", what, "no one else registers them", err)
}

// named returns the clusters whose documents name the Consul.
func (w World) named(consul string) []Cluster {
	return slices.DeleteFunc(slices.Clone(w.Clusters), func(c Cluster) bool { return c.Consul != consul })
}

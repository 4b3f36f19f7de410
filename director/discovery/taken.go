package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
)

// TakenNodes returns a problem for each owner of nodes in the Consul that have the names which the agents on the
// machines of the cluster would have: Consul has one node of a name, and refuses an agent that comes second. What this
// director has in Consul is no problem, and what the token may not read stays unknown. A director that simulates asks
// nothing.
func (s *Service) TakenNodes(ctx context.Context, consul string, machines []string) ([]director.Field, error) {
	if s.Connect == nil {
		return nil, nil
	}
	_, h, err := s.open(ctx, consul)
	if err != nil {
		return nil, err
	}
	list, _, err := h.api.Catalog().Nodes((&api.QueryOptions{
		Filter: fmt.Sprintf("Node matches %q", "^"+director.ConsulPrefix),
	}).WithContext(ctx))
	if err != nil {
		return nil, explain(h.name, err)
	}
	taken := map[string][]string{} // names of nodes, by owner
	for _, n := range list {
		machine := strings.TrimPrefix(n.Node, director.ConsulPrefix)
		if n.Meta[MetaOwner] == s.Director || !slices.Contains(machines, machine) {
			continue
		}
		owner := "an unknown owner"
		if id := n.Meta[MetaOwner]; id != "" {
			owner = "the director " + clean(id) + ", for its cluster " + clean(cmp.Or(n.Meta[MetaCluster], "of no uid"))
		}
		taken[owner] = append(taken[owner], n.Node)
	}
	var out []director.Field
	for _, owner := range slices.Sorted(maps.Keys(taken)) {
		names := taken[owner]
		slices.Sort(names)
		out = append(out, director.Field{
			Path: "metadata.name",
			Msg: fmt.Sprintf("Consul/%s has %d nodes with the names of this cluster's already, of %s: %s", consul,
				len(names), owner, strings.Join(names[:min(len(names), sampleSize)], ", ")),
			Hint: "choose another cluster name, or set spec.discovery.agents to false; if the other cluster is gone, " +
				"remove its nodes: consul force-leave -prune NODE",
		})
	}
	return out, nil
}

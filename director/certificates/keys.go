package certificates

import (
	"context"
	"maps"
	"slices"

	"github.com/director-kaas/kaas/director"
)

// ListKeys returns the keys that are no certificates: of the named cluster, or of the director and then all clusters.
func (i *Inventory) ListKeys(ctx context.Context, cluster string) ([]director.Key, error) {
	machines, err := i.Store.Machines(ctx)
	if err != nil {
		return nil, err
	}
	uids := map[string]string{}
	for _, m := range machines {
		if m.Deleted.IsZero() && m.ClusterUID != "" && (cluster == "" || m.Cluster == cluster) {
			uids[m.Cluster] = m.ClusterUID
		}
	}
	var all []director.Key
	if cluster == "" {
		if all, err = i.OwnKeys(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(uids)) {
		keys, err := i.Keys(ctx, uids[name])
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			k.Cluster = name
			all = append(all, k)
		}
	}
	return all, nil
}

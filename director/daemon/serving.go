package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// How often clusters are asked for requests of kubelets. A node that has joined waits that long for logs, exec and
// metrics, and a plan that proves that the cluster works waits for them too.
const (
	servingEvery  = 10 * time.Second
	servingOften  = 2 * time.Second // of clusters with a plan that runs
	servingAtOnce = 20              // so many of those at most; with more, all wait for the next usual pass
)

// startServing approves the certificates that kubelets serve with.
func (d background) startServing(ctx context.Context, db *store.Store, reached steps.Clusters) {
	if reached.Connect != nil {
		return // clusters that only pretend have no kubelets
	}
	approver := &certificates.Approver{
		Machines: func(ctx context.Context) ([]director.Machine, error) {
			return db.Machines(ctx, store.MachineFilter{Nodes: true})
		},
		Connect: func(ctx context.Context, uid, name, endpoint string) (certificates.Cluster, error) {
			api, err := reached.Cluster(ctx, uid, name, endpoint)
			if err != nil {
				return nil, err
			}
			if cluster, ok := api.(certificates.Cluster); ok {
				return cluster, nil
			}
			api.Close()
			return nil, nil
		},
		Log: d.log,
	}
	d.every(ctx, servingEvery, "approve the serving certificates of kubelets", approver.Pass)
	d.every(ctx, servingOften, "approve the serving certificates of new nodes", func(ctx context.Context) error {
		busy, err := db.BusyClusters(ctx, servingAtOnce+1)
		if err != nil || len(busy) == 0 || len(busy) > servingAtOnce {
			return err
		}
		return approver.PassOf(ctx, busy)
	})
}

package apitest

import (
	"context"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Kubeconfig returns a text.
func (o Access) Kubeconfig(_ context.Context, actor, cluster string, ttl time.Duration) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.up[cluster] {
		return nil, director.Errorf(director.KindConflict, "apitest.kubeconfig", "cluster %s does not run", cluster)
	}
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Config\n# %s for %s\n", actor, ttl), nil
}

// UserKubeconfig returns a text for everyone.
func (o Access) UserKubeconfig(ctx context.Context, cluster string) ([]byte, error) {
	return o.Kubeconfig(ctx, "everyone", cluster, 0)
}

// BreakGlass returns a text.
func (o Access) BreakGlass(ctx context.Context, actor, cluster string, ttl time.Duration) ([]byte, error) {
	return o.Kubeconfig(ctx, actor, cluster, ttl)
}

// RevokeKubeconfigs only looks whether the cluster runs.
func (o Access) RevokeKubeconfigs(ctx context.Context, actor, cluster string) error {
	_, err := o.Kubeconfig(ctx, actor, cluster, 0)
	return err
}

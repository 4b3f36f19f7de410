package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

func (c *clusterCalls) Clusters(ctx context.Context, fields ...string) ([]wire.Cluster, error) {
	var items []wire.Cluster
	for after := ""; ; {
		part, err := c.ClusterPage(ctx, after, fields...)
		if err != nil {
			return items, err
		}
		items = append(items, part.Items...)
		if after = part.Continue; after == "" {
			return items, nil
		}
	}
}

func (c *clusterCalls) ClusterPage(ctx context.Context, after string, fields ...string) (wire.Clusters, error) {
	q := url.Values{"limit": {strconv.Itoa(mostPerPage)}}
	if len(fields) > 0 {
		q.Set("fields", strings.Join(fields, ","))
	}
	if after != "" {
		q.Set("continue", after)
	}
	var l wire.Clusters
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters", query: q}, &l)
	return l, err
}

func (c *clusterCalls) Cluster(ctx context.Context, name string) (wire.Cluster, error) {
	var v wire.Cluster
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + name}, &v)
	return v, err
}

func (c *clusterCalls) Nodes(ctx context.Context, cluster string) (wire.Nodes, error) {
	var v wire.Nodes
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/nodes"}, &v)
	return v, err
}

func (c *clusterCalls) Rehearse(
	ctx context.Context, cluster, node string, unmanaged, emptyDir bool,
) ([]wire.Eviction, error) {
	var v wire.Evictions
	query := url.Values{}
	if unmanaged {
		query.Set("unmanaged", "true")
	}
	if emptyDir {
		query.Set("delete_emptydir", "true")
	}
	err := c.call(ctx, request{
		method: http.MethodGet, path: "/clusters/" + cluster + "/nodes/" + node + "/drain", query: query,
	}, &v)
	return v.Items, err
}

func (c *clusterCalls) ConsoleOf(ctx context.Context, cluster, node string, most int) (wire.ConsoleText, error) {
	var v wire.ConsoleText
	query := url.Values{"bytes": {strconv.Itoa(most)}}
	err := c.call(ctx, request{
		method: http.MethodGet, path: "/clusters/" + cluster + "/nodes/" + node + "/console", query: query,
	}, &v)
	return v, err
}

func (c *clusterCalls) Kubeconfig(ctx context.Context, cluster string, ttl time.Duration) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/kubeconfig",
		body: wire.KubeconfigRequest{TTLSeconds: int64(ttl / time.Second)}, accept: "application/yaml",
	})
}

func (c *clusterCalls) ClusterToken(ctx context.Context, cluster string) (wire.ClusterToken, error) {
	var t wire.ClusterToken
	err := c.call(ctx, request{method: http.MethodPost, path: "/clusters/" + cluster + "/token"}, &t)
	return t, err
}

func (c *clusterCalls) UserKubeconfig(ctx context.Context, cluster string) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodGet, path: "/clusters/" + cluster + "/kubeconfig", accept: "application/yaml",
	})
}

func (c *clusterCalls) BreakGlass(
	ctx context.Context, cluster string, password director.Secret, ttl time.Duration,
) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/break-glass", accept: "application/yaml",
		body: wire.BreakGlass{Password: password.Reveal(), TTLSeconds: int64(ttl / time.Second)},
	})
}

func (c *clusterCalls) RevokeKubeconfigs(ctx context.Context, cluster string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/clusters/" + cluster + "/kubeconfig"}, nil)
}

func (c *clusterCalls) Inventory(ctx context.Context, cluster string) (map[string]string, error) {
	var i wire.Inventory
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/inventory"}, &i)
	return i.Files, err
}

func (c *clusterCalls) ExportInventory(
	ctx context.Context, cluster string, password director.Secret, ttl time.Duration,
) (map[string]string, error) {
	var i wire.Inventory
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/inventory",
		body: wire.InventoryExport{Password: password.Reveal(), TTLSeconds: int64(ttl / time.Second)},
	}, &i)
	return i.Files, err
}

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

// Clusters lists the clusters with their state, or the named fields of it.
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

// ClusterPage returns the part of the list of clusters that an earlier part names as its continue; the first one for
// "".
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

// Cluster returns the state of one cluster.
func (c *clusterCalls) Cluster(ctx context.Context, name string) (wire.Cluster, error) {
	var v wire.Cluster
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + name}, &v)
	return v, err
}

// Nodes shows the nodes of the cluster. The cluster itself is asked.
func (c *clusterCalls) Nodes(ctx context.Context, cluster string) (wire.Nodes, error) {
	var v wire.Nodes
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/nodes"}, &v)
	return v, err
}

// Rehearse is a dry run of a drain: it returns the pods that would be evicted, and what would block them.
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

// Kubeconfig mints an administrator's kubeconfig; ttl 0 lets the director choose.
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

// UserKubeconfig returns the kubeconfig for everyone, which holds no secret.
func (c *clusterCalls) UserKubeconfig(ctx context.Context, cluster string) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodGet, path: "/clusters/" + cluster + "/kubeconfig", accept: "application/yaml",
	})
}

// BreakGlass mints a kubeconfig that the cluster accepts whatever its RBAC says.
func (c *clusterCalls) BreakGlass(
	ctx context.Context, cluster string, password director.Secret, ttl time.Duration,
) ([]byte, error) {
	return c.text(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/break-glass", accept: "application/yaml",
		body: wire.BreakGlass{Password: password.Reveal(), TTLSeconds: int64(ttl / time.Second)},
	})
}

// RevokeKubeconfigs ends all that Kubeconfig has minted for the cluster.
func (c *clusterCalls) RevokeKubeconfigs(ctx context.Context, cluster string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/clusters/" + cluster + "/kubeconfig"}, nil)
}

// Inventory returns what a playbook run of the cluster would get, by path, without secrets.
func (c *clusterCalls) Inventory(ctx context.Context, cluster string) (map[string]string, error) {
	var i wire.Inventory
	err := c.call(ctx, request{method: http.MethodGet, path: "/clusters/" + cluster + "/inventory"}, &i)
	return i.Files, err
}

// ExportInventory is Inventory with the cluster's secrets and an SSH key with a certificate; ttl 0 lets the director
// choose how long that is good for.
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

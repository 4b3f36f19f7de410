package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director/wire"
)

// NodeFilter narrows AllNodes. What is empty does not narrow.
type NodeFilter struct {
	Text       string // in the name, cluster, address, host or pool
	Clusters   []string
	Roles      []string
	Conditions []string
	Host       string
	Version    string // that the kubelet reports
	Problem    bool   // only nodes with a problem
	Sort       string
	Limit      int // at most so many; 0 for all
}

// AllNodes lists the nodes of all clusters as the director saw them last.
func (c *clusterCalls) AllNodes(ctx context.Context, f NodeFilter) (wire.FleetNodes, error) {
	q := url.Values{}
	for key, value := range map[string]string{
		"q": f.Text, "cluster": strings.Join(f.Clusters, ","), "role": strings.Join(f.Roles, ","),
		"condition": strings.Join(f.Conditions, ","), "host": f.Host, "version": f.Version, "sort": f.Sort,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.Problem {
		q.Set("problem", "true")
	}
	var out wire.FleetNodes
	for {
		limit := mostPerPage
		if f.Limit > 0 {
			limit = min(f.Limit-len(out.Items), mostPerPage)
		}
		q.Set("limit", strconv.Itoa(limit))
		var part wire.FleetNodes
		if err := c.call(ctx, request{method: http.MethodGet, path: "/nodes", query: q}, &part); err != nil {
			return out, err
		}
		part.Items = append(out.Items, part.Items...)
		out = part
		if out.Continue == "" || f.Limit > 0 && len(out.Items) >= f.Limit {
			return out, nil
		}
		q.Set("continue", out.Continue)
	}
}

// Summary counts clusters, nodes, plans and waits.
func (c *clusterCalls) Summary(ctx context.Context) (wire.Summary, error) {
	var out wire.Summary
	err := c.call(ctx, request{method: http.MethodGet, path: "/summary"}, &out)
	return out, err
}

// Waits lists what plans wait for, the longest wait first. An empty owner or cluster does not narrow.
func (c *planCalls) Waits(ctx context.Context, owner, cluster string) (wire.PlanWaits, error) {
	q := url.Values{"limit": {"1000"}}
	if owner != "" {
		q.Set("owner", owner)
	}
	if cluster != "" {
		q.Set("cluster", cluster)
	}
	var out wire.PlanWaits
	err := c.call(ctx, request{method: http.MethodGet, path: "/waits", query: q}, &out)
	return out, err
}

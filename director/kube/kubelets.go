package kube

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube/kubelet"
)

// KubeletClientEnd returns when the client certificate ends with which the kubelet of the node comes to the API server.
// The kubelet itself is asked for it, through the API server. Errors: not_found if it does not say, unavailable if it
// does not answer.
func (c *Client) KubeletClientEnd(ctx context.Context, node string) (time.Time, error) {
	const op = "kube.kubelet_client_end"
	body, err := c.api.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix(
		"metrics",
	).Stream(ctx)
	if err != nil {
		return time.Time{}, c.failed(op, err)
	}
	defer func() { _ = body.Close() }()
	left, ok, err := kubelet.ClientLeft(body)
	if err != nil {
		return time.Time{}, c.failed(op, err)
	}
	if !ok {
		return time.Time{}, director.Errorf(
			director.KindNotFound, op, "the kubelet of %s does not tell how long its client certificate is good", node,
		)
	}
	return time.Now().Add(left), nil
}

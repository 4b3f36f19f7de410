package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HostKeyAnnotation has the SSH host key of a node, signed by the director.
const HostKeyAnnotation = "director-kaas.github.io/ssh-host-key"

// RecordHostKey writes the signed host key of the node into the cluster. Idempotent. Errors: not_found if there is no
// such node.
func (c *Client) RecordHostKey(ctx context.Context, node, signed string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{HostKeyAnnotation: signed}},
	})
	if err != nil {
		return c.failed("kube.host_key", err)
	}
	_, err = c.api.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return c.failed("kube.host_key", err)
	}
	return nil
}

package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rootAuthorities is the config map by which pods get the authorities of the API servers.
const rootAuthorities = "kube-root-ca.crt"

// OldTrust returns the pods, as namespace/name in order, that have the authorities of the API servers in a volume, and
// a container that has run since before t; for pods of kube-system, since before own. A client that reads them only at
// its start does not know those that came later. Pods on nodes that are away are left out.
func (c *Client) OldTrust(ctx context.Context, t, own time.Time, away []string) ([]string, error) {
	var old []string
	opts := metav1.ListOptions{Limit: podsPerPage, FieldSelector: "status.phase=" + string(corev1.PodRunning)}
	for {
		page, err := c.api.CoreV1().Pods("").List(ctx, opts)
		if err != nil {
			return nil, c.failed("kube.old_trust", err)
		}
		for i := range page.Items {
			p, since := &page.Items[i], t
			if p.Namespace == metav1.NamespaceSystem {
				since = own
			}
			if readsAuthorities(p) && runsSinceBefore(p, since) && !slices.Contains(away, p.Spec.NodeName) {
				old = append(old, p.Namespace+"/"+p.Name)
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	slices.Sort(old)
	return old, nil
}

func readsAuthorities(p *corev1.Pod) bool {
	for _, v := range p.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == rootAuthorities {
			return true
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil && s.ConfigMap.Name == rootAuthorities {
				return true
			}
		}
	}
	return false
}

func runsSinceBefore(p *corev1.Pod, t time.Time) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && s.State.Running.StartedAt.Time.Before(t)
	})
}

package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/director-kaas/kaas/director"
)

// The ConfigMap with the claim of the director that works on a cluster.
const (
	claimNamespace = "kube-system"
	claimName      = "kaas-director"
)

// Claim returns which director says that it works on the cluster, and the version of that for PutClaim. Both are empty
// if none does. Who administers the cluster can write anything there.
func (c *Client) Claim(ctx context.Context) (claim director.Claim, version string, err error) {
	has, err := c.api.CoreV1().ConfigMaps(claimNamespace).Get(ctx, claimName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return director.Claim{}, "", nil
	case err != nil:
		return director.Claim{}, "", c.failed("kube.claim", err)
	}
	claim = director.Claim{Director: has.Data["director"], Run: has.Data["run"], Host: has.Data["host"]}
	return claim, has.ResourceVersion, nil
}

// PutClaim replaces the claim that has the version. Errors: conflict if another one was written meanwhile.
func (c *Client) PutClaim(ctx context.Context, claim director.Claim, version string) error {
	const op = "kube.put_claim"
	maps := c.api.CoreV1().ConfigMaps(claimNamespace)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: claimName, Labels: map[string]string{"app.kubernetes.io/managed-by": "director"},
			ResourceVersion: version,
		},
		Data: map[string]string{"director": claim.Director, "run": claim.Run, "host": claim.Host},
	}
	var err error
	if version == "" {
		_, err = maps.Create(ctx, want, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, want, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), version != "" && apierrors.IsNotFound(err):
		return director.Errorf(director.KindConflict, op, "another claim was written meanwhile")
	case err != nil:
		return c.failed(op, err)
	}
	return nil
}

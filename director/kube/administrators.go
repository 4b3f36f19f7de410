package kube

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdministratorsBinding is the binding of the group whose kubeconfigs with certificates are good.
const AdministratorsBinding = "kaas:kubeconfigs"

// BindAdministrators makes the group, and no other one of kubeconfigs, administrators of the cluster. Idempotent.
func (c *Client) BindAdministrators(ctx context.Context, group string) error {
	const op = "kube.bind_administrators"
	bindings := c.api.RbacV1().ClusterRoleBindings()
	want := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: AdministratorsBinding, Labels: map[string]string{"app.kubernetes.io/managed-by": "director"},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
	has, err := bindings.Get(ctx, AdministratorsBinding, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = bindings.Create(ctx, want, metav1.CreateOptions{})
	case err != nil:
	case has.RoleRef != want.RoleRef: // which the API server does not change
		if err = bindings.Delete(ctx, AdministratorsBinding, metav1.DeleteOptions{}); err == nil {
			_, err = bindings.Create(ctx, want, metav1.CreateOptions{})
		}
	case len(has.Subjects) != 1 || has.Subjects[0] != want.Subjects[0]:
		has.Subjects = want.Subjects
		_, err = bindings.Update(ctx, has, metav1.UpdateOptions{})
	}
	if err != nil {
		return c.failed(op, err)
	}
	return nil
}

package kube

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// The reasons for which a drain does not move a pod away.
const (
	BlockedByBudget  = "budget"     // a disruption budget allows no further disruption now
	BlockedUnmanaged = "unmanaged"  // nothing would create the pod again
	BlockedLocalData = "local_data" // what it keeps on the node would be lost
	BlockedOtherwise = "other"
)

const podsPerPage = 500

// Eviction is a pod that a drain of its node would move away.
type Eviction struct {
	Namespace string
	Pod       string
	Owner     string // kind and name of its controller, such as ReplicaSet/web-5d9f; empty for none
	Blocked   string // why it would stay: one of the Blocked constants; empty if it would go
	Why       string // of Blocked, for people
}

// DrainLimits say what a drain may evict besides pods that a controller creates again.
type DrainLimits struct {
	Unmanaged bool // pods that nothing creates again
	LocalData bool // pods whose local data is lost with them
}

// Rehearse is a dry run of a drain. It returns the pods that a drain of the node would evict, ordered by namespace and
// name, and asks the API server for each with a dry run of its eviction. Pods of daemon sets and of the control plane
// stay on a drained node and are not listed. Nothing is changed. A pod that a budget protects now may go later in a
// real drain, when another one has come up elsewhere.
func (c *Client) Rehearse(ctx context.Context, node string, may DrainLimits) ([]Eviction, error) {
	const op = "kube.rehearse"
	var pods []corev1.Pod
	opts := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: podsPerPage,
	}
	for {
		page, err := c.api.CoreV1().Pods("").List(ctx, opts)
		if err != nil {
			return nil, c.failed(op, err)
		}
		pods = append(pods, page.Items...)
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	var out []Eviction
	for i := range pods {
		p := &pods[i]
		owner := metav1.GetControllerOf(p)
		if stays(p, owner) {
			continue
		}
		e := Eviction{Namespace: p.Namespace, Pod: p.Name}
		if owner != nil {
			e.Owner = owner.Kind + "/" + owner.Name
		}
		finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		switch volume := localData(p); {
		case finished:
		case owner == nil && !may.Unmanaged:
			e.Blocked, e.Why = BlockedUnmanaged, "nothing would create it again elsewhere"
		case volume != "" && !may.LocalData:
			e.Blocked, e.Why = BlockedLocalData, "what is in its emptyDir volume "+volume+" would be lost"
		default:
			var err error
			if e.Blocked, e.Why, err = c.mayEvict(ctx, p); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Eviction) int {
		return strings.Compare(a.Namespace+"/"+a.Pod, b.Namespace+"/"+b.Pod)
	})
	return out, nil
}

// stays reports whether a drain leaves the pod where it is.
func stays(p *corev1.Pod, owner *metav1.OwnerReference) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || p.DeletionTimestamp != nil || (owner != nil && owner.Kind == "DaemonSet")
}

// localData returns the name of the first volume whose content lives and dies with the pod, or "".
func localData(p *corev1.Pod) string {
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			return v.Name
		}
	}
	return ""
}

// mayEvict asks the API server for an eviction that is not carried out.
func (c *Client) mayEvict(ctx context.Context, p *corev1.Pod) (blocked, why string, err error) {
	err = c.api.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err): // gone meanwhile
		return "", "", nil
	case apierrors.IsTooManyRequests(err):
		why, berr := c.budgetsOf(ctx, p)
		return BlockedByBudget, why, berr
	case apierrors.IsForbidden(err), apierrors.IsInternalError(err): // such as two budgets for one pod
		return BlockedOtherwise, reasonOf(err), nil
	}
	return "", "", c.failed("kube.rehearse", err)
}

func reasonOf(err error) string {
	if s, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return s.ErrStatus.Message
	}
	return err.Error()
}

// budgetsOf names the budgets that hold the pod and what they allow.
func (c *Client) budgetsOf(ctx context.Context, p *corev1.Pod) (string, error) {
	list, err := c.api.PolicyV1().PodDisruptionBudgets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", c.failed("kube.rehearse", err)
	}
	var out []string
	for i := range list.Items {
		b := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(p.Labels)) || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		out = append(out, budgetText(b))
	}
	if len(out) == 0 {
		return "a disruption budget allows no further disruption", nil
	}
	return strings.Join(out, "; "), nil
}

func budgetText(b *policyv1.PodDisruptionBudget) string {
	s := b.Status
	return "disruption budget " + b.Name + " allows no disruption: " + strconv.Itoa(int(s.CurrentHealthy)) +
		" of its pods are healthy and " +
		strconv.Itoa(int(s.DesiredHealthy)) + " have to be"
}

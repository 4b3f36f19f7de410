package kube

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// carriers are the daemons of kube-system that carry traffic to services and pods. A node whose kube-proxy does not run
// still sends to endpoints that have moved.
var carriers = []string{"calico-node", "kube-proxy"}

// NotCarrying says why the node does not carry traffic to services and pods, for want of a daemon that is ready: ""
// when it does. A daemon that the cluster does not have is not waited for, and neither is one on a node that its node
// selector leaves out.
func (c *Client) NotCarrying(ctx context.Context, node string) (string, error) {
	const op = "kube.carrying"
	n, err := c.api.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "has not joined", nil
	}
	if err != nil {
		return "", c.failed(op, err)
	}
	seen, err := c.carriers(ctx, op, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return "", err
	}
	for _, d := range seen.daemons {
		if p := seen.pod(d, *n); p.missing != "" {
			return p.missing, nil
		}
	}
	return "", nil
}

// RollingOut returns which nodes that are Ready lack one of the daemons that carry traffic to services and pods, or are
// about to get another revision of it, and why: none when traffic does not suffer from a rollout any more. Nodes that
// are not Ready are not waited for. They may hold a rollout up for good, since a daemon exchanges no more pods while as
// many as it can spare are missing: the former revision is good enough then, as long as it runs.
func (c *Client) RollingOut(ctx context.Context) ([]Absence, error) {
	const op = "kube.rollout"
	nodes, err := c.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	revisions, err := c.api.AppsV1().ControllerRevisions(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	all, err := c.carriers(ctx, op, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var missing []Absence
	for _, d := range all.daemons {
		d.newest = newestRevision(d.DaemonSet, revisions.Items)
		var former []Absence
		lost := 0
		for _, n := range nodes.Items {
			p := all.pod(d, n)
			switch name := n.Name; {
			case !nodeOf(&n).Ready:
				if p.missing != "" || p.former {
					lost++
				}
			case p.missing != "":
				missing = append(missing, Absence{Name: name, Why: p.missing})
			case p.former:
				former = append(former, Absence{Name: name, Why: "still has the former " + d.Name})
			}
		}
		if lost < spare(d) {
			missing = append(missing, former...)
		}
	}
	slices.SortStableFunc(missing, func(a, b Absence) int { return strings.Compare(a.Name, b.Name) })
	return missing, nil
}

// carrying is what was seen of the daemons that carry traffic.
type carrying struct {
	daemons []daemon
	pods    []corev1.Pod
}

type daemon struct {
	*appsv1.DaemonSet
	newest string // hash of the template, "" as long as the controller has not seen it
}

func (c *Client) carriers(ctx context.Context, op string, ofPods metav1.ListOptions) (carrying, error) {
	daemons, err := c.api.AppsV1().DaemonSets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return carrying{}, c.failed(op, err)
	}
	pods, err := c.api.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, ofPods)
	if err != nil {
		return carrying{}, c.failed(op, err)
	}
	out := carrying{pods: pods.Items}
	for i := range daemons.Items {
		if d := &daemons.Items[i]; slices.Contains(carriers, d.Name) {
			out.daemons = append(out.daemons, daemon{DaemonSet: d})
		}
	}
	return out, nil
}

// newestRevision returns the hash that pods of the daemon's template carry. The controller gives the revision of the
// template the highest number, also when the template goes back to what it was
// (k8s.io/kubernetes/pkg/controller/daemon/update.go).
func newestRevision(d *appsv1.DaemonSet, all []appsv1.ControllerRevision) string {
	if d.Status.ObservedGeneration < d.Generation {
		return ""
	}
	hash, highest := "", int64(-1)
	for i := range all {
		if r := &all[i]; metav1.IsControlledBy(r, d) && r.Revision > highest {
			hash, highest = r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey], r.Revision
		}
	}
	return hash
}

// spare returns how many pods may be missing while a rollout of the daemon takes away another one: none where nothing
// rolls out by itself.
func spare(d daemon) int {
	u := d.Spec.UpdateStrategy
	if u.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return 0
	}
	if u.RollingUpdate == nil || u.RollingUpdate.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(
		u.RollingUpdate.MaxUnavailable, int(d.Status.DesiredNumberScheduled), true,
	)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// daemonPod is a daemon on a node.
type daemonPod struct {
	missing string // why it does not run; empty if it does
	former  bool   // it runs, and not as its template wants it
}

// pod looks at the daemon on the node. A pod that is ending does not count.
func (c carrying) pod(d daemon, n corev1.Node) daemonPod {
	if !labels.SelectorFromSet(d.Spec.Template.Spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return daemonPod{}
	}
	seen := daemonPod{missing: "has no " + d.Name + " yet"}
	for i := range c.pods {
		p := &c.pods[i]
		switch {
		case p.Spec.NodeName != n.Name || p.DeletionTimestamp != nil || !metav1.IsControlledBy(p, d):
		case !isReady(p):
			seen.missing = d.Name + " is not ready: " + problem(p)
		default:
			return daemonPod{former: d.newest == "" || p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] != d.newest}
		}
	}
	return seen
}

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// WorkloadKind says what a Workload is.
type WorkloadKind string

// The kinds of workloads.
const (
	WorkloadDeployment  WorkloadKind = "Deployment"
	WorkloadDaemonSet   WorkloadKind = "DaemonSet"
	WorkloadStatefulSet WorkloadKind = "StatefulSet"
	WorkloadStaticPod   WorkloadKind = "StaticPod" // run by a kubelet from a file: the control plane itself
)

// Workload is something that should run in the cluster, and how much of it does.
type Workload struct {
	Kind    WorkloadKind
	Name    string
	Desired int
	Ready   int    // pods of the newest revision that are ready
	Why     string // the first problem of its pods, for people; empty when there is none to tell
}

// Healthy reports whether all that should run does.
func (w Workload) Healthy() bool { return w.Ready >= w.Desired }

// String renders a workload in one line, such as "Deployment coredns 1/2 (ErrImagePull: ...)".
func (w Workload) String() string {
	s := fmt.Sprintf("%s %s %d/%d", w.Kind, w.Name, w.Ready, w.Desired)
	if w.Why != "" {
		s += " (" + w.Why + ")"
	}
	return s
}

// Unhealthy returns the workloads that are not.
func Unhealthy(all []Workload) []Workload {
	return slices.DeleteFunc(slices.Clone(all), Workload.Healthy)
}

// Workloads returns what should run in a namespace, ordered by kind and name. In kube-system this is the control plane,
// the pod network, the proxy and the DNS: the cluster is healthy when all of them are.
func (c *Client) Workloads(ctx context.Context, namespace string) ([]Workload, error) {
	const op = "kube.workloads"
	deployments, err := c.api.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	daemons, err := c.api.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	sets, err := c.api.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}
	pods, err := c.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed(op, err)
	}

	var out []Workload
	add := func(w Workload, selector *metav1.LabelSelector) {
		if !w.Healthy() {
			w.Why = problemOf(pods.Items, selector)
		}
		out = append(out, w)
	}
	for i := range deployments.Items {
		add(deployment(&deployments.Items[i]), deployments.Items[i].Spec.Selector)
	}
	for i := range daemons.Items {
		add(daemonSet(&daemons.Items[i]), daemons.Items[i].Spec.Selector)
	}
	for i := range sets.Items {
		add(statefulSet(&sets.Items[i]), sets.Items[i].Spec.Selector)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; isStatic(p) {
			w := Workload{Kind: WorkloadStaticPod, Name: p.Name, Desired: 1}
			if isReady(p) {
				w.Ready = 1
			} else {
				w.Why = problem(p)
			}
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Workload) int {
		if k := strings.Compare(string(a.Kind), string(b.Kind)); k != 0 {
			return k
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

func deployment(d *appsv1.Deployment) Workload {
	w := Workload{Kind: WorkloadDeployment, Name: d.Name, Desired: replicas(d.Spec.Replicas)}
	// A status of an older generation tells nothing about what was asked for since.
	if d.Status.ObservedGeneration >= d.Generation {
		w.Ready = int(min(d.Status.UpdatedReplicas, d.Status.ReadyReplicas))
	}
	return w
}

func daemonSet(d *appsv1.DaemonSet) Workload {
	w := Workload{Kind: WorkloadDaemonSet, Name: d.Name, Desired: int(d.Status.DesiredNumberScheduled)}
	if d.Status.ObservedGeneration >= d.Generation {
		w.Ready = int(min(d.Status.UpdatedNumberScheduled, d.Status.NumberReady))
	} else {
		w.Desired = max(w.Desired, 1)
	}
	return w
}

func statefulSet(s *appsv1.StatefulSet) Workload {
	w := Workload{Kind: WorkloadStatefulSet, Name: s.Name, Desired: replicas(s.Spec.Replicas)}
	if s.Status.ObservedGeneration >= s.Generation {
		w.Ready = int(min(s.Status.UpdatedReplicas, s.Status.ReadyReplicas))
	}
	return w
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

func isStatic(p *corev1.Pod) bool {
	_, ok := p.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// problemOf returns what is wrong with the first pod, by name, that the selector takes and that is not ready.
func problemOf(pods []corev1.Pod, selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return ""
	}
	var first *corev1.Pod
	for i := range pods {
		p := &pods[i]
		if s.Matches(labels.Set(p.Labels)) && !isReady(p) && (first == nil || p.Name < first.Name) {
			first = p
		}
	}
	if first == nil {
		return "no pods yet"
	}
	return problem(first)
}

// problem says why a pod is not ready, as closely as its status does.
func problem(p *corev1.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "PodInitializing" &&
			s.State.Waiting.Reason != "ContainerCreating":
			return sentence(s.State.Waiting.Reason, s.State.Waiting.Message)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			return sentence(
				s.State.Terminated.Reason, fmt.Sprintf("%s exited with %d", s.Name, s.State.Terminated.ExitCode),
			)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return sentence(c.Reason, c.Message)
		}
	}
	if p.Status.Reason != "" {
		return sentence(p.Status.Reason, p.Status.Message)
	}
	return "pod " + p.Name + " is " + strings.ToLower(string(p.Status.Phase)) + " and not ready yet"
}

func sentence(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/director-kaas/kaas/director/kube"
)

// testRehearsal asks a real API server what a drain would do; no controller runs, so the budget's status is written as
// its controller would.
func testRehearsal(t *testing.T, admin *kube.Client, api kubernetes.Interface) {
	const ns, node = "drill", "drill-1"
	ctx := t.Context()
	if _, err := api.CoreV1().Namespaces().Create(
		ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	fillNode(t, api, ns, node)
	keepOneHealthy(t, api, ns, "held")

	got, err := admin.Rehearse(ctx, node, kube.DrainLimits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []kube.Eviction{
		{Namespace: ns, Pod: "finished"},
		{Namespace: ns, Pod: "free", Owner: "ReplicaSet/set-of-free"},
		{
			Namespace: ns, Pod: "held", Owner: "ReplicaSet/set-of-held", Blocked: kube.BlockedByBudget,
			Why: "disruption budget keep-one allows no disruption: 1 of its pods are healthy and 1 have to be",
		},
		{
			Namespace: ns, Pod: "hoarder", Owner: "ReplicaSet/set-of-hoarder", Blocked: kube.BlockedLocalData,
			Why: "what is in its emptyDir volume scratch would be lost",
		},
		{Namespace: ns, Pod: "lonely", Blocked: kube.BlockedUnmanaged, Why: "nothing would create it again elsewhere"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	far, err := admin.Rehearse(ctx, node, kube.DrainLimits{Unmanaged: true, LocalData: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range far {
		if held := e.Pod == "held"; held != (e.Blocked != "") {
			t.Errorf("a drain without limits: %s is blocked by %q", e.Pod, e.Blocked)
		}
	}
	left, err := api.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) != 8 {
		t.Errorf("%d pods are left of 8 after a rehearsal, %v", len(left.Items), err)
	}
	if none, err := admin.Rehearse(ctx, "no-such-node", kube.DrainLimits{}); err != nil || len(none) != 0 {
		t.Errorf("a node without pods: %v, %v", none, err)
	}
}

// fillNode makes pods of every kind that a drain tells apart.
func fillNode(t *testing.T, api kubernetes.Interface, ns, node string) {
	t.Helper()
	pod := func(name string, change func(*corev1.Pod)) {
		t.Helper()
		runPod(t, api, ns, node, name, change)
	}
	pod("free", nil)
	pod("held", nil)
	pod("lonely", func(p *corev1.Pod) { p.OwnerReferences = nil })
	pod("finished", func(p *corev1.Pod) { p.OwnerReferences = nil; p.Status.Phase = corev1.PodSucceeded })
	pod("hoarder", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	pod("daemon", func(p *corev1.Pod) { p.OwnerReferences = owned("DaemonSet", "agents") })
	pod("static", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = nil
	})
	pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "drill-2" })
}

func owned(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "u-1", Controller: &yes}}
}

// runPod makes a pod of a ReplicaSet, changed, and says that it runs if change does not say otherwise.
func runPod(t *testing.T, api kubernetes.Interface, ns, node, name string, change func(*corev1.Pod)) {
	t.Helper()
	ctx := t.Context()
	grace := int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: ns, Labels: map[string]string{"app": name},
			OwnerReferences: owned("ReplicaSet", "set-of-"+name),
		},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if change != nil {
		change(p)
	}
	made, err := api.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if p.Status.Phase != "" {
		made.Status = p.Status
	}
	if _, err := api.CoreV1().Pods(ns).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// keepOneHealthy makes a budget that allows no disruption of the app, whose status is written as its controller would.
func keepOneHealthy(t *testing.T, api kubernetes.Interface, ns, app string) {
	t.Helper()
	ctx := t.Context()
	one := intstr.FromInt32(1)
	b, err := api.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "keep-one", Namespace: ns},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1,
	}
	if _, err := api.PolicyV1().PodDisruptionBudgets(ns).UpdateStatus(ctx, b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

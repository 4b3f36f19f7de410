package kube_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/director-kaas/kaas/director/kube"
)

// testOldTrust makes pods that started before and after all nodes trusted another authority.
func testOldTrust(t *testing.T, admin *kube.Client, api kubernetes.Interface) {
	const ns = "trust"
	if _, err := api.CoreV1().Namespaces().Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	trusted := time.Now().Truncate(time.Second)
	roots := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}
	projected := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: roots.LocalObjectReference}},
	}}}
	node := "drill-1"
	pod := func(ns, name string, started time.Time, volume *corev1.VolumeSource) {
		t.Helper()
		runPod(t, api, ns, node, name, func(p *corev1.Pod) {
			if volume != nil {
				p.Spec.Volumes = []corev1.Volume{{Name: "roots", VolumeSource: *volume}}
			}
			running := corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", State: corev1.ContainerState{Running: &running}},
			}}
		})
	}
	before, after := trusted.Add(-time.Minute), trusted.Add(time.Minute)
	pod(ns, "old", before, &projected)
	pod(ns, "old-and-plain", before, &corev1.VolumeSource{ConfigMap: &roots})
	pod(ns, "restarted", after, &projected)
	pod(ns, "without-authorities", before, nil)

	system := func(name string, started time.Time) {
		t.Helper()
		pod(metav1.NamespaceSystem, name, started, &projected)
	}
	system("restarted-by-the-plan", trusted.Add(-30*time.Second))
	system("left", before)
	node = "drill-2"
	pod(ns, "on-a-node-that-is-away", before, &projected)

	got, err := admin.OldTrust(t.Context(), trusted, trusted.Add(-45*time.Second), []string{node})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"kube-system/left", "trust/old", "trust/old-and-plain"}, got); diff != "" {
		t.Errorf("pods with old authorities (-want +got):\n%s", diff)
	}
}

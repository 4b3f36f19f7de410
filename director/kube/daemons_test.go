package kube_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/kube/kubetest"
)

const system = "kube-system"

// rollout is a cluster whose daemons are cared for by the real controller, and whose scheduler and kubelets the test
// plays.
type rollout struct {
	admin *kube.Client
	api   kubernetes.Interface
}

// TestRollingOut goes through rollouts of kube-proxy with the real controller of daemons (B6).
func TestRollingOut(t *testing.T) {
	t.Parallel()
	s := kubetest.Start(t, newPKI(t))
	s.StartControllers("daemonset-controller", "serviceaccount-controller") // pods want the account default
	c := rollout{admin: connect(t, s.Admin()), api: writer(t, s.Admin())}
	c.node(t, "m1", "linux", true)
	c.node(t, "w1", "linux", true)
	c.node(t, "windows", "windows", true)

	c.want(t) // nothing carries traffic in this cluster, or something that the director does not know
	c.wantCarrying(t, kube.Absence{Name: "w9", Why: "has not joined"})

	proxy := c.daemon(t, "kube-proxy")
	c.daemon(t, "somebodys")
	none, broken := "has no kube-proxy yet", "kube-proxy is not ready: ErrImagePull: not found"
	c.want(t, kube.Absence{Name: "m1", Why: none}, kube.Absence{Name: "w1", Why: none})
	c.run(t, proxy, "m1", true)
	c.run(t, proxy, "w1", false)
	c.want(t, kube.Absence{Name: "w1", Why: broken})
	c.wantCarrying(t, kube.Absence{Name: "w1", Why: broken}, kube.Absence{Name: "w9", Why: "has not joined"})
	c.run(t, proxy, "w1", true)
	c.want(t)
	c.wantCarrying(t, kube.Absence{Name: "w9", Why: "has not joined"})

	// As kubeadm does behind the last master: the controller exchanges one pod after another.
	m1, w1 := kube.Absence{Name: "m1", Why: "still has the former kube-proxy"},
		kube.Absence{Name: "w1", Why: "still has the former kube-proxy"}
	proxy = c.change(t, "kube-proxy", "registry.example/c:2")
	first := c.exchanged(t, proxy)
	left := map[string]kube.Absence{"m1": w1, "w1": m1}[first]
	c.wantCarrying(t, kube.Absence{Name: first, Why: none}, kube.Absence{Name: "w9", Why: "has not joined"})
	c.run(t, proxy, first, false)
	c.want(
		t,
		map[string][]kube.Absence{
			"m1": {{Name: "m1", Why: broken}, w1}, "w1": {m1, {Name: "w1", Why: broken}},
		}[first]...,
	)
	c.run(t, proxy, first, true)
	c.run(t, proxy, left.Name, true)
	c.want(t)

	// A node that is lost holds the next rollout up: what runs stays, and nobody waits for it.
	c.node(t, "lost", "linux", false)
	c.await(t, "a pod for the lost node", func() string {
		if len(c.pods(t, proxy)) == 3 {
			return ""
		}
		return "none"
	})
	c.want(t)
	proxy = c.change(t, "kube-proxy", "registry.example/c:3")
	c.await(t, "the pod of the lost node is exchanged", func() string {
		for _, p := range c.pods(t, proxy) {
			if p.Spec.NodeName == "" && p.Spec.Containers[0].Image == "registry.example/c:3" {
				return ""
			}
		}
		return "not yet"
	})
	c.want(t)

	// Without it the rollout continues. Back at the first template, the highest revision is the oldest one.
	if err := c.api.CoreV1().Nodes().Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.pods(t, proxy) { // as the collector of pods without a node does
		if meantFor(p) == "lost" {
			c.remove(t, p)
		}
	}
	c.run(t, proxy, c.exchanged(t, proxy), true)
	c.run(t, proxy, c.exchanged(t, proxy), true)
	c.want(t)
	proxy = c.change(t, "kube-proxy", "registry.example/c:1")
	c.run(t, proxy, c.exchanged(t, proxy), true)
	c.run(t, proxy, c.exchanged(t, proxy), true)
	c.want(t)
}

func (c rollout) node(t *testing.T, name, os string, ready bool) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: os}}}
	n, err := c.api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Test"}}
	if _, err := c.api.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c rollout) daemon(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	app := map[string]string{"app": name}
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: system},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelOSStable: "linux"},
					Containers:   []corev1.Container{{Name: "c", Image: "registry.example/c:1"}},
					Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	d, err := c.api.AppsV1().DaemonSets(system).Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// change gives the daemon another image, also while the controller notes how far it is.
func (c rollout) change(t *testing.T, name, image string) (d *appsv1.DaemonSet) {
	t.Helper()
	daemons := c.api.AppsV1().DaemonSets(system)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		if d, err = daemons.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		d.Spec.Template.Spec.Containers[0].Image = image
		d, err = daemons.Update(t.Context(), d, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pods returns the pods of the daemon.
func (c rollout) pods(t *testing.T, d *appsv1.DaemonSet) []corev1.Pod {
	t.Helper()
	list, err := c.api.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + d.Name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// meantFor is the node that the controller wants the pod on, bound to it or not.
func meantFor(p corev1.Pod) string {
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

// exchanged waits until the controller ends a pod of a former template, takes it away as its kubelet would, and returns
// its node.
func (c rollout) exchanged(t *testing.T, d *appsv1.DaemonSet) (node string) {
	t.Helper()
	c.await(t, "a pod of "+d.Name+" is ended", func() string {
		seen := "none among"
		for _, p := range c.pods(t, d) {
			if p.DeletionTimestamp != nil {
				c.remove(t, p)
				node = p.Spec.NodeName
				return ""
			}
			seen += " " + p.Name + " of " + p.Spec.Containers[0].Image + " for " + meantFor(p)
		}
		return seen
	})
	return node
}

// remove is what a kubelet does once the containers of a pod that is ending are gone.
func (c rollout) remove(t *testing.T, p corev1.Pod) {
	t.Helper()
	now := int64(0)
	err := c.api.CoreV1().Pods(system).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) { // the controller may have been quicker
		t.Fatal(err)
	}
}

// run starts the pod that the controller wants on the node, as soon as there is one of the daemon's template.
func (c rollout) run(t *testing.T, d *appsv1.DaemonSet, node string, ready bool) {
	t.Helper()
	image := d.Spec.Template.Spec.Containers[0].Image
	c.await(t, "a pod of "+d.Name+" for "+node, func() string {
		var seen string
		for _, p := range c.pods(t, d) {
			if meantFor(p) != node {
				continue
			}
			seen += " " + p.Name + " of " + p.Spec.Containers[0].Image
			if p.DeletionTimestamp != nil {
				c.remove(t, p)
			} else if p.Spec.Containers[0].Image == image {
				c.start(t, &p, node, ready)
				return ""
			}
		}
		return "none among" + seen
	})
}

func (c rollout) start(t *testing.T, p *corev1.Pod, node string, ready bool) {
	t.Helper()
	pods := c.api.CoreV1().Pods(system)
	if p.Spec.NodeName == "" {
		if err := pods.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: system},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if !ready {
		p.Status.Phase, p.Status.Conditions[0].Status = corev1.PodPending, corev1.ConditionFalse
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c",
			State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"},
			},
		}}
	}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// want waits until what is said of the rollout is the wanted: the controller takes a moment to see what changed.
func (c rollout) want(t *testing.T, want ...kube.Absence) {
	t.Helper()
	c.await(t, "what is said of the rollout", func() string {
		got, err := c.admin.RollingOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cmp.Diff(want, got)
	})
}

// wantCarrying does the same for what is said of the nodes m1, w1, w9 and windows.
func (c rollout) wantCarrying(t *testing.T, want ...kube.Absence) {
	t.Helper()
	c.await(t, "what is said of the nodes", func() string {
		var got []kube.Absence
		for _, node := range []string{"m1", "w1", "w9", "windows"} {
			why, err := c.admin.NotCarrying(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			if why != "" {
				got = append(got, kube.Absence{Name: node, Why: why})
			}
		}
		return cmp.Diff(want, got)
	})
}

func (c rollout) await(t *testing.T, what string, missing func() string) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		why := missing()
		if why == "" {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: %s", what, why)
		case <-tick.C:
		}
	}
}

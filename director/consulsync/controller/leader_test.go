package controller_test

import (
	"syscall"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testHungLeader stops the replica that leads where it is, for longer than its lease: the other one takes over. The one
// that goes on afterwards believes that it leads still, and must change nothing by what it knew then.
func testHungLeader(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	want := many(t, k, 4)
	first := s.start(t)
	c.expect(t, "c1", want...)
	second := s.start(t)
	second.expectPage(t, "/readyz", "another replica leads")
	if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	k.remove(t, "shop", "m00")
	k.add(t, "shop", "new", "192.0.2.200", nil)
	now := append(want[1:], "service:shop:new:80:192.0.2.200 new-shop passing")
	c.expect(t, "c1", now...)
	second.expectPage(t, "/metrics", "consul_sync_leader 1")
	if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	err := <-first.done // it ends, and the kubelet would start it again
	first.done <- err
	if err == nil {
		t.Error("a replica that has lost its lease ends well")
	}
	c.expect(t, "c1", now...)
	k.remove(t, "shop", "m01")
	c.expect(t, "c1", now[1:]...)
	second.expectPage(t, "/readyz", "in step")
}

// testIngress exports an Ingress with the addresses of its controller, for as long as a Service behind it is ready.
func testIngress(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	k.add(t, "shop", "web", "192.0.2.1", map[string]string{"consul.kaas/export": "false"})
	site := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example.org"}}},
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
			}},
		},
	}
	ingresses := k.api.NetworkingV1().Ingresses("shop")
	site, err := ingresses.Create(t.Context(), site, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ingresses.Delete(t.Context(), "site", metav1.DeleteOptions{}) }()
	s.start(t)
	site.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.50"}}
	if _, err = ingresses.UpdateStatus(t.Context(), site, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	const entry = "ingress:shop:site:443:192.0.2.50 site-shop "
	c.expect(t, "c1", entry+"passing")
	expectAddress(t, c, "site-shop.service.consul", "192.0.2.50")
	slices := k.api.DiscoveryV1().EndpointSlices("shop")
	if err := slices.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c1", entry+"critical")
	if err := ingresses.Delete(t.Context(), "site", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c1")
}

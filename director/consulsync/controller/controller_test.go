package controller_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/director-kaas/kaas/director/consulsync"
)

// TestSync runs the real program against a real API server, with exactly the rights of the role consul_sync, and a real
// Consul whose ACLs deny by default.
func TestSync(t *testing.T) {
	consulProgram(t)
	k := startCluster(t)
	for _, n := range []string{"shop", "other"} {
		k.namespace(t, n)
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T, *cluster, *consul)
	}{
		{"export", testExport},
		{"import", testImport},
		{"guard", testGuard},
		{"guard of imports", testImportGuard},
		{"restarted empty", testRestartedEmpty},
		{"restored from a snapshot", testSnapshot},
		{"token loses a right", testToken},
		{"killed leader", testKilledLeader},
		{"leader that hangs", testHungLeader},
		{"ingress", testIngress},
		{"two clusters", testTwoClusters},
		{"node ports", testNodePorts},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer k.clear(t)
			c.run(t, k, startConsul(t))
		})
	}
	t.Run("three servers", func(t *testing.T) {
		defer k.clear(t)
		testThreeServers(t, k)
	})
}

func testExport(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	k.add(t, "shop", "web", "192.0.2.1", map[string]string{"consul.kaas/tags": "blue,http"})
	k.add(t, "shop", "bad", "192.0.2.2", map[string]string{"consul.kaas/name": "No.Label/../x"})
	web, err := k.api.CoreV1().Services("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the age of objects is in seconds
		if time.Now().Unix() <= web.CreationTimestamp.Unix() {
			return fmt.Errorf("it is the same second")
		}
		return nil
	})
	k.add(t, "other", "thief", "192.0.2.3", map[string]string{"consul.kaas/name": "web-shop"})
	// Someone else's entry on our node, and what the director writes there.
	for id, meta := range map[string]map[string]string{
		"foreign": nil, "kaas-api": {"kaas-owner": "director-1", "kaas-writer": "director"},
	} {
		if _, err := c.api.Catalog().Register(&api.CatalogRegistration{
			Node: "kaas-c1", Address: "127.0.0.1", Service: &api.AgentService{ID: id, Service: id, Meta: meta},
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r := s.start(t)
	kept := []string{"foreign foreign ", "kaas-api kaas-api "}
	c.expect(t, "c1", append(kept, "service:shop:web:80:192.0.2.1 web-shop passing")...)
	k.expectEvent(t, "shop", "bad", "InvalidName")
	k.expectEvent(t, "other", "thief", "NameTaken")
	r.expectPage(t, "/readyz", "in step")
	r.expectPage(t, "/metrics", "consul_sync_refused_objects 2")
	r.expectPage(t, "/metrics", "consul_sync_strange_entries 1")
	expectAddress(t, c, "web-shop.service.consul", "192.0.2.1")

	// Health follows the endpoints, and a Service that goes takes its entry with it.
	slice, err := k.api.DiscoveryV1().EndpointSlices("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice.Endpoints[0].Conditions.Ready = new(bool)
	if _, err := k.api.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), slice,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c1", append(kept, "service:shop:web:80:192.0.2.1 web-shop critical")...)
	k.remove(t, "shop", "web")
	k.remove(t, "shop", "bad")
	// The name is free now.
	c.expect(t, "c1", append(kept, "service:other:thief:80:192.0.2.3 web-shop passing")...)

	// What someone changes in Consul is corrected.
	if _, err := c.api.Catalog().Deregister(&api.CatalogDeregistration{
		Node:      "kaas-c1",
		ServiceID: "service:other:thief:80:192.0.2.3",
	}, nil); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c1", append(kept, "service:other:thief:80:192.0.2.3 web-shop passing")...)
	if err := r.stop(); err != nil {
		t.Errorf("after SIGTERM it ended with %v", err)
	}
	c.expect(t, "c1", append(kept, "service:other:thief:80:192.0.2.3 web-shop passing")...) // its end deletes nothing
}

// expectAddress waits until Consul's DNS answers with the address alone.
func expectAddress(t *testing.T, c *consul, name, want string) {
	t.Helper()
	dns := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", c.dns)
	}}
	eventually(t, func() error {
		got, err := dns.LookupHost(t.Context(), name+".")
		if err == nil && !slices.Equal(got, []string{want}) {
			err = fmt.Errorf("%s has the addresses %v, want %s", name, got, want)
		}
		return err
	})
}

const imports = `import:
- {service: Data_Base, namespace: shop, name: db, port: 5432}
- {service: cache, namespace: shop, name: taken, port: 6379}
`

func testImport(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", imports)
	c.token(t, s.token, rules+readRules)
	c.instance(t, "Data_Base", "198.51.100.1", 5432, api.HealthPassing)
	c.instance(t, "Data_Base", "198.51.100.2", 5433, api.HealthPassing)
	c.instance(t, "Data_Base", "198.51.100.3", 5432, api.HealthCritical)
	c.instance(t, "cache", "198.51.100.9", 6379, api.HealthPassing)
	k.add(t, "shop", "taken", "192.0.2.1", map[string]string{"consul.kaas/export": "false"})
	r := s.start(t)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:5432", "198.51.100.2:5433")
	k.expectEvent(t, "shop", "taken", "NotImported")
	taken, err := k.api.CoreV1().Services("shop").Get(t.Context(), "taken", metav1.GetOptions{})
	if err != nil || taken.Spec.Type != corev1.ServiceTypeLoadBalancer || len(taken.Labels) > 0 {
		t.Errorf("the Service that existed was changed: %v, error %v", taken, err)
	}

	// Health and drift.
	c.instance(t, "Data_Base", "198.51.100.1", 5432, api.HealthCritical)
	c.instance(t, "Data_Base", "198.51.100.3", 5432, api.HealthPassing)
	k.expectEndpoints(t, "shop", "db", "198.51.100.2:5433", "198.51.100.3:5432")
	patch := []byte(`{"spec":{"selector":{"app":"x"}},"metadata":{"annotations":{"consul.kaas/export":"true"}}}`)
	if _, err := k.api.CoreV1().Services("shop").Patch(t.Context(), "db", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		db, err := k.api.CoreV1().Services("shop").Get(t.Context(), "db", metav1.GetOptions{})
		if err == nil && len(db.Spec.Selector) > 0 {
			err = fmt.Errorf("the selector stays")
		}
		return err
	})

	// Consul away: the endpoints stay, also over a start of the program.
	c.kill()
	r.expectPage(t, "/readyz", "the last comparison failed")
	r.kill()
	r = s.start(t)
	eventually(t, func() error {
		if _, text := r.get("/readyz"); !strings.Contains(text, "the last comparison failed") {
			return fmt.Errorf("readyz: %s", text)
		}
		return nil
	})
	k.expectEndpoints(t, "shop", "db", "198.51.100.2:5433", "198.51.100.3:5432")
	c.start(t)
	c.instance(t, "Data_Base", "198.51.100.4", 5432, api.HealthPassing)
	k.expectEndpoints(t, "shop", "db", "198.51.100.2:5433", "198.51.100.3:5432", "198.51.100.4:5432")
	c.expect(t, "c1") // what was imported is not exported

	// Without its import, the Service goes.
	r.kill()
	s.more = ""
	s.start(t)
	eventually(t, func() error {
		_, err := k.api.CoreV1().Services("shop").Get(t.Context(), "db", metav1.GetOptions{})
		if apierrors.IsNotFound(err) && len(k.endpoints(t, "shop", "db")) == 0 {
			return nil
		}
		return fmt.Errorf("the Service or its endpoints are still there: %w", err)
	})
	if _, err := k.api.CoreV1().Services("shop").Get(t.Context(), "taken", metav1.GetOptions{}); err != nil {
		t.Errorf("the Service that existed: %v", err)
	}
}

// many makes n Services and returns the entries that they become.
func many(t *testing.T, k *cluster, n int) []string {
	t.Helper()
	var want []string
	for i := range n {
		name, address := fmt.Sprintf("m%02d", i), fmt.Sprintf("192.0.2.%d", i+1)
		k.add(t, "shop", name, address, nil)
		want = append(want, fmt.Sprintf("service:shop:%s:80:%s %s-shop passing", name, address, name))
	}
	return want
}

// heldID waits until so many removals wait for a person, and returns the id of that set.
func heldID(t *testing.T, k *cluster, what string, count int) (id string) {
	t.Helper()
	eventually(t, func() error {
		m, err := k.api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "consul-sync-status", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var status struct {
			Holds []consulsync.Hold `json:"holds"`
		}
		if err := json.Unmarshal([]byte(m.Data["status.json"]), &status); err != nil {
			return err
		}
		for _, h := range status.Holds {
			if h.What == what && h.Count == count {
				id = h.ID
				return nil
			}
		}
		return fmt.Errorf("no hold of %d %s in %s", count, what, m.Data["status.json"])
	})
	return id
}

func confirm(t *testing.T, k *cluster, id string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"consul.kaas/confirm":%q}}}`, id)
	if _, err := k.api.CoreV1().ConfigMaps("kube-system").Patch(t.Context(), "consul-sync-status",
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testGuard(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	want := many(t, k, 20)
	r := s.start(t)
	c.expect(t, "c1", want...)
	r.kill()
	for i := range 8 { // 40 %
		k.remove(t, "shop", fmt.Sprintf("m%02d", i))
	}
	k.add(t, "shop", "new", "192.0.2.200", nil)
	r = s.start(t)
	added := "service:shop:new:80:192.0.2.200 new-shop passing"
	id := heldID(t, k, "entries", 8)
	c.expect(t, "c1", append(want, added)...) // what is new does not wait
	r.expectPage(t, "/metrics", `consul_sync_held_removals{what="entries"} 8`)
	k.expectEvent(t, "kube-system", "consul-sync-status", "RemovalHeld")
	confirm(t, k, "0123456789ab") // another set
	k.remove(t, "shop", "m08")
	grown := heldID(t, k, "entries", 9)
	confirm(t, k, id)
	c.expect(t, "c1", append(want, added)...)
	confirm(t, k, grown)
	c.expect(t, "c1", append(want[9:], added)...)
	eventually(t, func() error { // a confirmation holds once
		m, err := k.api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "consul-sync-status", metav1.GetOptions{})
		if err == nil && len(m.Annotations) > 0 {
			err = fmt.Errorf("annotations %v", m.Annotations)
		}
		return err
	})
}

func testImportGuard(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "import: [{service: db, namespace: shop, name: db, port: 5432}]\n")
	c.token(t, s.token, rules+readRules)
	var want []string
	for i := range 9 {
		c.instance(t, "db", fmt.Sprintf("198.51.100.%d", i+1), 5432, api.HealthPassing)
		want = append(want, fmt.Sprintf("198.51.100.%d:5432", i+1))
	}
	s.start(t)
	k.expectEndpoints(t, "shop", "db", want...)
	c.kill()
	c.wipe(t)
	c.start(t)
	c.token(t, s.token, rules+readRules)
	c.instance(t, "db", "198.51.100.10", 5432, api.HealthPassing)
	heldID(t, k, "endpoints", 9)
	k.expectEndpoints(t, "shop", "db",
		slices.Sorted(slices.Values(append(slices.Clone(want), "198.51.100.10:5432")))...)
	// An instance that fails leaves at once, for it is known.
	c.instance(t, "db", "198.51.100.1", 5432, api.HealthCritical)
	k.expectEndpoints(t, "shop", "db",
		slices.Sorted(slices.Values(append(slices.Clone(want[1:]), "198.51.100.10:5432")))...)
	confirm(t, k, heldID(t, k, "endpoints", 8))
	k.expectEndpoints(t, "shop", "db", "198.51.100.10:5432")
}

func testRestartedEmpty(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	want := many(t, k, 12)
	r := s.start(t)
	c.expect(t, "c1", want...)
	c.kill()
	c.wipe(t)
	k.add(t, "shop", "during", "192.0.2.200", nil)
	k.remove(t, "shop", "m00")
	c.start(t)
	r.expectPage(t, "/readyz", "the last comparison failed") // the token is gone, too
	c.token(t, s.token, rules)
	c.expect(t, "c1", append(want[1:], "service:shop:during:80:192.0.2.200 during-shop passing")...)
}

func testSnapshot(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "import: [{service: db, namespace: shop, name: db, port: 5432}]\n")
	c.token(t, s.token, rules+readRules)
	c.instance(t, "db", "198.51.100.7", 5432, api.HealthPassing)
	c.instance(t, "db", "198.51.100.8", 5432, api.HealthCritical)
	want := many(t, k, 12)
	s.start(t)
	c.expect(t, "c1", want...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.7:5432")
	// An entry of someone else that the snapshot has, too.
	c.instance(t, "foreign", "198.51.100.1", 1, api.HealthPassing)
	saved, _, err := c.api.Snapshot().Save(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	text, err := io.ReadAll(saved)
	if err != nil {
		t.Fatal(err)
	}
	k.remove(t, "shop", "m00")
	k.add(t, "shop", "later", "192.0.2.200", nil)
	now := append(slices.Clone(want[1:]), "service:shop:later:80:192.0.2.200 later-shop passing")
	c.expect(t, "c1", now...)
	c.instance(t, "db", "198.51.100.7", 5432, api.HealthCritical)
	c.instance(t, "db", "198.51.100.8", 5432, api.HealthPassing)
	k.expectEndpoints(t, "shop", "db", "198.51.100.8:5432")
	if err := c.api.Snapshot().Restore(nil, bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "c1", now...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.7:5432") // which passes by what Consul knows now
	c.instance(t, "db", "198.51.100.8", 5432, api.HealthPassing)
	k.expectEndpoints(t, "shop", "db", "198.51.100.7:5432", "198.51.100.8:5432")
	if list, _, err := c.api.Catalog().Service("foreign", "", nil); err != nil || len(list) != 1 {
		t.Errorf("someone else's service: %v, error %v", list, err)
	}
}

func testToken(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "import: [{service: db, namespace: shop, name: db, port: 5432}]\n")
	change := c.token(t, s.token, rules+readRules)
	c.instance(t, "db", "198.51.100.1", 5432, api.HealthPassing)
	want := many(t, k, 12)
	r := s.start(t)
	c.expect(t, "c1", want...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:5432")

	// It may not see most services any more, nor those that are imported.
	change("node_prefix \"kaas-\" { policy = \"write\" }\nservice \"m00-shop\" { policy = \"write\" }\n")
	k.remove(t, "shop", "m00")
	k.add(t, "shop", "later", "192.0.2.200", nil)
	r.expectPage(t, "/readyz", "may not read all")
	c.expect(t, "c1", want...)
	// It may read everything and write one service.
	change("node_prefix \"\" { policy = \"read\" }\nservice_prefix \"\" { policy = \"read\" }\n" +
		"service \"m00-shop\" { policy = \"write\" }\n")
	r.expectPage(t, "/readyz", "Consul refused 1 entries")
	c.expect(t, "c1", want[1:]...) // what is allowed is done
	// It may do nothing.
	change("")
	r.expectPage(t, "/readyz", "the last comparison failed")
	c.expect(t, "c1", want[1:]...)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:5432")
	change(rules + readRules)
	c.expect(t, "c1", append(want[1:], "service:shop:later:80:192.0.2.200 later-shop passing")...)
	r.expectPage(t, "/readyz", "in step")
}

func testKilledLeader(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "")
	c.token(t, s.token, rules)
	want := many(t, k, 3)
	first := s.start(t)
	c.expect(t, "c1", want...)
	second := s.start(t)
	second.expectPage(t, "/readyz", "another replica leads")
	second.expectPage(t, "/metrics", "consul_sync_leader 0")
	first.kill()
	k.remove(t, "shop", "m00")
	c.expect(t, "c1", want[1:]...)
	second.expectPage(t, "/metrics", "consul_sync_leader 1")
	// The killed one starts again and follows; when the leader is told to end, it does not wait for the lease.
	third := s.start(t)
	third.expectPage(t, "/readyz", "another replica leads")
	if err := second.stop(); err != nil {
		t.Errorf("after SIGTERM it ended with %v", err)
	}
	third.expectPage(t, "/metrics", "consul_sync_leader 1")
	k.remove(t, "shop", "m01")
	c.expect(t, "c1", want[2:]...)
}

func testTwoClusters(t *testing.T, k *cluster, c *consul) {
	other := startCluster(t)
	other.namespace(t, "shop")
	a, b := newSyncer(t, k, c, "c1", ""), newSyncer(t, other, c, "c2", "")
	for _, s := range []*syncer{a, b} {
		c.token(t, s.token, rules)
	}
	want := many(t, k, 8)
	many(t, other, 8)
	first, second := a.start(t), b.start(t)
	c.expect(t, "c1", want...)
	c.expect(t, "c2", want...)
	// Services of one cluster go, and those of the same names in the other one stay.
	k.remove(t, "shop", "m00")
	c.expect(t, "c1", want[1:]...)
	first.kill()
	second.kill() // all are gone when it looks again
	for i := range 8 {
		other.remove(t, "shop", fmt.Sprintf("m%02d", i))
	}
	b.start(t)
	confirm(t, other, heldID(t, other, "entries", 8))
	c.expect(t, "c2")
	c.expect(t, "c1", want[1:]...)
	a.start(t).expectPage(t, "/readyz", "in step")
	c.expect(t, "c1", want[1:]...)
	c.expect(t, "c2")
}

// testNodePorts exports a Service at a port of the nodes, which is annotated while the program runs, with the rights
// that a plan gives a cluster that may take some names.
func testNodePorts(t *testing.T, k *cluster, c *consul) {
	s := newSyncer(t, k, c, "c1", "import: [{service: db, namespace: shop, name: db, port: 80}]\n")
	s.names = "shop-*"
	c.token(t, s.token, readRules+`node "kaas-c1" { policy = "write" }
service_prefix "" { policy = "read" }
service_prefix "shop-" { policy = "write" }
service_prefix "kaas-" { policy = "read" }
service "consul" { policy = "read" }
`)
	node, err := k.api.CoreV1().Nodes().Create(
		t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.88.0.11"}}
	if _, err := k.api.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.api.Catalog().Register(&api.CatalogRegistration{
		Node: "kaas-c1", Address: "127.0.0.1",
		NodeMeta: map[string]string{"kaas-owner": "director-1", "kaas-cluster": "c1"},
		Service: &api.AgentService{
			ID: "kaas-api", Service: "kaas-api",
			Meta: map[string]string{"kaas-owner": "director-1", "kaas-writer": "director"},
		},
	}, nil); err != nil {
		t.Fatal(err)
	}
	c.instance(t, "db", "198.51.100.1", 80, api.HealthPassing)
	k.add(t, "shop", "front", "192.0.2.1", map[string]string{"consul.kaas/export": "false"})
	change := func(patch string) {
		t.Helper()
		_, err := k.api.CoreV1().Services("shop").Patch(
			t.Context(), "front", types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	change(`{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30080}],"allocateLoadBalancerNodePorts":null}}`)
	s.start(t)
	k.expectEndpoints(t, "shop", "db", "198.51.100.1:80")
	change(`{"metadata":{"annotations":{"consul.kaas/export":"true","consul.kaas/name":"shop-web"}}}`)
	c.expect(t, "c1", "kaas-api kaas-api ", "service:shop:front:30080:10.88.0.11 shop-web passing")
}

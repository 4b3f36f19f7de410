package planner

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// A cluster that names a Consul is registered once its nodes are ready, and taken out once its VMs are gone; the plans
// of others have no such step.
func TestConsulSteps(t *testing.T) {
	t.Parallel()
	of := func(c plan.Content, kind string) *plan.Step {
		i := slices.IndexFunc(c.Steps, func(s plan.Step) bool { return s.Kind == kind })
		if i < 0 {
			return nil
		}
		return &c.Steps[i]
	}
	w := demo(t)
	c, err := Create(w)
	if err != nil || of(c, step.ConsulRegister) != nil {
		t.Errorf("without a Consul: %v, %v", of(c, step.ConsulRegister), err)
	}
	w.Cluster.Cluster.Discovery.Consul = "dc1"
	if c, err = Create(w); err != nil {
		t.Fatal(err)
	}
	s := of(c, step.ConsulRegister)
	if s == nil || !slices.Contains(s.Needs, step.KubeReady+"/demo") || len(s.Effects) != 1 ||
		s.Effects[0].Name != "Consul/dc1" {
		t.Errorf("the step of the creation is %+v", s)
	}
	gone, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	s = of(gone, step.ConsulDeregister)
	if s == nil || !slices.Contains(of(gone, step.ClusterForget).Needs, s.ID) {
		t.Errorf("the step of the deletion is %+v", s)
	}
}

// syncing is a cluster that runs, and exports and imports what d says.
func syncing(t *testing.T, was, is model.Discovery) World {
	t.Helper()
	w := running(t, 1, 1, v)
	w.Bundle.ImageTags = map[string]string{"consul-sync": v}
	w.Consul = model.Stored{UID: "c1", Generation: 3}
	w.Consul.Kind, w.Consul.Metadata.Name = model.KindConsul, "dc1"
	w.Consul.Consul = &model.Consul{
		Addresses: []string{"https://10.0.0.11", "https://consul.example.org:8443"}, Datacenter: "east",
		Domain: "consul",
		TLS:    model.ConsulTLS{CA: "PEM", ServerName: "server.east.consul"},
	}
	c := *w.Cluster.Cluster
	c.Discovery = was
	w.Installed.Cluster = c
	want(&w, func(c *model.Cluster) { c.Discovery = is })
	return w
}

// What a change of spec.discovery does to a cluster that runs: nothing but what follows from it.
func TestDiscoveryFollowsTheDocument(t *testing.T) {
	t.Parallel()
	exports := model.Discovery{Consul: "dc1", Export: model.DiscoveryExport{LoadBalancer: true}}
	imports := model.Discovery{
		Consul: "dc1",
		Import: []model.DiscoveryImport{{Service: "db", Namespace: "shop", Port: 1}},
	}
	other := exports
	other.Consul = "dc2"
	for name, tt := range map[string]struct {
		was, is model.Discovery
		want    []string
	}{
		"nothing but registration": {model.Discovery{}, model.Discovery{Consul: "dc1"}, []string{"cluster.ready/demo"}},
		"export comes": {model.Discovery{Consul: "dc1"}, exports, []string{
			"release.push/k8s-1.37", "consul.token/make", "consul_sync/demo", "cluster.ready/demo",
		}},
		"import instead of export": {exports, imports, []string{
			"release.push/k8s-1.37", "consul.token/make", "consul_sync/demo", "cluster.ready/demo",
		}},
		"export goes": {exports, model.Discovery{Consul: "dc1"}, []string{
			"release.push/k8s-1.37", "consul_sync_remove/demo", "consul.token/end", "cluster.ready/demo",
		}},
		"all goes": {exports, model.Discovery{}, []string{
			"release.push/k8s-1.37", "consul_sync_remove/demo", "consul.token/end", "cluster.ready/demo",
		}},
		"another Consul": {other, exports, []string{
			"release.push/k8s-1.37", "consul.token/make", "consul_sync/demo", "consul.token/end", "cluster.ready/demo",
		}},
		"names come": {model.Discovery{Consul: "dc1"}, model.Discovery{Consul: "dc1", DNS: true}, []string{
			"release.push/k8s-1.37", "cluster_dns/demo", "cluster.ready/demo",
		}},
		"names go": {model.Discovery{Consul: "dc1", DNS: true}, model.Discovery{Consul: "dc1"}, []string{
			"release.push/k8s-1.37", "cluster_dns/demo", "cluster.ready/demo",
		}},
	} {
		w := syncing(t, tt.was, tt.is)
		c, err := Apply(w, plan.Request{})
		if diff := cmp.Diff(tt.want, ids(t, c, err)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if name == "another Consul" && !strings.Contains(string(c.Steps[3].Params), `"consul":"dc2"`) {
			t.Errorf("the tokens of another Consul end: %s", c.Steps[3].Params)
		}
	}
	w := syncing(t, exports, exports)
	w.Bundle.ImageTags = nil
	c, err := Apply(syncing(t, exports, exports), plan.Request{})
	if got := ids(t, c, err); len(got) != 1 {
		t.Errorf("a document that says the same brings %v", got)
	}
	release(&w, "v1.38.0")
	c, err = Apply(w, plan.Request{})
	if err != nil || !strings.Contains(strings.Join(c.Warnings, "\n"), "no image consul-sync") {
		t.Errorf("a release without the image: %q, %v", c.Warnings, err)
	}
	w.Bundle.ImageTags = map[string]string{"consul-sync": "v1.38.0"}
	if c, err = Apply(w, plan.Request{}); !slices.Contains(ids(t, c, err), "consul_sync/demo") {
		t.Error("an upgrade leaves the sync at the former image")
	}
	c, err = Consul(syncing(t, exports, exports), plan.Request{Operation: plan.ClusterConsul})
	if diff := cmp.Diff([]string{
		"release.push/k8s-1.37", "consul.token/renew", "consul_sync/demo", "consul.token/settle", "cluster.ready/demo",
	}, ids(t, c, err)); diff != "" {
		t.Error(diff)
	}
	if _, err = Consul(syncing(t, model.Discovery{}, model.Discovery{Consul: "dc1"}), plan.Request{}); err == nil {
		t.Error("a cluster without a sync gets a plan for it")
	}
}

// The program in the cluster accepts the settings, and the rules of its token give it no more than it needs.
func TestSyncSettings(t *testing.T) {
	t.Parallel()
	d := model.Discovery{
		Consul: "dc1", Export: model.DiscoveryExport{Ingress: true, Names: []string{"web", "shop-*"}},
		Import: []model.DiscoveryImport{{Service: "db", Namespace: "shop", Port: 5432}},
	}
	w := syncing(t, model.Discovery{}, d)
	w.Director.ID = "d1"
	c, err := Apply(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	var play step.PlayParams
	var token step.ConsulTokenParams
	if err := errors.Join(
		json.Unmarshal(c.Steps[1].Params, &token), json.Unmarshal(c.Steps[2].Params, &play),
	); err != nil {
		t.Fatal(err)
	}
	cfg, err := consulsync.ParseConfig([]byte(play.Vars["consul_settings"].(string)))
	if err != nil {
		t.Fatal(err, director.FieldsOf(err))
	}
	if cfg.Owner != "d1" || cfg.Cluster != w.Cluster.UID || cfg.Import[0].Name != "db" ||
		cfg.Consul.Datacenter != "east" ||
		!slices.Equal(cfg.Consul.Addresses, []string{"https://10.0.0.11:8501", "https://consul.example.org:8443"}) ||
		play.Vars["consul_ca"] != "PEM" {
		t.Errorf("the settings are %+v", cfg)
	}
	for _, rule := range []string{
		`node "kaas-` + w.Cluster.UID + `" { policy = "write" }`,
		`node_prefix "kaas-` + w.Cluster.UID + `." { policy = "write" }`, `service_prefix "" { policy = "read" }`,
		`service "web" { policy = "write" }`, `service_prefix "shop-" { policy = "write" }`,
		`service_prefix "kaas-" { policy = "read" }`,
	} {
		if !strings.Contains(token.Rules, rule+"\n") {
			t.Errorf("%s is not in\n%s", rule, token.Rules)
		}
	}
}

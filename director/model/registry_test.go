package model

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// What is written into files of nodes holds nothing that could be more than a host or an address.
func TestRegistriesHoldHostsAndAddressesAlone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64) + strings.Repeat(".aaaaaaaaa", 19)
	for host, ok := range map[string]bool{
		"docker.io": true, "registry.example.org:5000": true, "10.0.0.5:5000": true, "reg-1": true, "a.b:65535": true,
		"kaas.internal": false, "kaas.internal:443": false, "localhost": false, "localhost:5000": false,
		"x.localhost": false, "127.0.0.1": false, "0.0.0.0:80": false, "https://docker.io": false,
		"docker.io/library": false, "Docker.io": false, "docker.io:": false, "docker.io:0": false, "a:65536": false,
		"..": false, "a..b": false, "_default": false, "-a": false, "[::1]:5000": false, "u@docker.io": false,
		"docker.io\n": false, `docker.io"`: false, "{{ a }}": false, " docker.io": false, long: false,
	} {
		d := Document{Kind: KindRegistry, Metadata: Metadata{Name: "hub"}, Registry: &Registry{
			Host: host, Mode: RegistryDirect, Credentials: "hub",
		}}
		if _, err := Validate(&d); (err == nil) != ok {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for endpoint, ok := range map[string]bool{
		"https://mirror.example.org": true, "https://10.0.0.5:5000": true, "https://m.example/v2/hub-1/~a": true,
		"http://mirror.example.org": false, "mirror.example.org": false, "https://": false, "https:///a": false,
		"https://u:p@m.example": false, "https://m.example?a=b": false, "https://m.example/#a": false,
		"https://m.example/../a": false, "https://m.example/.a": false, "https://m.example/%2e": false,
		"https://m.example/a\n[host]": false, `https://m.example/"`: false, "https://m.example/": false,
		"https://m.example:99999": false, "https://localhost": false, "https://M.example": false,
	} {
		d := Document{Kind: KindRegistry, Metadata: Metadata{Name: "hub"}, Registry: &Registry{
			Host: "docker.io", Mode: RegistryMirror, Endpoints: []string{endpoint},
		}}
		if _, err := Validate(&d); (err == nil) != ok {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
}

// Fields that do not belong together are named.
func TestRegistriesThatMakeNoSense(t *testing.T) {
	t.Parallel()
	one := []string{"https://m.example"}
	for name, tt := range map[string]struct {
		r    Registry
		want []string
	}{
		"endpoints that are not asked": {Registry{Host: "a", Mode: RegistryDirect, Endpoints: one}, []string{
			"Registry/hub: spec.endpoints",
		}},
		"a mirror without one": {Registry{Host: "a", Mode: RegistryMirror}, []string{"Registry/hub: spec.endpoints"}},
		"twice the same": {Registry{Host: "a", Mode: RegistryMirror, Endpoints: append(one, one...)}, []string{
			"Registry/hub: spec.endpoints[1]",
		}},
		"a path that is not there": {
			Registry{Host: "a", Mode: RegistryReplace, Endpoints: one, OverridePath: true},
			[]string{"Registry/hub: spec.overridePath"},
		},
		"no certificate": {Registry{Host: "a", Mode: RegistryDirect, CA: "no"}, []string{"Registry/hub: spec.ca"}},
		"no name": {Registry{Host: "a", Mode: RegistryDirect, Credentials: "A b"}, []string{
			"Registry/hub: spec.credentials",
		}},
		"another mode": {Registry{Host: "a", Mode: "insecure", Endpoints: one}, []string{"Registry/hub: spec.mode"}},
	} {
		r := tt.r
		_, err := Validate(&Document{Kind: KindRegistry, Metadata: Metadata{Name: "hub"}, Registry: &r})
		var got []string
		for _, f := range director.FieldsOf(err) {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s\n%v", name, diff, err)
		}
	}
}

// A node asks for images by their host: no two registries of one cluster have the same.
func TestOneRegistryForEachHost(t *testing.T) {
	t.Parallel()
	registry := func(name, host string) *Document {
		return &Document{Kind: KindRegistry, Metadata: Metadata{Name: name}, Registry: &Registry{Host: host}}
	}
	hub, copied, other := registry("hub", "docker.io"), registry("copy", "docker.io"), registry("other", "quay.io")
	cluster := &Document{Kind: KindCluster, Metadata: Metadata{Name: "demo"}, Cluster: &Cluster{
		Registries: []string{"hub", "other"}, Vars: map[string]any{"docker_registry_host": "own.example"},
	}}
	all := Set{}
	for _, d := range []*Document{hub, copied, other, cluster} {
		all[d.Ref()] = d
	}
	v := validator{ref: cluster.Ref()}
	registryValidator{&v}.registriesAgainst(cluster.Cluster, all)
	if len(v.problems) > 0 || Check(hub, all) != nil || Check(copied, all) != nil {
		t.Errorf("hosts that differ: %v", v.problems)
	}
	for name, c := range map[string][]string{"another": {"hub", "copy"}, "the own": {"hub", "own"}} {
		all[Ref{KindRegistry, "own"}] = registry("own", "own.example")
		cluster.Cluster.Registries = c
		v := validator{ref: cluster.Ref()}
		registryValidator{&v}.registriesAgainst(cluster.Cluster, all)
		if len(v.problems) != 1 || v.problems[0].Path != "Cluster/demo: spec.registries[1]" ||
			v.problems[0].Hint == "" {
			t.Errorf("%s: %v", name, v.problems)
		}
		if Check(all[Ref{KindRegistry, c[1]}], all) == nil {
			t.Errorf("%s: a document that changes is let in", name)
		}
	}
	cluster.Cluster.Registries = []string{"hub", "own"}
	refs := cluster.References()
	if len(refs) < 2 || cluster.mentions(Ref{KindRegistry, "own"}) != "spec.registries[1]" {
		t.Errorf("the cluster names %v", refs)
	}
}

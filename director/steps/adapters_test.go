package steps

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
)

// adapters is a worker with three adapters, of which the one for services has the default route.
func adapters() step.VMParams {
	a := netip.MustParseAddr
	return step.VMParams{
		Machine: plan.MachineSpec{
			ID: "m1", Cluster: "demo", Name: "demo-w-1", Role: director.RoleWorker, Pool: "w", Provider: "lab",
			Network: "demo", Address: "10.88.0.20", MAC: "52:54:00:00:00:01", CPUs: 2, Memory: 1 << 32,
			NICs: []director.NIC{
				{Role: "services", Network: "front", Address: "10.91.0.20", MAC: "52:54:00:00:00:02"},
				{Role: "storage", Network: "nfs", Address: "10.90.0.20", MAC: "52:54:00:00:00:03"},
			},
		},
		Disk: 10 * model.GiB, ImageName: "node",
		Network: model.Network{CIDR: prefix, Gateway: a("10.88.0.1"), DNS: []netip.Addr{a("10.88.0.1")}},
		Routes:  []model.Route{{To: netip.MustParsePrefix("172.30.0.1/32"), Via: a("10.88.0.1")}},
		NICs: []step.NICParams{
			{
				Role: "services",
				Network: model.Network{
					CIDR: netip.MustParsePrefix("10.91.0.0/24"), Gateway: a("10.91.0.1"),
					PortGroup: "/DC/network/front",
				},
				DefaultRoute: true,
			},
			{Role: "storage", Network: model.Network{
				CIDR: netip.MustParsePrefix("10.90.0.0/24"), Gateway: a("10.90.0.1"),
				Routes: []model.Route{{To: netip.MustParsePrefix("10.200.0.0/16"), Via: a("10.90.0.254")}},
			}},
		},
	}
}

// The guest is given every adapter by its MAC with its static address, and the default route over one of them alone.
func TestAdaptersOfASpec(t *testing.T) {
	t.Parallel()
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	env := Env{
		Installation: Installation{Director: "d1", Now: time.Now},
		Clusters:     Clusters{Keys: Keys{Secrets: vault{}, Sealer: box}},
	}
	spec, err := env.vms().vmSpec(t.Context(), "c1", adapters())
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Ethernets map[string]struct {
			Match     struct{ MACAddress string } `yaml:"match"`
			Addresses []string
			Routes    []struct{ To, Via string }
			Optional  bool
		}
	}
	if err := yaml.Unmarshal(spec.Seed.NetworkConfig, &config); err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]struct {
		mac, address, network string
		routes                string
		optional              bool
	}{
		"eth0": {"52:54:00:00:00:01", "10.88.0.20/24", "demo", "172.30.0.1/32>10.88.0.1", false},
		"eth1": {"52:54:00:00:00:02", "10.91.0.20/24", "front", "0.0.0.0/0>10.91.0.1", false},
		"eth2": {"52:54:00:00:00:03", "10.90.0.20/24", "nfs", "10.200.0.0/16>10.90.0.254", true},
	} {
		e := config.Ethernets[device]
		var routes []string
		for _, r := range e.Routes {
			routes = append(routes, r.To+">"+r.Via)
		}
		n := spec.NICs[device[3]-'0']
		if got := strings.Join(
			routes, " ",
		); got != want.routes || strings.Join(e.Addresses, " ") != want.address || e.Optional != want.optional ||
			n.MAC != want.mac || n.Network != want.network {
			t.Errorf("%s: %+v on %s %s, want %+v", device, e, n.Network, n.MAC, want)
		}
		if !strings.Contains(string(spec.Seed.NetworkConfig), want.mac) {
			t.Errorf("%s is not found by its MAC", device)
		}
	}
	if spec.NICs[1].PortGroup != "/DC/network/front" {
		t.Errorf("the port group is %q", spec.NICs[1].PortGroup)
	}
	broken := adapters()
	broken.Machine.NICs = nil
	_, err = env.vms().vmSpec(t.Context(), "c1", broken)
	if director.KindOf(err) != director.KindInternal || director.HintOf(err) == "" {
		t.Errorf("adapters without addresses: %v", err)
	}
}

// Playbooks read of the adapters, and the kubelet stays on the internal one.
func TestAdaptersInTheInventory(t *testing.T) {
	t.Parallel()
	p := adapters()
	f := step.Facts{
		Cluster: "demo", UID: "u", Kubernetes: "v1.37.1", Registry: "172.30.0.1:5000",
		Document: model.Cluster{
			Network:  "demo",
			Pods:     model.PodNetwork{Plugin: "calico", CIDR: netip.MustParsePrefix("10.244.0.0/16"), MTU: 1450},
			Services: model.ServiceNetwork{CIDR: netip.MustParsePrefix("10.96.0.0/16"), Domain: "cluster.local"},
		},
		Network: p.Network, Tags: map[string]string{"etcd": "1", "coredns": "1", "pause": "1", "toolbox": "1"},
		Nodes: []plan.MachineSpec{
			{ID: "m0", Name: "demo-master-1", Role: director.RoleMaster, Network: "demo", Address: "10.88.0.10"},
			p.Machine,
		},
	}
	plain := f
	plain.Nodes = []plan.MachineSpec{f.Nodes[0]}
	f.Networks = map[string]model.Network{"front": p.NICs[0].Network, "nfs": p.NICs[1].Network}
	key := func(string) (string, error) { return "", nil }
	files, err := Env{}.plays().inventory(f, inventory.Render, key)
	if err != nil {
		t.Fatal(err)
	}
	var host struct {
		NodeIP     string                                                 `yaml:"node_ip"`
		Interfaces []struct{ Role, Device, Network, Address, MAC string } `yaml:"node_interfaces"`
	}
	var all struct {
		Networks []struct{ Role, Name, CIDR, Gateway string } `yaml:"cluster_networks"`
	}
	if err := yaml.Unmarshal(files["host_vars/demo-w-1.yml"], &host); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(files["group_vars/all.yml"], &all); err != nil {
		t.Fatal(err)
	}
	if host.NodeIP != "10.88.0.20" || len(host.Interfaces) != 3 || host.Interfaces[2].Device != "eth2" ||
		host.Interfaces[2].Address != "10.90.0.20/24" {
		t.Errorf("the worker has %+v", host)
	}
	if len(all.Networks) != 3 || all.Networks[0].Name != "demo" || all.Networks[1].Role != "services" ||
		all.Networks[2].CIDR != "10.90.0.0/24" {
		t.Errorf("the networks are %+v", all.Networks)
	}
	for path, text := range files {
		if path != "group_vars/all.yml" && path != "host_vars/demo-w-1.yml" &&
			strings.Contains(string(text), "10.90.") {
			t.Errorf("%s speaks of storage", path)
		}
	}
	// Who has one adapter is told nothing of others.
	if files, err = (Env{}).plays().inventory(plain, inventory.Render, key); err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if strings.Contains(string(text), "node_interfaces") || strings.Contains(string(text), "cluster_networks") {
			t.Errorf("%s:\n%s", path, text)
		}
	}
}

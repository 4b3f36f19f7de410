package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// landscape are clusters a and b with an API server each, on networks of which some lead to others.
func landscape(a, b string, change func(map[string]model.Network)) (reacher, World, []Registered) {
	network := func(mode, cidr, gateway string) model.Network {
		n := model.Network{Mode: mode, CIDR: netip.MustParsePrefix(cidr)}
		if gateway != "" {
			n.Gateway = netip.MustParseAddr(gateway)
		}
		return n
	}
	r := reacher{clusters: map[string]*model.Cluster{}, networks: map[string]model.Network{
		"open": network("open", "10.1.0.0/24", "10.1.0.1"), "bridge": network("bridge", "10.2.0.0/24", "10.2.0.1"),
		"nat": network("nat", "10.3.0.0/24", "10.3.0.1"), "isolated": network("isolated", "10.4.0.0/24", ""),
		"deaf": network("bridge", "10.5.0.0/24", ""), "front": network("bridge", "10.6.0.0/24", "10.6.0.1"),
	}}
	if change != nil {
		change(r.networks)
	}
	var w World
	var list []Registered
	for i, on := range []string{a, b} {
		name := string(rune('a' + i))
		address := r.networks[on].CIDR.Addr().Next().Next().Next().String()
		w.Clusters = append(w.Clusters, Cluster{
			UID: "uid-" + name, Name: name, Consul: "dc1", Machines: []director.Machine{
				{Name: name + "-1", Role: director.RoleMaster, Network: on, Address: address},
			},
		})
		r.clusters["uid-"+name] = &model.Cluster{}
		e := Registered{Entry: Entry{Cluster: "uid-" + name, Service: "kaas-api-" + name, Address: address}}
		list = append(list, e)
	}
	return r, w, list
}

func lacking(gaps []Gap) []string {
	var out []string
	for _, g := range gaps {
		out = append(out, fmt.Sprintf("%s %v to %s%s for %v", g.Cluster, g.Nodes, g.Network, g.CIDR, g.Services))
	}
	return out
}

// Who reaches whom follows from modes, gateways and routes of networks.
func TestGaps(t *testing.T) {
	t.Parallel()
	route := func(on, to string) func(map[string]model.Network) {
		return func(all map[string]model.Network) {
			n := all[on]
			n.Routes = []model.Route{{To: netip.MustParsePrefix(to), Via: n.CIDR.Addr().Next()}}
			all[on] = n
		}
	}
	aToB, bToA := "a [a-1] to %s for [kaas-api-b]", "b [b-1] to %s for [kaas-api-a]"
	for name, tt := range map[string]struct {
		a, b   string
		change func(map[string]model.Network)
		want   []string
	}{
		"the same network":        {"open", "open", nil, nil},
		"both are routed":         {"open", "bridge", nil, nil},
		"behind a host's address": {"open", "nat", nil, []string{fmt.Sprintf(aToB, "nat10.3.0.0/24")}},
		"isolated": {"isolated", "bridge", nil, []string{
			fmt.Sprintf(aToB, "bridge10.2.0.0/24"), fmt.Sprintf(bToA, "isolated10.4.0.0/24"),
		}},
		"a router on both":             {"open", "nat", route("open", "10.3.0.0/16"), nil},
		"without a gateway":            {"deaf", "bridge", nil, []string{fmt.Sprintf(aToB, "bridge10.2.0.0/24")}},
		"a route instead of a gateway": {"deaf", "bridge", route("deaf", "10.0.0.0/8"), nil},
		"a route that leads elsewhere": {"deaf", "bridge", route("deaf", "10.2.0.0/28"), []string{
			fmt.Sprintf(aToB, "bridge10.2.0.0/24"),
		}},
	} {
		r, w, list := landscape(tt.a, tt.b, tt.change)
		gaps := r.gaps(w, "dc1", list, nil)
		if diff := cmp.Diff(tt.want, lacking(gaps)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		for _, g := range gaps {
			if g.Problem == "" || g.Hint == "" {
				t.Errorf("%s: %+v says nothing", name, g)
			}
		}
		if other := r.gaps(w, "dc2", list, nil); len(other) > 0 {
			t.Errorf("%s: clusters of another Consul lack %v", name, other)
		}
	}
}

// The default route of a node may lead over another adapter; imports count as services of the cluster's own do.
func TestGapsOfAdaptersAndImports(t *testing.T) {
	t.Parallel()
	r, w, list := landscape("deaf", "bridge", nil)
	m := &w.Clusters[0].Machines[0]
	m.NICs = []director.NIC{{Role: "services", Network: "front", Address: "10.6.0.3"}}
	if got := lacking(r.gaps(w, "dc1", list, nil)); len(got) != 1 {
		t.Errorf("an adapter without the default route: %v", got)
	}
	r.clusters["uid-a"].Masters.Interfaces = []model.Interface{{Role: "services", Network: "front", DefaultRoute: true}}
	if got := lacking(r.gaps(w, "dc1", list, nil)); len(got) != 0 {
		t.Errorf("an adapter with the default route: %v", got)
	}
	r.clusters["uid-a"].Masters.Interfaces = nil
	r.clusters["uid-a"].Discovery.Import = []model.DiscoveryImport{
		{Service: "db"}, {Service: "front"}, {Service: "none"},
	}
	got := lacking(r.gaps(w, "dc1", nil, map[string][]netip.Addr{
		"db":    {netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("10.2.0.9")},
		"front": {netip.MustParseAddr("10.6.0.9")},
	}))
	want := []string{"a [a-1] to 192.0.2.7/32 for [db]", "a [a-1] to bridge10.2.0.0/24 for [db]"}
	if !slices.Equal(got, want) {
		t.Errorf("imports: %v", got)
	}
}

// Hosts outside of clusters reach what their network leads to. Nothing is said of hosts on networks of others.
func TestGapsFromOutside(t *testing.T) {
	t.Parallel()
	hosts := map[string]netip.Addr{
		"db": netip.MustParseAddr("10.2.0.9"), "old": netip.MustParseAddr("10.5.0.9"),
		"far": netip.MustParseAddr("192.0.2.7"), "the director": netip.MustParseAddr("10.2.0.8"),
	}
	for name, tt := range map[string]struct {
		a      string
		change func(map[string]model.Network)
		want   []string
	}{
		"routed":           {"open", nil, []string{"deaf [old] to open10.1.0.0/24 for [kaas-api-a]"}},
		"the same network": {"deaf", nil, nil},
		"behind a host's address": {"nat", nil, []string{
			"bridge [db the director] to nat10.3.0.0/24 for [kaas-api-a]",
			"deaf [old] to nat10.3.0.0/24 for [kaas-api-a]",
		}},
		"a router on both": {"nat", func(all map[string]model.Network) {
			for _, on := range []string{"bridge", "deaf"} {
				n := all[on]
				n.Routes = []model.Route{{To: netip.MustParsePrefix("10.3.0.0/16"), Via: n.CIDR.Addr().Next()}}
				all[on] = n
			}
		}, nil},
	} {
		r, w, list := landscape(tt.a, "front", tt.change)
		w.Clusters, list = w.Clusters[:1], list[:1]
		var got []string
		for _, g := range r.gapsInto(w, "dc1", list, hosts) {
			got = append(got, fmt.Sprintf("%s %v to %s%s for %v", g.From, g.Nodes, g.Network, g.CIDR, g.Services))
			if g.Cluster != "a" || g.Problem == "" || g.Hint == "" {
				t.Errorf("%s: %+v says too little", name, g)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if other := r.gapsInto(w, "dc2", list, hosts); len(other) > 0 {
			t.Errorf("%s: for another Consul there are %v", name, other)
		}
	}
}

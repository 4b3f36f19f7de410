package model

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each field of each kind of document says what its change means while machines exist. A new field fails here until it
// does.
func TestEveryFieldHasAnEffect(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		known := map[string]bool{}
		for _, path := range Leaves(k) {
			known[path] = true
			if e, ok := EffectOf(k, path); !ok || e.Why == "" {
				t.Errorf("%s: what a change of %s means while machines exist is not said in the effects of its kind",
					k, path)
			}
		}
		for path := range k.about().effects {
			if !known[path] {
				t.Errorf("%s has no field %s", k, path)
			}
		}
	}
}

// Every kind can be read, described and listed: a new one fails here until it is whole.
func TestKindsAreWhole(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		d := Document{Kind: k}
		switch about := k.about(); {
		case d.Spec() == nil:
			t.Errorf("%s has no spec", k)
		case about.meaning == "" || len(about.columns) == 0:
			t.Errorf("%s has no meaning or no columns: %+v", k, about)
		case about.against != nil && about.references == nil && k != KindConsul && k != KindRegistry:
			t.Errorf("%s is held against documents that it does not name", k)
		}
	}
	if k := Kind("Clutser"); (&Document{Kind: k}).Spec() != nil || Columns(k) != nil {
		t.Errorf("%s is known", k)
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	host := func(name, uri string) LibvirtHost { return LibvirtHost{Name: name, URI: uri, Pool: "default"} }
	was := Document{Kind: KindProvider, Provider: &Provider{Type: ProviderLibvirt, Libvirt: &Libvirt{
		Hosts: []LibvirtHost{host("a", "qemu:///system"), host("b", "qemu+ssh://b/system")},
	}}}
	is := Document{Kind: KindProvider, Provider: &Provider{Type: ProviderLibvirt, Quota: Quota{
		CPUs: 4,
	}, Libvirt: &Libvirt{
		Hosts: []LibvirtHost{host("c", "qemu+ssh://c/system"), host("b", "qemu+ssh://other/system")}, Autostart: true,
	}}}
	want := []FieldChange{
		{Field: "spec.libvirt.hosts[]", At: "spec.libvirt.hosts[0]", Item: "a", Was: "a"},
		{
			Field: "spec.libvirt.hosts[].uri", At: "spec.libvirt.hosts[1].uri", Item: "b", Was: "qemu+ssh://b/system",
			Is: "qemu+ssh://other/system",
		},
		{Field: "spec.libvirt.hosts[]", At: "spec.libvirt.hosts[0]", Item: "c", Is: "c"},
		{Field: "spec.libvirt.autostart", At: "spec.libvirt.autostart", Was: false, Is: true},
		{Field: "spec.quota.cpus", At: "spec.quota.cpus", Was: 0, Is: 4},
	}
	if diff := cmp.Diff(want, Changes(was, is)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	network := func(cidr string) Document {
		return Document{Kind: KindNetwork, Network: &Network{CIDR: netip.MustParsePrefix(cidr), DNS: []netip.Addr{}}}
	}
	same := network("10.0.0.0/8")
	same.Network.DNS = nil
	if got := Changes(network("10.0.0.0/8"), same); got != nil {
		t.Errorf("the same: %v", got)
	}
	if got := Changes(network("10.0.0.0/8"), network("10.0.0.0/9")); len(got) != 1 || got[0].Field != "spec.cidr" {
		t.Errorf("another range: %v", got)
	}
}

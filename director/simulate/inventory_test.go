package simulate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
)

func names(t *testing.T, b hypervisor.Backend) map[hypervisor.DiscoveredKind][]string {
	t.Helper()
	d, err := b.(hypervisor.Discoverer).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[hypervisor.DiscoveredKind][]string{}
	for _, i := range d.Items {
		found[i.Kind] = append(found[i.Kind], i.Name)
	}
	return found
}

// The double of a vCenter shows what a vCenter shows, and each thing once: what the document names, by its path.
func TestVCenterShowsItsInventory(t *testing.T) {
	t.Parallel()
	s := &Simulation{settings: DefaultSettings()}
	show := func(t *testing.T, p model.Provider) map[hypervisor.DiscoveredKind][]string {
		t.Helper()
		w := sim.NewWorld()
		s.equip(w, p)
		return names(t, sim.Open(w))
	}
	for name, c := range map[string]struct {
		in   model.VSphere
		want map[hypervisor.DiscoveredKind][]string
	}{
		"nothing is named": {model.VSphere{}, map[hypervisor.DiscoveredKind][]string{
			hypervisor.FoundHost:       {"Cluster1"},
			hypervisor.FoundDatacenter: {"/DC1"},
			hypervisor.FoundCluster:    {"/DC1/host/Cluster1"},
			hypervisor.FoundDatastore:  {"/DC1/datastore/datastore1"},
			hypervisor.FoundPortGroup:  {"/DC1/network/nodes"},
		}},
		"names and paths": {
			model.VSphere{
				Datacenter: "/DC9", Cluster: "/DC9/host/blue", Datastores: []string{"fast", "/DC9/datastore/slow"},
				DataDatastore: "fast", Folder: "kaas", ResourcePool: "/DC9/host/blue/Resources/k",
			}, map[hypervisor.DiscoveredKind][]string{
				hypervisor.FoundHost:         {"blue"},
				hypervisor.FoundDatacenter:   {"/DC9"},
				hypervisor.FoundCluster:      {"/DC9/host/blue"},
				hypervisor.FoundResourcePool: {"/DC9/host/blue/Resources/k"},
				hypervisor.FoundDatastore:    {"/DC9/datastore/fast", "/DC9/datastore/slow"},
				hypervisor.FoundPortGroup:    {"/DC9/network/nodes"},
				hypervisor.FoundFolder:       {"/DC9/vm/kaas"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := show(t, model.Provider{Type: model.ProviderVSphere, VSphere: &c.in})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	libvirt := show(t, model.Provider{
		Type: model.ProviderLibvirt, Libvirt: &model.Libvirt{Hosts: []model.LibvirtHost{{Name: "h1"}}},
	})
	if len(libvirt[hypervisor.FoundStoragePool]) != 1 || len(libvirt[hypervisor.FoundDatacenter]) != 0 {
		t.Errorf("a host with libvirt shows %v", libvirt)
	}
	draft := names(t, s.Draft(model.Provider{
		Type: model.ProviderVSphere, VSphere: &model.VSphere{Datacenter: "unknown", Datastores: []string{"unknown"}},
	}))
	if diff := cmp.Diff([]string{"/DC1/datastore/datastore1"}, draft[hypervisor.FoundDatastore]); diff != "" {
		t.Error(diff)
	}
}

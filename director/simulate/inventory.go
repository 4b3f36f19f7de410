package simulate

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
)

// What a double of a vCenter has where its document names nothing.
const (
	standInDatacenter = "DC1"
	standInCluster    = "Cluster1"
	standInDatastore  = "datastore1"
	standInPortGroup  = "nodes"
)

// vCenterCluster is the name of the cluster of hosts, which the document may have as a path.
func vCenterCluster(v *model.VSphere) string { return path.Base(cmp.Or(v.Cluster, standInCluster)) }

// inventory is what the double of a vCenter shows besides its hosts: all that the document names, and a port group. As
// of vCenter itself, the names are inventory paths. Other providers have none.
func inventory(p model.Provider) []hypervisor.Discovered {
	v := p.VSphere
	if p.Type != model.ProviderVSphere || v == nil {
		return nil
	}
	dc := "/" + path.Base(cmp.Or(v.Datacenter, standInDatacenter))
	items := []hypervisor.Discovered{{Kind: hypervisor.FoundDatacenter, Name: dc}}
	add := func(kind hypervisor.DiscoveredKind, folder, name string) {
		if name == "" {
			return
		}
		if !strings.HasPrefix(name, "/") {
			name = dc + "/" + folder + "/" + name
		}
		i := hypervisor.Discovered{Kind: kind, In: dc, Name: name}
		if kind == hypervisor.FoundDatastore {
			i.Size, i.Free = int64(64*model.TiB), int64(64*model.TiB)
		}
		if !slices.Contains(items, i) {
			items = append(items, i)
		}
	}
	add(hypervisor.FoundCluster, "host", cmp.Or(v.Cluster, standInCluster))
	for _, name := range append([]string{v.TemplateDatastore, v.DataDatastore}, v.Datastores...) {
		add(hypervisor.FoundDatastore, "datastore", name)
	}
	if len(v.Datastores) == 0 {
		add(hypervisor.FoundDatastore, "datastore", standInDatastore)
	}
	add(hypervisor.FoundPortGroup, "network", standInPortGroup)
	add(hypervisor.FoundResourcePool, "host", v.ResourcePool)
	add(hypervisor.FoundFolder, "vm", v.Folder)
	add(hypervisor.FoundFolder, "vm", v.TemplateFolder)
	return items
}

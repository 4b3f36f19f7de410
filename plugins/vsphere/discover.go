package vsphere

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/list"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Discoverer = (*Backend)(nil)

// Discover implements hypervisor.Discoverer. All names but those of hosts and templates are inventory paths.
func (b *Backend) Discover(ctx context.Context) (hypervisor.Discovery, error) {
	const op = "vsphere.discover"
	vim, err := b.conn.client(ctx, op)
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	d := hypervisor.Discovery{Version: vim.ServiceContent.About.FullName}
	finder := find.NewFinder(vim, false)
	dcs, err := finder.DatacenterList(ctx, "*")
	if err := unlessMissing(err); err != nil {
		return hypervisor.Discovery{}, b.translate(ctx, op, "the datacenters", err)
	}
	for _, dc := range dcs {
		d.Items = append(d.Items, hypervisor.Discovered{Kind: hypervisor.FoundDatacenter, Name: dc.InventoryPath})
		s := survey{center: b.center, op: op, vim: vim, finder: finder, dc: dc}
		for _, part := range []func(context.Context) ([]hypervisor.Discovered, error){
			s.compute, s.groups, s.stores, s.machines,
		} {
			items, err := part(ctx)
			if err != nil {
				return hypervisor.Discovery{}, b.translate(ctx, op, "datacenter "+dc.InventoryPath, err)
			}
			d.Items = append(d.Items, items...)
		}
	}
	d.Bound()
	return d, nil
}

// survey looks at what one datacenter has.
type survey struct {
	*center
	op     string
	vim    *vim25.Client
	finder *find.Finder
	dc     *object.Datacenter
}

func (s survey) item(kind hypervisor.DiscoveredKind, name string) hypervisor.Discovered {
	return hypervisor.Discovered{Kind: kind, In: s.dc.InventoryPath, Name: name}
}

// children returns all below a folder of the datacenter: host, network, vm.
func (s survey) children(ctx context.Context, folder string) ([]list.Element, error) {
	found, err := s.finder.ManagedObjectListChildren(ctx, s.dc.InventoryPath+"/"+folder+"/...")
	return found, unlessMissing(err)
}

// compute returns the clusters, their resource pools, and all hosts.
func (s survey) compute(ctx context.Context) ([]hypervisor.Discovered, error) {
	found, err := s.children(ctx, "host")
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for _, e := range found {
		switch ref := e.Object.Reference(); ref.Type {
		case "ClusterComputeResource":
			items = append(items, s.item(hypervisor.FoundCluster, e.Path))
			hosts, err := s.hosts(ctx, ref, e.Path)
			if err != nil {
				return nil, err
			}
			items = append(items, hosts...)
		case "ComputeResource": // a host that is in no cluster
			hosts, err := s.hosts(ctx, ref, s.dc.InventoryPath)
			if err != nil {
				return nil, err
			}
			for i := range hosts {
				hosts[i].Problem = cmp.Or(hosts[i].Problem, "it is in no cluster")
			}
			items = append(items, hosts...)
		case "ResourcePool":
			items = append(items, s.item(hypervisor.FoundResourcePool, e.Path))
		}
	}
	// the same object may be found on two ways
	slices.SortFunc(items, func(x, y hypervisor.Discovered) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	return slices.CompactFunc(items, func(x, y hypervisor.Discovered) bool {
		return x.Kind == y.Kind && x.Name == y.Name
	}), nil
}

// hosts returns the hosts of a cluster, named as spec.vsphere.hosts names them.
func (s survey) hosts(
	ctx context.Context, cluster types.ManagedObjectReference, path string,
) ([]hypervisor.Discovered, error) {
	found, err := retrieve(ctx, s.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{
			Obj: cluster, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: cluster.Type, Path: "host"}},
		}},
		PropSet: []types.PropertySpec{{Type: "HostSystem", PathSet: []string{
			"name", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.hardware", "summary.quickStats",
			"vm",
		}}},
	})
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for _, o := range found {
		var h mo.HostSystem
		if err := mo.LoadObjectContent([]types.ObjectContent{o}, &h); err != nil {
			return nil, err
		}
		i := hypervisor.Discovered{Kind: hypervisor.FoundHost, In: path, Name: h.Name, VMs: len(h.Vm)}
		if hw := h.Summary.Hardware; hw != nil {
			i.CPUs, i.Memory = int(hw.NumCpuThreads), hw.MemorySize
			i.MemoryFree = max(0, hw.MemorySize-int64(h.Summary.QuickStats.OverallMemoryUsage)<<20)
			i.About = strings.TrimSpace(hw.Vendor + " " + hw.Model)
		}
		switch {
		case h.Runtime.ConnectionState != types.HostSystemConnectionStateConnected:
			i.Problem = "it is " + string(h.Runtime.ConnectionState)
		case h.Runtime.InMaintenanceMode:
			i.Problem = "it is in maintenance"
		}
		items = append(items, i)
	}
	return items, nil
}

// groups returns the port groups. The uplinks of a distributed switch are none that VMs may be on.
func (s survey) groups(ctx context.Context) ([]hypervisor.Discovered, error) {
	found, err := s.children(ctx, "network")
	if err != nil {
		return nil, err
	}
	uplinks, err := s.uplinks(ctx, found)
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for _, e := range found {
		i := s.item(hypervisor.FoundPortGroup, e.Path)
		switch ref := e.Object.Reference(); {
		case ref.Type == "Network":
			i.About = "standard"
		case ref.Type == "DistributedVirtualPortgroup" && !uplinks[ref]:
			i.About = "distributed"
		default:
			continue
		}
		items = append(items, i)
	}
	return items, nil
}

// uplinks returns those of the port groups that are their switch's way out.
func (s survey) uplinks(ctx context.Context, found []list.Element) (map[types.ManagedObjectReference]bool, error) {
	var refs []types.ObjectSpec
	for _, e := range found {
		if ref := e.Object.Reference(); ref.Type == "DistributedVirtualPortgroup" {
			refs = append(refs, types.ObjectSpec{Obj: ref})
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	groups, err := retrieve(ctx, s.vim, types.PropertyFilterSpec{
		ObjectSet: refs,
		PropSet: []types.PropertySpec{{
			Type: "DistributedVirtualPortgroup", PathSet: []string{"config.uplink", "tag"},
		}},
	})
	if err != nil {
		return nil, err
	}
	uplinks := map[types.ManagedObjectReference]bool{}
	for _, g := range groups {
		for _, p := range g.PropSet {
			up, _ := p.Val.(bool)
			tags, _ := p.Val.(types.ArrayOfTag)
			if up || slices.ContainsFunc(tags.Tag, func(t types.Tag) bool { return t.Key == "SYSTEM/DVS.UPLINKPG" }) {
				uplinks[g.Obj] = true
			}
		}
	}
	return uplinks, nil
}

// stores returns the datastores.
func (s survey) stores(ctx context.Context) ([]hypervisor.Discovered, error) {
	found, err := s.children(ctx, "datastore")
	if err != nil {
		return nil, err
	}
	paths := map[types.ManagedObjectReference]string{}
	var refs []types.ObjectSpec
	for _, e := range found {
		if ref := e.Object.Reference(); ref.Type == "Datastore" && paths[ref] == "" {
			paths[ref] = e.Path
			refs = append(refs, types.ObjectSpec{Obj: ref})
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	all, err := retrieve(ctx, s.vim, types.PropertyFilterSpec{
		ObjectSet: refs,
		PropSet:   []types.PropertySpec{{Type: "Datastore", PathSet: []string{"summary"}}},
	})
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for _, o := range all {
		var d mo.Datastore
		if err := mo.LoadObjectContent([]types.ObjectContent{o}, &d); err != nil {
			return nil, err
		}
		i := s.item(hypervisor.FoundDatastore, paths[o.Obj])
		i.About, i.Size, i.Free = d.Summary.Type, d.Summary.Capacity, min(d.Summary.FreeSpace, d.Summary.Capacity)
		switch {
		case !d.Summary.Accessible:
			i.Problem = "it cannot be reached"
		case d.Summary.MaintenanceMode != "" &&
			d.Summary.MaintenanceMode != string(types.DatastoreSummaryMaintenanceModeStateNormal):
			i.Problem = "it is in maintenance"
		}
		items = append(items, i)
	}
	return items, nil
}

// machines returns the folders of VMs and the templates in them, with one question however many VMs there are.
func (s survey) machines(ctx context.Context) ([]hypervisor.Discovered, error) {
	folders, err := s.dc.Folders(ctx)
	if err != nil {
		return nil, err
	}
	root := folders.VmFolder.Reference()
	found, err := retrieve(ctx, s.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: root, SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			SelectionSpec: types.SelectionSpec{Name: "folders"}, Type: "Folder", Path: "childEntity",
			SelectSet: []types.BaseSelectionSpec{&types.SelectionSpec{Name: "folders"}},
		}}}},
		PropSet: []types.PropertySpec{
			{Type: "Folder", PathSet: []string{"name", "parent"}},
			{Type: "VirtualMachine", PathSet: []string{"name", "config.template"}},
		},
	})
	if err != nil {
		return nil, err
	}
	type folder struct {
		name   string
		parent types.ManagedObjectReference
	}
	tree := map[types.ManagedObjectReference]folder{}
	var items []hypervisor.Discovered
	for _, o := range found {
		values := map[string]any{}
		for _, p := range o.PropSet {
			values[p.Name] = p.Val
		}
		name, _ := values["name"].(string)
		if o.Obj.Type == "Folder" {
			parent, _ := values["parent"].(types.ManagedObjectReference)
			tree[o.Obj] = folder{name, parent}
		} else if template, _ := values["config.template"].(bool); template {
			items = append(items, s.item(hypervisor.FoundTemplate, name))
		}
	}
	for ref := range tree {
		var parts []string
		at := ref
		for range len(tree) {
			f, known := tree[at]
			if !known {
				break
			}
			parts = append(parts, f.name)
			at = f.parent
		}
		slices.Reverse(parts)
		items = append(items, s.item(hypervisor.FoundFolder, s.dc.InventoryPath+"/"+strings.Join(parts, "/")))
	}
	return items, nil
}

// unlessMissing is err, unless it says that nothing was found.
func unlessMissing(err error) error {
	if _, none := errors.AsType[*find.NotFoundError](err); none {
		return nil
	}
	return err
}

// allowance is what the account may do with one object.
type allowance struct {
	object  string   // such as folder kaas
	lacks   []string // privileges of the role
	granted int
}

// allowances asks vCenter what the account may do with the objects of the place, as far as they were found.
func (b *center) allowances(ctx context.Context, op string, p *place) (user string, all []allowance, err error) {
	if user, err = b.conn.user(ctx, op); err != nil {
		return "", nil, err
	}
	objects, role := p.objects(), b.role()
	for _, part := range parts {
		if len(objects[part]) == 0 || len(role[part]) == 0 {
			continue
		}
		res, err := methods.HasUserPrivilegeOnEntities(ctx, p.vim, &types.HasUserPrivilegeOnEntities{
			This: *p.vim.ServiceContent.AuthorizationManager, Entities: objects[part], UserName: user,
			PrivId: role[part],
		})
		if err != nil {
			return user, nil, b.translate(ctx, op, "the account's privileges", b.forget(err))
		}
		for _, entity := range res.Returnval {
			name, err := b.nameOf(ctx, p, entity.Entity)
			if err != nil {
				return user, nil, b.translate(ctx, op, "the account's privileges", err)
			}
			a := allowance{object: part + " " + name}
			for _, e := range entity.PrivAvailability {
				if e.IsGranted {
					a.granted++
				} else {
					a.lacks = append(a.lacks, e.PrivId)
				}
			}
			all = append(all, a)
		}
	}
	return user, all, nil
}

// The message and the hint of privileges that are missing.
const (
	mayNot   = "the account may not do all that the director needs"
	giveRole = "give it the role of docs/operate/vsphere.md on these objects"
)

// checkPrivileges returns forbidden with every privilege that the account lacks, by object.
func (b *center) checkPrivileges(ctx context.Context, op string, p *place) error {
	user, all, err := b.allowances(ctx, op, p)
	if err != nil {
		return err
	}
	var fields []director.Field
	for _, a := range all {
		if len(a.lacks) > 0 {
			fields = append(fields, director.Field{
				Path: a.object, Msg: "the account " + user + " lacks " + strings.Join(a.lacks, ", "),
			})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &director.Error{Kind: director.KindForbidden, Op: op, Msg: mayNot, Fields: fields, Hint: giveRole}
}

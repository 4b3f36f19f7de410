package vsphere

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/list"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
)

// Inventory is what the account may see in vCenter, for the writer of a Provider: every name is one that Config takes.
type Inventory struct {
	Version     string // of vCenter
	Datacenters []InventoryDatacenter
}

// InventoryDatacenter is one datacenter. All are inventory paths, in order.
type InventoryDatacenter struct {
	Path          string
	Clusters      []string
	ResourcePools []string
	Hosts         []string
	Datastores    []InventoryDatastore
	Networks      []string // port groups, standard and distributed
	Folders       []string // of VMs
	Templates     []string
}

// InventoryDatastore is a datastore with its space in bytes.
type InventoryDatastore struct {
	Path       string
	Type       string // VMFS, NFS, vsan ...
	Size, Free int64
}

// Discover returns what the account may see. It needs a URL and an account alone: the rest of the configuration may be
// wrong or missing.
func (b *center) Discover(ctx context.Context) (Inventory, error) {
	const op = "vsphere.discover"
	vim, err := b.conn.client(ctx, op)
	if err != nil {
		return Inventory{}, err
	}
	inv := Inventory{Version: vim.ServiceContent.About.FullName}
	finder := find.NewFinder(vim, false)
	dcs, err := finder.DatacenterList(ctx, "*")
	if err := unlessMissing(err); err != nil {
		return Inventory{}, b.translate(ctx, op, "the datacenters", err)
	}
	for _, dc := range dcs {
		d := InventoryDatacenter{Path: dc.InventoryPath}
		for _, part := range []struct {
			below string
			kinds map[string]*[]string
		}{
			{
				"host",
				map[string]*[]string{
					"ClusterComputeResource": &d.Clusters, "ResourcePool": &d.ResourcePools, "HostSystem": &d.Hosts,
				},
			},
			{"network", map[string]*[]string{"Network": &d.Networks, "DistributedVirtualPortgroup": &d.Networks}},
			{"vm", map[string]*[]string{"Folder": &d.Folders}},
		} {
			found, err := finder.ManagedObjectListChildren(ctx, dc.InventoryPath+"/"+part.below+"/...")
			if err := unlessMissing(err); err != nil {
				return Inventory{}, b.translate(ctx, op, "datacenter "+dc.InventoryPath, err)
			}
			sortInto(found, part.kinds)
		}
		if d.Datastores, err = b.datastores(ctx, op, finder.SetDatacenter(dc)); err != nil {
			return Inventory{}, err
		}
		folders, err := dc.Folders(ctx)
		if err != nil {
			return Inventory{}, b.translate(ctx, op, "datacenter "+dc.InventoryPath, err)
		}
		vms, err := below(ctx, vim, folders.VmFolder.Reference())
		if err != nil {
			return Inventory{}, b.translate(ctx, op, "the templates of "+dc.InventoryPath, err)
		}
		for _, m := range vms {
			if m.template {
				d.Templates = append(d.Templates, m.name)
			}
		}
		slices.Sort(d.Templates)
		inv.Datacenters = append(inv.Datacenters, d)
	}
	return inv, nil
}

func sortInto(found []list.Element, kinds map[string]*[]string) {
	for _, e := range found {
		if into := kinds[e.Object.Reference().Type]; into != nil && !slices.Contains(*into, e.Path) {
			*into = append(*into, e.Path)
		}
	}
	for _, into := range kinds {
		slices.Sort(*into)
	}
}

func (b *center) datastores(ctx context.Context, op string, finder *find.Finder) ([]InventoryDatastore, error) {
	found, err := finder.DatastoreList(ctx, "*")
	if err := unlessMissing(err); err != nil {
		return nil, b.translate(ctx, op, "the datastores", err)
	}
	var all []InventoryDatastore
	for _, d := range found {
		var store mo.Datastore
		if err := d.Properties(ctx, d.Reference(), []string{"summary"}, &store); err != nil {
			return nil, b.translate(ctx, op, "datastore "+d.InventoryPath, err)
		}
		all = append(all, InventoryDatastore{
			d.InventoryPath, store.Summary.Type, store.Summary.Capacity, store.Summary.FreeSpace,
		})
	}
	slices.SortFunc(all, func(x, y InventoryDatastore) int { return cmp.Compare(x.Path, y.Path) })
	return all, nil
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

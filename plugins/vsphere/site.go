package vsphere

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
)

// place is where the provider's VMs live: the objects of vCenter that the configuration names.
type place struct {
	vim       *vim25.Client
	finder    *find.Finder
	dc        *object.Datacenter
	root      types.ManagedObjectReference // the datacenter's folder of VMs
	cluster   *object.ClusterComputeResource
	pool      *object.ResourcePool
	folder    *object.Folder
	templates *object.Folder
	stores    []*object.Datastore // for VMs
	images    *object.Datastore
	data      *object.Datastore

	mu       sync.Mutex
	networks map[string]*portGroup
	groups   map[string]*object.Folder
	names    map[types.ManagedObjectReference]string // of hosts and other objects
}

// site keeps the place once it was found: names are looked up once, and again after something of it was missing.
type site struct {
	mu    sync.Mutex
	found *place
}

// place returns where the provider's VMs live. Errors: not_found if vCenter has no such object, or the account may not see it.
func (b *Backend) place(ctx context.Context, op string) (*place, error) {
	vim, err := b.conn.client(ctx, op)
	if err != nil {
		return nil, err
	}
	b.sites.mu.Lock()
	p := b.sites.found
	b.sites.mu.Unlock()
	if p != nil {
		return p, nil
	}
	if p, err = b.locate(ctx, op, vim); err != nil {
		return nil, err
	}
	b.sites.mu.Lock()
	defer b.sites.mu.Unlock()
	b.sites.found = p
	return p, nil
}

// forget makes the next call look the place up again, if err is that something of vCenter's is gone. It returns err.
func (b *Backend) forget(err error) error {
	if hasFault[types.ManagedObjectNotFound](err) {
		b.sites.mu.Lock()
		b.sites.found = nil
		b.sites.mu.Unlock()
	}
	return err
}

// locate looks every name of the configuration up, and tells all that are wrong at once.
func (b *Backend) locate(ctx context.Context, op string, vim *vim25.Client) (*place, error) {
	p := &place{vim: vim, finder: find.NewFinder(vim, false), networks: map[string]*portGroup{}, groups: map[string]*object.Folder{}, names: map[types.ManagedObjectReference]string{}}
	var fields []director.Field
	var failed error
	look := func(path, kind, name string, get func() error) {
		err := get()
		_, missing := errors.AsType[*find.NotFoundError](err)
		_, many := errors.AsType[*find.MultipleFoundError](err)
		switch {
		case missing:
			fields = append(fields, director.Field{
				Path: path, Msg: "vCenter has no " + kind + " " + name, Hint: "it is missing, or the account may not see it; names are those of govc: govc find / -type " + kindFlag[kind],
			})
		case many:
			fields = append(fields, director.Field{Path: path, Msg: "several " + kind + "s are named " + name, Hint: "write the whole inventory path"})
		case err != nil && failed == nil:
			failed = b.translate(ctx, op, kind+" "+name, err)
		}
	}
	look("datacenter", "datacenter", b.cfg.Datacenter, func() (err error) {
		p.dc, err = p.finder.Datacenter(ctx, b.cfg.Datacenter)
		return err
	})
	if failed != nil || p.dc == nil {
		return nil, errors.Join(failed, missingObjects(op, fields))
	}
	p.finder.SetDatacenter(p.dc)
	folders, err := p.dc.Folders(ctx)
	if err != nil {
		return nil, b.translate(ctx, op, "datacenter "+b.cfg.Datacenter, err)
	}
	p.root = folders.VmFolder.Reference()
	look("cluster", "cluster", b.cfg.Cluster, func() (err error) {
		p.cluster, err = p.finder.ClusterComputeResource(ctx, b.cfg.Cluster)
		return err
	})
	folder := func(path, name string, into **object.Folder) {
		if *into = folders.VmFolder; name != "" {
			look(path, "folder", name, func() (err error) {
				*into, err = p.finder.Folder(ctx, name)
				return err
			})
		}
	}
	folder("folder", b.cfg.Folder, &p.folder)
	folder("templateFolder", b.cfg.TemplateFolder, &p.templates)
	store := func(path, name string) (found *object.Datastore) {
		look(path, "datastore", name, func() (err error) {
			found, err = p.finder.Datastore(ctx, name)
			return err
		})
		return found
	}
	for _, name := range b.cfg.Datastores {
		p.stores = append(p.stores, store("datastores", name))
	}
	p.images, p.data = store("templateDatastore", b.cfg.TemplateDatastore), store("dataDatastore", b.cfg.DataDatastore)
	switch {
	case b.cfg.ResourcePool != "":
		look("resourcePool", "resource pool", b.cfg.ResourcePool, func() (err error) {
			p.pool, err = p.finder.ResourcePool(ctx, b.cfg.ResourcePool)
			return err
		})
	case p.cluster != nil && failed == nil:
		if p.pool, err = p.cluster.ResourcePool(ctx); err != nil {
			failed = b.translate(ctx, op, "the resource pool of cluster "+b.cfg.Cluster, err)
		}
	}
	if err := errors.Join(failed, missingObjects(op, fields)); err != nil {
		if failed != nil {
			return nil, failed
		}
		return nil, err
	}
	return p, nil
}

// kindFlag is how govc calls the kinds.
var kindFlag = map[string]string{"datacenter": "d", "cluster": "c", "folder": "f", "datastore": "s", "resource pool": "p"}

// missingObjects is not_found with every name that vCenter does not have.
func missingObjects(op string, fields []director.Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindNotFound, Op: op, Msg: "the provider's document names what vCenter does not have", Fields: fields,
		Hint: "correct the document, or give the account a role on what is missing",
	}
}

// group returns the folder of a group of VMs below the provider's, and makes it if need be. Folders stay when they are empty: destroying a folder
// destroys what came into it meanwhile.
func (p *place) group(ctx context.Context, name string) (*object.Folder, error) {
	if name == "" {
		return p.folder, nil
	}
	p.mu.Lock()
	f := p.groups[name]
	p.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := p.childFolder(ctx, name)
	if err == nil && f == nil {
		if f, err = p.folder.CreateFolder(ctx, name); hasFault[types.DuplicateName](err) { // somebody else has, since we looked
			f, err = p.childFolder(ctx, name)
		}
	}
	if err != nil || f == nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups[name] = f
	return f, nil
}

// knownGroup returns the group's folder if there is one.
func (p *place) knownGroup(ctx context.Context, name string) (*object.Folder, error) {
	if name == "" {
		return nil, nil
	}
	return p.childFolder(ctx, name)
}

func (p *place) childFolder(ctx context.Context, name string) (*object.Folder, error) {
	child, err := object.NewSearchIndex(p.vim).FindChild(ctx, p.folder, name)
	if err != nil || child == nil || child.Reference().Type != "Folder" {
		return nil, err
	}
	return object.NewFolder(p.vim, child.Reference()), nil
}

// dataStores are all datastores that may hold data disks: the one for new ones first.
func (p *place) dataStores() []*object.Datastore {
	all := []*object.Datastore{p.data}
	for _, s := range p.stores {
		if !slices.ContainsFunc(all, func(o *object.Datastore) bool { return o.Reference() == s.Reference() }) {
			all = append(all, s)
		}
	}
	return all
}

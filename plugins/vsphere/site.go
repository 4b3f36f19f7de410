package vsphere

import (
	"context"
	"errors"
	"fmt"
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

	attributes map[string]int32 // keys of custom attributes
}

// site keeps the place once it was found: names are looked up once, and again after something of it was missing.
type site struct {
	mu    sync.Mutex
	found *place
}

// place returns where the provider's VMs live. Errors: not_found if vCenter has no such object, or the account may not
// see it.
func (b *center) place(ctx context.Context, op string) (*place, error) {
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
func (b *center) forget(err error) error {
	if hasFault[types.ManagedObjectNotFound](err) {
		b.sites.mu.Lock()
		b.sites.found = nil
		b.sites.mu.Unlock()
	}
	return err
}

// locate looks every name of the configuration up, and tells all that are wrong at once.
func (b *center) locate(ctx context.Context, op string, vim *vim25.Client) (*place, error) {
	p, names := b.survey(ctx, op, vim)
	var fields []director.Field
	for _, n := range names {
		switch {
		case n.problem != "":
			fields = append(fields, director.Field{Path: n.path, Msg: n.problem, Hint: n.hint})
		case n.err != nil:
			return nil, n.err
		}
	}
	if err := missingObjects(op, fields); err != nil {
		return nil, err
	}
	return p, nil
}

// named is a name of the configuration that was looked up. It is well if it has neither a problem nor an error.
type named struct {
	path, kind, name string
	problem, hint    string // of the name: vCenter has none or several of it
	err              error  // why it could not be looked up
}

// survey looks every name of the configuration up. Parts of the place whose name is not well are nil.
func (b *center) survey(ctx context.Context, op string, vim *vim25.Client) (*place, []named) {
	p := &place{
		vim: vim, finder: find.NewFinder(vim, false), networks: map[string]*portGroup{},
		groups: map[string]*object.Folder{},
		names:  map[types.ManagedObjectReference]string{}, attributes: map[string]int32{},
	}
	v := &surveyor{b: b, op: op, p: p}
	folders := v.datacenter(ctx)
	if folders == nil {
		return p, v.names // everything else is looked for in it
	}
	v.look(ctx, "cluster", "cluster", b.cfg.Cluster, func() (err error) {
		p.cluster, err = p.finder.ClusterComputeResource(ctx, b.cfg.Cluster)
		return err
	})
	v.folders(ctx, folders)
	v.datastores(ctx)
	v.resourcePool(ctx)
	return p, v.names
}

// surveyor fills in a place, and keeps every name that was looked up.
type surveyor struct {
	b     *center
	op    string
	p     *place
	names []named
}

func (v *surveyor) look(ctx context.Context, path, kind, name string, get func() error) {
	n, err := named{path: path, kind: kind, name: name}, get()
	_, missing := errors.AsType[*find.NotFoundError](err)
	_, many := errors.AsType[*find.MultipleFoundError](err)
	switch {
	case missing:
		n.problem = "vCenter has no " + kind + " " + name
		n.hint = "it is missing, or the account may not see it; names are those of govc: govc find / -type " +
			kindFlag[kind]
	case many:
		n.problem, n.hint = "several "+kind+"s are named "+name, "write the whole inventory path"
	case err != nil:
		n.err = v.b.translate(ctx, v.op, kind+" "+name, err)
	}
	v.names = append(v.names, n)
}

// datacenter returns the folders of the datacenter, or nil.
func (v *surveyor) datacenter(ctx context.Context) *object.DatacenterFolders {
	var folders *object.DatacenterFolders
	p, name := v.p, v.b.cfg.Datacenter
	v.look(ctx, "datacenter", "datacenter", name, func() (err error) {
		if p.dc, err = p.finder.Datacenter(ctx, name); err == nil {
			folders, err = p.dc.Folders(ctx)
		}
		return err
	})
	if folders != nil {
		p.finder.SetDatacenter(p.dc)
		p.root = folders.VmFolder.Reference()
	}
	return folders
}

func (v *surveyor) folders(ctx context.Context, all *object.DatacenterFolders) {
	folder := func(path, name string) (found *object.Folder) {
		if name == "" {
			return all.VmFolder
		}
		v.look(ctx, path, "folder", name, func() (err error) {
			found, err = v.p.finder.Folder(ctx, name)
			return err
		})
		return found
	}
	v.p.folder = folder("folder", v.b.cfg.Folder)
	if v.p.templates = v.p.folder; v.b.cfg.TemplateFolder != v.b.cfg.Folder {
		v.p.templates = folder("templateFolder", v.b.cfg.TemplateFolder)
	}
}

func (v *surveyor) datastores(ctx context.Context) {
	known := map[string]*object.Datastore{}
	store := func(path, name string) *object.Datastore {
		found, again := known[name]
		if !again {
			v.look(ctx, path, "datastore", name, func() (err error) {
				found, err = v.p.finder.Datastore(ctx, name)
				return err
			})
			known[name] = found
		}
		return found
	}
	cfg := v.b.cfg
	for i, name := range cfg.Datastores {
		v.p.stores = append(v.p.stores, store(fmt.Sprintf("datastores[%d]", i), name))
	}
	v.p.images, v.p.data = store("templateDatastore", cfg.TemplateDatastore), store("dataDatastore", cfg.DataDatastore)
}

// resourcePool looks for the pool of the configuration, or else for that of the cluster.
func (v *surveyor) resourcePool(ctx context.Context) {
	p, cfg := v.p, v.b.cfg
	switch {
	case cfg.ResourcePool != "":
		v.look(ctx, "resourcePool", "resource pool", cfg.ResourcePool, func() (err error) {
			p.pool, err = p.finder.ResourcePool(ctx, cfg.ResourcePool)
			return err
		})
	case p.cluster != nil:
		v.look(ctx, "resourcePool", "resource pool", "of cluster "+cfg.Cluster, func() (err error) {
			p.pool, err = p.cluster.ResourcePool(ctx)
			return err
		})
	}
}

// kindFlag is how govc calls the kinds.
var kindFlag = map[string]string{
	"datacenter": "d", "cluster": "c", "folder": "f", "datastore": "s", "resource pool": "p",
}

// missingObjects is not_found with every name that vCenter does not have.
func missingObjects(op string, fields []director.Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindNotFound, Op: op, Msg: "the provider's document names what vCenter does not have",
		Fields: fields,
		Hint:   "correct the document, or give the account a role on what is missing",
	}
}

// group returns the folder of a group of VMs below the provider's, and makes it if need be. Folders stay when they are
// empty: destroying a folder destroys what came into it meanwhile.
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
		// others have, since we looked
		if f, err = p.folder.CreateFolder(ctx, name); hasFault[types.DuplicateName](err) {
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
	var all []*object.Datastore
	for _, s := range append([]*object.Datastore{p.data}, p.stores...) {
		if s != nil &&
			!slices.ContainsFunc(all, func(o *object.Datastore) bool { return o.Reference() == s.Reference() }) {
			all = append(all, s)
		}
	}
	return all
}

// Package vspheretest starts vCenter's simulator for tests. It keeps VMs, files and tasks as vCenter does, and boots
// nothing.
package vspheretest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/pem"
	"log"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// The account that the simulator takes.
const (
	Account  = "kaas@vsphere.local"
	Password = "a password of vCenter"
)

// Server is vCenter's simulator, which answers over TLS like the real one. It has the datacenter DC0 with the cluster
// DC0_C0 of three hosts, two datastores, and standard and distributed port groups.
type Server struct {
	Model      *simulator.Model
	Host       string // host and port
	Thumbprint string // of its certificate
	// of another account than the director's back end, to look at what was made and to do what others do
	Admin  *govmomi.Client
	server *simulator.Server
}

// Start starts a simulator, and stops it when the test has ended with all its parallel parts.
func Start(t testing.TB) *Server {
	t.Helper()
	model := simulator.VPX()
	model.Host, model.Machine, model.ClusterHost, model.Datastore, model.Portgroup = 0, 0, 3, 2, 2
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	model.Service.TLS = new(tls.Config)
	model.Service.Listen = &url.URL{User: url.UserPassword(Account, Password), Host: "127.0.0.1:0"}
	simulate(model)
	server := model.Service.NewServer()
	server.Config.ErrorLog = log.New(withoutHandshakes{}, "", log.LstdFlags)
	s := &Server{
		Model: model, server: server, Host: server.URL.Host, Thumbprint: soap.ThumbprintSHA256(server.Certificate()),
	}
	t.Cleanup(func() {
		if s.Admin != nil {
			if err := s.Admin.Logout(context.Background()); err != nil {
				t.Error(err)
			}
		}
		server.Close()
		model.Remove()
	})
	u := *server.URL
	u.User = url.UserPassword(Account, Password)
	var err error
	if s.Admin, err = govmomi.NewClient(context.Background(), &u, true); err != nil {
		t.Fatal(err)
	}
	return s
}

// withoutHandshakes writes what a server has to say, without the handshakes that fail: a client that trusts a
// fingerprint tries the authorities first, each time.
type withoutHandshakes struct{}

// Write implements io.Writer.
func (withoutHandshakes) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		return len(line), nil
	}
	return os.Stderr.Write(line)
}

// CAFile writes the certificate that the simulator is trusted by.
func (s *Server) CAFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "vcenter.pem")
	if err := os.WriteFile(
		file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw}), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	return file
}

// simulate adds to the simulator what vCenter does and it does not: the browser of datastores tells how large disks
// are, and clones get the settings that were asked for.
func simulate(model *simulator.Model) {
	ctx := model.Service.Context
	for _, e := range ctx.Map.All("HostSystem") { // the simulator's own have two CPUs and 4 GiB
		h := e.(*simulator.HostSystem)
		hardware := *h.Summary.Hardware
		hardware.NumCpuThreads, hardware.NumCpuCores, hardware.MemorySize = 16, 16, 64<<30
		h.Summary.Hardware = &hardware
	}
	for _, e := range ctx.Map.All("Datastore") {
		ds := e.(*simulator.Datastore)
		ctx.Map.Put(&browser{
			HostDatastoreBrowser: ctx.Map.Get(ds.Browser).(*simulator.HostDatastoreBrowser), datastore: ds,
		})
	}
	index := ctx.Map.Get(
		*ctx.Map.Get(vim25.ServiceInstance).(*simulator.ServiceInstance).Content.SearchIndex,
	).(*simulator.SearchIndex)
	ctx.Map.Put(&searchIndex{SearchIndex: index})
	making := new(sync.RWMutex)
	ctx.Map.Handler = func(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		switch m.Name {
		case "RetrievePropertiesEx": // no one sees a VM before it has its settings
			making.RLock()
			defer making.RUnlock()
		case "CloneVM_Task":
			req := m.Body.(*types.CloneVM_Task)
			if real, ok := ctx.Map.Get(req.Folder).(*simulator.Folder); ok {
				folder := &cloneFolder{
					Folder: real, config: req.Spec.Config, making: making,
					ref: types.ManagedObjectReference{Type: "Folder", Value: hypervisortest.RandomID("clone-")},
				}
				ctx.Map.Put(folder)
				req.Folder = folder.ref
			}
		case "ImportVApp":
			if real, ok := ctx.Map.Get(m.This).(*simulator.ResourcePool); ok {
				m.This = types.ManagedObjectReference{
					Type: "ResourcePool", Value: hypervisortest.RandomID("import-"),
				}
				return &importPool{ResourcePool: real, Self: m.This, making: making}, nil
			}
		}
		return nil, nil
	}
}

// searchIndex is the simulator's, which looks at the children of a folder only between creations in it: the simulator's
// own (v0.54) panics at a VM that has no name yet, and keeps its lock for ever.
type searchIndex struct{ *simulator.SearchIndex }

// FindChild implements the method of the API.
func (s *searchIndex) FindChild(ctx *simulator.Context, req *types.FindChild) (res soap.HasFault) {
	ctx.Map.WithLock(ctx, req.Entity, func() { res = s.SearchIndex.FindChild(ctx, req) })
	return res
}

// cloneFolder takes the place of a folder during one clone, and gives the new VM the settings of the clone's
// specification. The simulator (v0.52 to v0.54) writes them to a copy that it drops.
type cloneFolder struct {
	*simulator.Folder
	ref    types.ManagedObjectReference
	config *types.VirtualMachineConfigSpec
	making *sync.RWMutex
}

// Reference implements mo.Reference.
func (f *cloneFolder) Reference() types.ManagedObjectReference { return f.ref }

// CreateVMTask implements the method of the API.
func (f *cloneFolder) CreateVMTask(ctx *simulator.Context, c *types.CreateVM_Task) soap.HasFault {
	if f.config != nil {
		c.Config.InstanceUuid, c.Config.ExtraConfig, c.Config.Annotation = f.config.InstanceUuid, f.config.ExtraConfig,
			f.config.Annotation
		c.Config.NumCPUs = cmp.Or(f.config.NumCPUs, c.Config.NumCPUs)
		c.Config.MemoryMB = cmp.Or(f.config.MemoryMB, c.Config.MemoryMB)
	}
	f.making.Lock()
	defer f.making.Unlock()
	res := f.Folder.CreateVMTask(ctx, c)
	ctx.Map.Get(res.(*methods.CreateVM_TaskBody).Res.Returnval).(*simulator.Task).Wait()
	ctx.Map.Remove(ctx, f.ref)
	return res
}

// importPool takes the place of a resource pool during one import. It keeps clones out until the VM is made: the
// simulator (v0.54) locks the pool and then the folder for an import, and the folder and then the pool for a clone.
type importPool struct {
	*simulator.ResourcePool
	Self   types.ManagedObjectReference // what the simulator locks for the call, instead of the pool
	making *sync.RWMutex
}

// Reference implements mo.Reference.
func (p *importPool) Reference() types.ManagedObjectReference { return p.Self }

// ImportVApp implements the method of the API.
func (p *importPool) ImportVApp(ctx *simulator.Context, req *types.ImportVApp) soap.HasFault {
	p.making.Lock()
	defer p.making.Unlock()
	req.This = p.ResourcePool.Self
	res := p.ResourcePool.ImportVApp(ctx, req)
	// The import is a task of the pool, which keeps the pool locked for its context until it ends.
	ctx.Map.WithLock(&simulator.Context{}, p.ResourcePool.Self, func() {})
	return res
}

// browser lists the disks of a datastore's directory and tells their capacity, and other files to a request without a
// kind. The simulator's own tells none, and (v0.54) dies when a file goes between its listing and the look at it.
type browser struct {
	*simulator.HostDatastoreBrowser
	datastore *simulator.Datastore
}

// SearchDatastoreTask implements the method of the API for a search by name.
func (b *browser) SearchDatastoreTask(ctx *simulator.Context, req *types.SearchDatastore_Task) soap.HasFault {
	t := simulator.CreateTask(b.datastore, "searchDatastore", func(
		*simulator.Task,
	) (types.AnyType, types.BaseMethodFault) {
		return b.disks(ctx, req)
	})
	t.Run(ctx)
	return &methods.SearchDatastore_TaskBody{Res: &types.SearchDatastore_TaskResponse{Returnval: t.Self}}
}

func (b *browser) disks(
	ctx *simulator.Context, req *types.SearchDatastore_Task,
) (types.AnyType, types.BaseMethodFault) {
	var dir object.DatastorePath
	if !dir.FromString(req.DatastorePath) {
		return nil, &types.InvalidDatastorePath{DatastorePath: req.DatastorePath}
	}
	files, err := os.ReadDir(filepath.Join(b.datastore.Summary.Url, dir.Path))
	if err != nil {
		return nil, &types.FileNotFound{FileFault: types.FileFault{File: dir.Path}}
	}
	found := types.HostDatastoreBrowserSearchResults{Datastore: &b.datastore.Self, FolderPath: req.DatastorePath}
	dc := ctx.Map.Any("Datacenter").Reference()
	for _, file := range files {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, file.Name()); return ok }
		if strings.HasSuffix(file.Name(), "-flat.vmdk") || !slices.ContainsFunc(req.SearchSpec.MatchPattern, matches) {
			continue
		}
		if path.Ext(file.Name()) != ".vmdk" {
			if len(req.SearchSpec.Query) == 0 {
				found.File = append(found.File, &types.FileInfo{Path: file.Name()})
			}
			continue
		}
		// else it is gone
		if d, _, fault := ctx.Map.FileManager().DiskDescriptor(
			ctx, &dc, req.DatastorePath+"/"+file.Name(),
		); fault == nil {
			found.File = append(found.File, &types.VmDiskFileInfo{
				FileInfo: types.FileInfo{Path: file.Name()}, CapacityKb: d.Capacity() >> 10,
			})
		}
	}
	return found, nil
}

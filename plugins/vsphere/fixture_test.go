package vsphere

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

const (
	account  = "kaas@vsphere.local"
	password = "a password of vCenter"
)

// fixture is vCenter's simulator, which answers over TLS like the real one, with an image that all cases share. It keeps VMs, files and tasks,
// and boots nothing.
type fixture struct {
	model  *simulator.Model
	server *simulator.Server
	cfg    Config
	admin  *govmomi.Client // another client than the back end's, to look at what was made and to do what others do
	image  hypervisor.ImageSpec
}

// newFixture starts a simulator with a cluster of three hosts, two datastores, and standard and distributed port groups.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	model := simulator.VPX()
	model.Host, model.Machine, model.ClusterHost, model.Datastore, model.Portgroup = 0, 0, 3, 2, 2
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	model.Service.TLS = new(tls.Config)
	model.Service.Listen = &url.URL{User: url.UserPassword(account, password), Host: "127.0.0.1:0"}
	simulate(model)
	server := model.Service.NewServer()
	f := &fixture{model: model, server: server, cfg: Config{
		URL: server.URL.Host, Thumbprint: soap.ThumbprintSHA256(server.Certificate()),
		Credentials: func(context.Context) (string, director.Secret, error) { return account, password, nil },
		Datacenter:  "DC0", Cluster: "DC0_C0", Datastores: []string{"LocalDS_0", "LocalDS_1"}, WorkDir: t.TempDir(),
	}}
	t.Cleanup(func() { // after all parallel cases
		if err := f.admin.Logout(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
		model.Remove()
	})
	u := *server.URL
	u.User = url.UserPassword(account, password)
	var err error
	if f.admin, err = govmomi.NewClient(context.Background(), &u, true); err != nil {
		t.Fatal(err)
	}
	return f
}

// withImage brings an image.
func (f *fixture) withImage(t *testing.T) *fixture {
	t.Helper()
	f.image = hypervisortest.NewImage(t, nil)
	b := f.open(t)
	if err := b.EnsureImage(t.Context(), f.image, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// simulate adds to the simulator what vCenter does and it does not: the browser of datastores tells how large disks are, and clones get the
// settings that were asked for.
func simulate(model *simulator.Model) {
	ctx := model.Service.Context
	for _, e := range ctx.Map.All("Datastore") {
		ds := e.(*simulator.Datastore)
		ctx.Map.Put(&browser{HostDatastoreBrowser: ctx.Map.Get(ds.Browser).(*simulator.HostDatastoreBrowser), datastore: ds})
	}
	making := new(sync.RWMutex)
	ctx.Map.Handler = func(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		switch m.Name {
		case "RetrievePropertiesEx": // nobody sees a VM before it has its settings
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
		}
		return nil, nil
	}
}

// cloneFolder stands for a folder during one clone, and gives the new VM the settings of the clone's specification. The simulator (v0.52 to
// v0.54) writes them to a copy that it drops.
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
		c.Config.InstanceUuid, c.Config.ExtraConfig, c.Config.Annotation = f.config.InstanceUuid, f.config.ExtraConfig, f.config.Annotation
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

// browser is the simulator's browser of a datastore, which also tells the capacity of disks.
type browser struct {
	*simulator.HostDatastoreBrowser
	datastore *simulator.Datastore
}

// SearchDatastoreTask implements the method of the API.
func (b *browser) SearchDatastoreTask(ctx *simulator.Context, req *types.SearchDatastore_Task) soap.HasFault {
	res := b.HostDatastoreBrowser.SearchDatastoreTask(ctx, req)
	body, ok := res.(*methods.SearchDatastore_TaskBody)
	if !ok || body.Res == nil {
		return res
	}
	t := ctx.Map.Get(body.Res.Returnval).(*simulator.Task)
	t.Wait()
	found, ok := t.Info.Result.(types.HostDatastoreBrowserSearchResults)
	if !ok {
		return res
	}
	for _, info := range found.File {
		disk, ok := info.(*types.VmDiskFileInfo)
		if !ok {
			continue
		}
		dc := ctx.Map.Any("Datacenter").Reference()
		if d, _, fault := ctx.Map.FileManager().DiskDescriptor(ctx, &dc, found.FolderPath+"/"+disk.Path); fault == nil {
			disk.CapacityKb = d.Capacity() >> 10
		}
	}
	return res
}

// open returns a back end of its own, as another director has it.
func (f *fixture) open(t testing.TB) *Backend {
	t.Helper()
	cfg := f.cfg
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// objects of the simulator by another way than the back end's.
func (f *fixture) finder(t testing.TB) *find.Finder {
	t.Helper()
	finder := find.NewFinder(f.admin.Client)
	dc, err := finder.Datacenter(context.Background(), "DC0")
	if err != nil {
		t.Fatal(err)
	}
	return finder.SetDatacenter(dc)
}

// strangerIn makes a VM without a stamp in the folder.
func (f *fixture) strangerIn(t testing.TB, folder *object.Folder, name string) hypervisor.ID {
	t.Helper()
	ctx := context.Background()
	pool, err := f.finder(t).ResourcePool(ctx, "DC0_C0/Resources")
	if err != nil {
		t.Fatal(err)
	}
	task, err := folder.CreateVM(ctx, types.VirtualMachineConfigSpec{
		Name: name, GuestId: guestID, NumCPUs: 1, MemoryMB: 64, Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
	}, pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		t.Fatal(err)
	}
	vm := object.NewVirtualMachine(f.admin.Client, info.Result.(types.ManagedObjectReference))
	var props mo.VirtualMachine
	if err := vm.Properties(ctx, vm.Reference(), []string{"config.instanceUuid"}, &props); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		task, err := vm.Destroy(ctx)
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return hypervisor.ID(props.Config.InstanceUuid)
}

func (f *fixture) stranger(t *testing.T, name string) hypervisor.ID {
	t.Helper()
	folder, err := f.finder(t).Folder(t.Context(), "/DC0/vm")
	if err != nil {
		t.Fatal(err)
	}
	return f.strangerIn(t, folder, name)
}

// remains lists all that names the director: settings of VMs and files of datastores.
func (f *fixture) remains(t testing.TB, directorID string) []string {
	t.Helper()
	ctx := context.Background()
	var left []string
	vms, err := f.finder(t).VirtualMachineList(ctx, "/DC0/vm/...")
	if _, none := errors.AsType[*find.NotFoundError](err); err != nil && !none {
		t.Fatal(err)
	}
	for _, vm := range vms {
		var props mo.VirtualMachine
		if err := vm.Properties(ctx, vm.Reference(), []string{"config.extraConfig"}, &props); err != nil {
			continue // it went meanwhile
		}
		for _, o := range props.Config.ExtraConfig {
			if v, _ := o.GetOptionValue().Value.(string); v == directorID {
				left = append(left, vm.InventoryPath)
			}
		}
	}
	for _, e := range f.model.Service.Context.Map.All("Datastore") {
		err := filepath.WalkDir(e.(*simulator.Datastore).Summary.Url, func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(filepath.Base(path), directorID) {
				left = append(left, path)
			}
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return left
}

// partImage leaves what an upload leaves that was cut off by a crash.
func (f *fixture) partImage(t *testing.T, s hypervisor.ImageSpec) {
	t.Helper()
	b := f.open(t)
	b.at = cutAt("sealing")
	if err := b.EnsureImage(t.Context(), s, nil); err == nil {
		t.Fatal("EnsureImage was not cut off")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func cutAt(point string) func(string) error {
	return func(p string) error {
		if p == point {
			return errors.New("cut off")
		}
		return nil
	}
}

// points are the lines of Ensure after which the crash tests cut it off.
var points = []string{"cloned", "disk kaas-data", "disk more", "disks", "made", "started"}

func (f *fixture) subject(t *testing.T) hypervisortest.Subject {
	t.Helper()
	id := hypervisortest.RandomID("d")
	made := "vSphere's networks are port groups that an administrator has made; the director makes none"
	s := hypervisortest.Subject{
		Open:     func(t *testing.T) hypervisor.Backend { return f.open(t) },
		Director: id, Image: f.image.Name, Network: "VM Network",
		Stranger:  f.stranger,
		Remains:   func(t *testing.T) []string { return f.remains(t, id) },
		NewImage:  func(t *testing.T) hypervisor.ImageSpec { return hypervisortest.NewImage(t, nil) },
		PartImage: f.partImage,
		Timeout:   5 * time.Minute,
		Skips: map[string]string{
			"networks/idempotent": made, "networks/foreign": made, "networks/overlap": made, "networks/in_use": made, "networks/invalid": made,
		},
	}
	for _, point := range points {
		s.Crashes = append(s.Crashes, hypervisortest.Crash{Name: point, Arm: func(t *testing.T, b hypervisor.Backend) {
			t.Helper()
			b.(*Backend).at = cutAt(point)
		}})
	}
	return s
}

// spec is a VM with one data disk; the simulator goes with the test, so nothing is tidied up.
func (f *fixture) spec() hypervisor.Spec {
	id := hypervisortest.RandomID("m")
	return hypervisor.Spec{
		Key: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: id}, Name: hypervisortest.RandomID("vm-"),
		CPUs: 2, Memory: 128 << 20, Image: f.image.Name, RootDisk: 64 << 20,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}},
		NICs:      []hypervisor.NIC{{Network: "DC0_DVPG0", MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7]}},
		Seed:      hypervisor.Seed{MetaData: []byte("instance-id: x\n"), UserData: []byte("#cloud-config\nhostname: x\n"), NetworkConfig: []byte("version: 2\n")},
	}
}

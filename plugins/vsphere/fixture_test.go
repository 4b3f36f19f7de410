package vsphere

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/plugins/vsphere/vspheretest"
)

const (
	account  = vspheretest.Account
	password = vspheretest.Password
)

// fixture is a simulated vCenter with an image that all cases share.
type fixture struct {
	*vspheretest.Server
	cfg   Config
	image hypervisor.ImageSpec
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	s := vspheretest.Start(t)
	return &fixture{Server: s, cfg: Config{
		URL: s.Host, Thumbprint: s.Thumbprint,
		Credentials: func(context.Context) (string, director.Secret, error) { return account, password, nil },
		Datacenter:  "DC0", Cluster: "DC0_C0", Datastores: []string{"LocalDS_0", "LocalDS_1"}, WorkDir: t.TempDir(),
		Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")},
	}}
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
	finder := find.NewFinder(f.Admin.Client)
	dc, err := finder.Datacenter(context.Background(), "DC0")
	if err != nil {
		t.Fatal(err)
	}
	return finder.SetDatacenter(dc)
}

// done returns a function that waits for a task of another client, and returns what it has made.
func done(t testing.TB) func(*object.Task, error) types.AnyType {
	return func(task *object.Task, err error) types.AnyType {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		info, err := task.WaitForResult(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return info.Result
	}
}

// strangerIn makes a VM without a stamp in the folder.
func (f *fixture) strangerIn(t testing.TB, folder *object.Folder, name string) hypervisor.ID {
	t.Helper()
	ctx := context.Background()
	pool, err := f.finder(t).ResourcePool(ctx, "DC0_C0/Resources")
	if err != nil {
		t.Fatal(err)
	}
	made := done(t)(folder.CreateVM(ctx, types.VirtualMachineConfigSpec{
		Name: name, GuestId: guestID, NumCPUs: 1, MemoryMB: 64,
		Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
	}, pool, nil))
	vm := object.NewVirtualMachine(f.Admin.Client, made.(types.ManagedObjectReference))
	var props mo.VirtualMachine
	if err := vm.Properties(ctx, vm.Reference(), []string{"config.instanceUuid"}, &props); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		task, err := vm.Destroy(ctx)
		if err == nil {
			err = task.Wait(ctx)
		}
		if err != nil && !hasFault[types.ManagedObjectNotFound](err) { // an adoption may have deleted it
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

// attach attaches a disk to the VM, as a storage driver does with a volume.
func (f *fixture) attach(t *testing.T, vm hypervisor.VM) func() bool {
	t.Helper()
	ctx := context.Background()
	finder := f.finder(t)
	dc, err := finder.Datacenter(ctx, "DC0")
	if err != nil {
		t.Fatal(err)
	}
	store, err := finder.Datastore(ctx, "LocalDS_0")
	if err != nil {
		t.Fatal(err)
	}
	if err := object.NewFileManager(f.Admin.Client).MakeDirectory(
		ctx, store.Path("fcd"), dc, true,
	); err != nil && !hasFault[types.FileAlreadyExists](err) {
		t.Fatal(err)
	}
	name := "fcd/" + hypervisortest.RandomID("pv-") + ".vmdk"
	done(t)(object.NewVirtualDiskManager(
		f.Admin.Client,
	).CreateVirtualDisk(ctx, store.Path(name), dc, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{
			DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
		}, CapacityKb: 1 << 10,
	}))
	ref, err := object.NewSearchIndex(f.Admin.Client).FindByUuid(ctx, dc, string(vm.ID), true, types.NewBool(true))
	if err != nil || ref == nil {
		t.Fatalf("%s is not found: %v", vm.Name, err)
	}
	machine := object.NewVirtualMachine(f.Admin.Client, ref.Reference())
	devices, err := machine.Device(ctx)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		t.Fatal(err)
	}
	disk := devices.CreateDisk(controller, store.Reference(), store.Path(name))
	if err := machine.AddDevice(ctx, disk); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		_, err := store.Stat(ctx, name)
		return err == nil
	}
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
	for _, e := range f.Model.Service.Context.Map.All("Datastore") {
		err := filepath.WalkDir(e.(*simulator.Datastore).Summary.Url, func(
			path string, _ fs.DirEntry, err error,
		) error {
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

// hasSeed looks for userdata in the VM's settings.
func (f *fixture) hasSeed(t *testing.T, v hypervisor.VM) bool {
	t.Helper()
	vms, err := f.finder(t).VirtualMachineList(t.Context(), "/DC0/vm/...")
	if err != nil {
		t.Fatal(err)
	}
	for _, vm := range vms {
		var props mo.VirtualMachine
		if err := vm.Properties(
			t.Context(), vm.Reference(), []string{"config"}, &props,
		); err != nil || props.Config == nil || props.Config.InstanceUuid != string(v.ID) {
			continue // it may have gone meanwhile
		}
		for _, o := range props.Config.ExtraConfig {
			if o := o.GetOptionValue(); strings.HasPrefix(o.Key, guestUser) && o.Value != "" {
				return true
			}
		}
		return false
	}
	t.Fatalf("there is no VM %s", v.ID)
	return false
}

func (f *fixture) subject(t *testing.T) hypervisortest.Subject {
	t.Helper()
	id := hypervisortest.RandomID("d")
	made := "vSphere's networks are port groups of an administrator; the director makes none"
	s := hypervisortest.Subject{
		Open:     func(t *testing.T) hypervisor.Backend { return f.open(t) },
		Director: id, Image: f.image.Name, Network: "VM Network", Elsewhere: "DC0_C0_H1",
		Stranger:    f.stranger,
		Attach:      f.attach,
		HasSeed:     f.hasSeed,
		SeedCrashes: crashesAt("seed removed"),
		WriteDisk:   f.writeDisk,
		ReadDisk:    f.readDisk,
		Remains:     func(t *testing.T) []string { return f.remains(t, id) },
		NewImage:    func(t *testing.T) hypervisor.ImageSpec { return hypervisortest.NewImage(t, nil) },
		PartImage:   f.partImage,
		Timeout:     5 * time.Minute,
		Skips: map[string]string{
			"networks/idempotent": made, "networks/foreign": made, "networks/overlap": made, "networks/in_use": made,
			"networks/invalid": made,
		},
	}
	s.Crashes = crashesAt(points...)
	s.DiskCrashes = crashesAt("copying", "dropped", "copied disk")
	return s
}

func crashesAt(points ...string) []hypervisortest.Crash {
	var all []hypervisortest.Crash
	for _, point := range points {
		all = append(all, hypervisortest.Crash{Name: point, Arm: func(t *testing.T, b hypervisor.Backend) {
			t.Helper()
			b.(*Backend).at = cutAt(point)
		}})
	}
	return all
}

// extent is the file with the content of a data disk, as the simulator has it.
func (f *fixture) extent(t *testing.T, d hypervisor.VolumeInfo) string {
	t.Helper()
	var at object.DatastorePath
	if !at.FromString(strings.TrimSuffix(d.Name, ".vmdk") + "-flat.vmdk") {
		t.Fatalf("%s is no file of a datastore", d.Name)
	}
	for _, e := range f.Model.Service.Context.Map.All("Datastore") {
		if store := e.(*simulator.Datastore); store.Name == at.Datastore {
			return filepath.Join(store.Summary.Url, at.Path)
		}
	}
	t.Fatalf("there is no datastore %s", at.Datastore)
	return ""
}

func (f *fixture) writeDisk(t *testing.T, d hypervisor.VolumeInfo, text string) {
	t.Helper()
	if err := os.WriteFile(f.extent(t, d), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) readDisk(t *testing.T, d hypervisor.VolumeInfo) string {
	t.Helper()
	text, err := os.ReadFile(f.extent(t, d))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// spec is a VM with one data disk; the simulator goes with the test, so nothing is tidied up.
func (f *fixture) spec() hypervisor.Spec {
	id := hypervisortest.RandomID("m")
	return hypervisor.Spec{
		Key: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: id}, Name: hypervisortest.RandomID("vm-"),
		CPUs: 2, Memory: 128 << 20, Image: f.image.Name, RootDisk: 64 << 20,
		DataDisks: []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}},
		NICs:      []hypervisor.NIC{{Network: "DC0_DVPG0", MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7]}},
		Seed: hypervisor.Seed{
			MetaData: []byte("instance-id: x\n"), UserData: []byte("#cloud-config\nhostname: x\n"),
			NetworkConfig: []byte("version: 2\n"),
		},
	}
}

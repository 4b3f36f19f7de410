package vsphere

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	"sigs.k8s.io/yaml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// look returns the VM at the inventory path as vCenter shows it to another client.
func (f *fixture) look(t *testing.T, path string) (*object.VirtualMachine, mo.VirtualMachine, map[string]string) {
	t.Helper()
	vm, err := f.finder(t).VirtualMachine(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	var props mo.VirtualMachine
	if err := vm.Properties(context.Background(), vm.Reference(), nil, &props); err != nil {
		t.Fatal(err)
	}
	extra := map[string]string{}
	for _, o := range props.Config.ExtraConfig {
		extra[o.GetOptionValue().Key] = fmt.Sprint(o.GetOptionValue().Value)
	}
	return vm, props, extra
}

// unpack reads what cloud-init reads.
func unpack(t *testing.T, text string) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func disksOf(vm mo.VirtualMachine) []*types.VirtualDisk {
	var out []*types.VirtualDisk
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		out = append(out, d.(*types.VirtualDisk))
	}
	return out
}

// Everything that a VM is to have is there, seen by another client.
func TestEnsureMakesAllOfIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	s.Group, s.Host = "prod", "DC0_C0_H1"
	s.NICs = append(s.NICs, hypervisor.NIC{
		Network: "storage", PortGroup: "/DC0/network/VM Network", MAC: "52:54:00:00:00:02",
	})
	s.DataDisks = nil
	for i := range 16 {
		s.DataDisks = append(s.DataDisks, hypervisor.Disk{Serial: fmt.Sprintf("data%d", i), Size: 8 << 20})
	}
	v, err := b.Ensure(t.Context(), s)
	if err != nil || !v.Ready || v.Host != s.Host {
		t.Fatalf("%+v, %v", v, err)
	}
	_, vm, extra := f.look(t, "/DC0/vm/prod/"+s.Name)
	if vm.Config.InstanceUuid != string(v.ID) || vm.Config.Hardware.NumCPU != 2 || vm.Config.Hardware.MemoryMB != 128 ||
		vm.Runtime.PowerState != "poweredOn" {
		t.Errorf(
			"the VM is %s with %d vCPUs and %d MiB, %s", vm.Config.InstanceUuid, vm.Config.Hardware.NumCPU,
			vm.Config.Hardware.MemoryMB, vm.Runtime.PowerState,
		)
	}
	for key, want := range map[string]string{
		keyDirector: s.Key.Director, keyMachine: s.Key.Machine, keyMade: "yes", keyImage: s.Image, keyClone: "linked",
		keyGroup: "prod", "disk.EnableUUID": "TRUE",
		"guestinfo.userdata.encoding": packing, "guestinfo.metadata.encoding": packing,
		"ethernet0.checkMACAddress": "FALSE",
	} {
		if extra[key] != want {
			t.Errorf("%s is %q, want %q", key, extra[key], want)
		}
	}
	if extra[keyReason] == "" || !strings.Contains(vm.Config.Annotation, s.Key.Machine) {
		t.Errorf("reason %q, annotation %q", extra[keyReason], vm.Config.Annotation)
	}
	if got := unpack(t, extra["guestinfo.userdata"]); got != string(s.Seed.UserData) {
		t.Errorf("userdata: %s", got)
	}
	var meta struct {
		Instance string   `json:"instance-id"`
		Network  string   `json:"network"`
		Encoding string   `json:"network.encoding"`
		CleanUp  []string `json:"cleanup-guestinfo"`
	}
	if err := yaml.Unmarshal([]byte(unpack(t, extra["guestinfo.metadata"])), &meta); err != nil {
		t.Fatal(err)
	}
	if meta.Instance != "x" || unpack(t, meta.Network) != string(s.Seed.NetworkConfig) || meta.Encoding != packing ||
		!slices.Equal(meta.CleanUp, []string{"userdata"}) {
		t.Errorf("metadata: %+v", meta)
	}
	var nics []string
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device) {
		if card, ok := d.(*types.VirtualVmxnet3); ok {
			nics = append(nics, fmt.Sprintf("%s %s %T", card.MacAddress, card.AddressType, card.Backing))
		}
	}
	if diff := cmp.Diff([]string{
		s.NICs[0].MAC + " manual *types.VirtualEthernetCardDistributedVirtualPortBackingInfo",
		s.NICs[1].MAC + " manual *types.VirtualEthernetCardNetworkBackingInfo",
	}, nics); diff != "" {
		t.Errorf("adapters (-want +got):\n%s", diff)
	}
	places := map[string]bool{}
	disks := disksOf(vm)
	for _, d := range disks {
		places[fmt.Sprintf("%d:%d", d.ControllerKey, *d.UnitNumber)] = true
		if *d.UnitNumber == 7 {
			t.Error("a disk has the controller's own place")
		}
	}
	if len(disks) != 17 || len(places) != 17 {
		t.Errorf("%d disks in %d places, want 17", len(disks), len(places))
	}
	if i := slices.IndexFunc(disks, func(d *types.VirtualDisk) bool {
		return fileOf(d) == "[LocalDS_0] kaas-data/"+s.Key.Director+"."+s.Key.Machine+".data15.vmdk"
	}); i < 0 || strings.ReplaceAll(strings.ToLower(uuidOf(disks[i])), "-", "") != hypervisor.DiskWWN(s.Key, "data15") {
		t.Error("the last data disk has another file or UUID")
	}
	s.DataDisks = append(s.DataDisks, hypervisor.Disk{Serial: "onemore", Size: 8 << 20})
	if _, err := b.Ensure(t.Context(), s); director.KindOf(err) != director.KindInvalid {
		t.Errorf("17 data disks: %v", err)
	}
}

// A root disk larger than the image's is a linked clone of a copy that has that size, made once.
func TestCloneKinds(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	for _, tt := range []struct {
		mode string
		size int64
		want string
	}{
		{"auto", 64 << 20, "linked"},
		{"auto", 96 << 20, "linked"},
		{"linked", 96 << 20, "linked"},
		{"full", 96 << 20, "full"},
		{"full", 64 << 20, "full"},
	} {
		f.cfg.Clone = tt.mode
		b := f.open(t)
		s := f.spec()
		s.RootDisk = tt.size
		if _, err := b.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		_, vm, extra := f.look(t, "/DC0/vm/"+s.Name)
		if extra[keyClone] != tt.want {
			t.Errorf("%+v: %s because %s", tt, extra[keyClone], extra[keyReason])
		}
		if got := disksOf(vm)[0].CapacityInBytes; got != tt.size {
			t.Errorf("%+v: the root disk has %d bytes", tt, got)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	inventory, err := f.open(t).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// the image, and a copy for each size and datastore
	if got := found(inventory, hypervisor.FoundTemplate); len(got) < 2 || len(got) > 4 {
		t.Errorf("templates %v", got)
	}
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	s.RootDisk = 32 << 20
	if _, err := b.Ensure(t.Context(), s); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a root disk smaller than the image: %v", err)
	}
}

// A copy that a person makes of one of our VMs carries our stamp and another UUID: it is a stranger.
func TestCopyIsAStranger(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	v, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	id := f.stranger(t, "copy")
	copied, _, _ := f.look(t, "/DC0/vm/copy")
	done(t)(copied.Reconfigure(t.Context(), types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{
		option(keyDirector, s.Key.Director), option(keyMachine, s.Key.Machine), option(keyMade, "yes"),
	}}))
	if got, err := b.List(t.Context(), hypervisor.Filter{
		Director: s.Key.Director,
	}); err != nil || len(got) != 1 || got[0].ID != v.ID {
		t.Errorf("List: %v, %v", got, err)
	}
	if err := b.Delete(t.Context(), id, hypervisor.DeleteOptions{
		Owner: s.Key,
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("Delete of a copy: %v", err)
	}
}

// Disks that others have attached outlive the VM, and a data disk that vCenter has moved comes back under its name.
func TestDeleteKeepsWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	v, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	vm, props, _ := f.look(t, "/DC0/vm/"+s.Name)
	dc, err := f.finder(t).Datacenter(ctx, "DC0")
	if err != nil {
		t.Fatal(err)
	}
	manager := object.NewVirtualDiskManager(f.Admin.Client)
	create := func(file string) {
		t.Helper()
		done(t)(manager.CreateVirtualDisk(ctx, file, dc, &types.FileBackedVirtualDiskSpec{
			CapacityKb: 8 << 10, VirtualDiskSpec: types.VirtualDiskSpec{DiskType: "thin", AdapterType: "lsiLogic"},
		}))
	}
	devices := object.VirtualDeviceList(props.Config.Hardware.Device)
	volume := "[LocalDS_1] volume.vmdk"
	create(volume)
	controller, err := devices.FindDiskController("")
	if err != nil {
		t.Fatal(err)
	}
	if err := vm.AddDevice(ctx, devices.CreateDisk(controller, types.ManagedObjectReference{}, volume)); err != nil {
		t.Fatal(err)
	}
	// vCenter moves the data disk into the VM's directory.
	moved := "[LocalDS_1] " + s.Name + "_1.vmdk"
	create(moved)
	for _, d := range disksOf(props) {
		if strings.Contains(fileOf(d), dataDir) {
			if err := vm.RemoveDevice(ctx, true, d); err != nil {
				t.Fatal(err)
			}
			done(t)(manager.DeleteVirtualDisk(ctx, fileOf(d), dc))
			d.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName = moved
			d.Key, d.CapacityInKB, d.CapacityInBytes = -1, 0, 0 // it exists
			if err := vm.AddDevice(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.at = cutAt("detached")
	if err := b.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: s.Key, Grace: time.Minute}); err == nil {
		t.Fatal("Delete was not cut off")
	}
	b.at = cutAt("")
	if got, err := b.List(ctx, hypervisor.Filter{
		Director: s.Key.Director,
	}); err != nil || len(got) != 1 || got[0].Ready {
		t.Errorf("half a Delete: %v, %v", got, err)
	}
	if err := b.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		t.Fatal(err)
	}
	kept, err := b.ListVolumes(ctx, s.Key.Director)
	if err != nil || len(kept) != 1 || kept[0].Name != "[LocalDS_1] kaas-data/"+dataName(s.Key, "kaas-data") ||
		kept[0].Stamp != s.Key {
		t.Errorf("the moved data disk: %v, %v", kept, err)
	}
	if _, err := manager.QueryVirtualDiskUuid(ctx, volume, dc); err != nil {
		t.Errorf("the volume of somebody else is gone: %v", err)
	}
	again, err := b.Ensure(ctx, s)
	if err != nil || again.ID != v.ID {
		t.Fatalf("%v, %v", again, err)
	}
	_, props, _ = f.look(t, "/DC0/vm/"+s.Name)
	if !slices.ContainsFunc(disksOf(props), func(d *types.VirtualDisk) bool { return fileOf(d) == kept[0].Name }) {
		t.Error("the data disk was not taken up again")
	}
}

// What a console has printed is read from the file beside the VM.
func TestConsole(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	v, err := b.Ensure(t.Context(), f.spec())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.ConsoleTail(t.Context(), v.ID, 10); err != nil || len(got) != 0 {
		t.Errorf("before it printed: %q, %v", got, err)
	}
	_, props, _ := f.look(t, "/DC0/vm/"+v.Name)
	var file object.DatastorePath
	for _, d := range object.VirtualDeviceList(props.Config.Hardware.Device).SelectByType(
		(*types.VirtualSerialPort)(nil),
	) {
		file.FromString(d.GetVirtualDevice().Backing.(*types.VirtualSerialPortFileBackingInfo).FileName)
	}
	store, err := f.finder(t).Datastore(t.Context(), file.Datastore)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Upload(t.Context(), strings.NewReader("Linux version 6\nlogin: "), file.Path, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := b.ConsoleTail(t.Context(), v.ID, 7); err != nil || string(got) != "login: " {
		t.Errorf("got %q, %v", got, err)
	}
}

// Names of vCenter's that are wrong are said all at once.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.cfg.Cluster, f.cfg.Datastores, f.cfg.Folder = "nocluster", []string{"LocalDS_0", "nostore"}, "nofolder"
	b := f.open(t)
	defer b.Close()
	_, err := b.Capacity(t.Context())
	for _, w := range []string{"nocluster", "nostore", "nofolder"} {
		if director.KindOf(err) != director.KindNotFound || !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("%v says nothing of %s", err, w)
		}
	}
	f.cfg.Datacenter = "nowhere"
	x := f.open(t)
	defer x.Close()
	if _, err := x.Capacity(t.Context()); director.KindOf(err) != director.KindNotFound {
		t.Errorf("no datacenter: %v", err)
	}
	inventory, err := x.Discover(t.Context()) // helps to correct them
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[hypervisor.DiscoveredKind][]string{
		hypervisor.FoundDatacenter:   {"/DC0"},
		hypervisor.FoundFolder:       {"/DC0/vm"},
		hypervisor.FoundCluster:      {"/DC0/host/DC0_C0"},
		hypervisor.FoundResourcePool: {"/DC0/host/DC0_C0/Resources"},
		hypervisor.FoundHost:         {"DC0_C0_H0", "DC0_C0_H1", "DC0_C0_H2"}, // as spec.vsphere.hosts takes them
		hypervisor.FoundDatastore:    {"/DC0/datastore/LocalDS_0", "/DC0/datastore/LocalDS_1"},
		hypervisor.FoundPortGroup: {
			"/DC0/network/DC0_DVPG0", "/DC0/network/DC0_DVPG1", "/DC0/network/VM Network",
		},
	} {
		got := slices.DeleteFunc(found(inventory, kind), func(name string) bool {
			return strings.Contains(name, "Uplinks") // which the simulator does not mark as such
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// found are the names of one kind.
func found(d hypervisor.Discovery, kind hypervisor.DiscoveredKind) []string {
	var names []string
	for _, i := range d.Items {
		if i.Kind == kind {
			names = append(names, i.Name)
		}
	}
	return names
}

// vCenter's own faults become errors that say what to do.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method string
		fault  types.BaseMethodFault
		kind   director.Kind
		want   string
	}{
		"privilege": {
			"CloneVM_Task", &types.NoPermission{PrivilegeId: "VirtualMachine.Provisioning.DeployTemplate"},
			director.KindForbidden, "lacks VirtualMachine.Provisioning.DeployTemplate",
		},
		"space": {"CloneVM_Task", &types.NoDiskSpace{Datastore: "ds1"}, director.KindExhausted, "ds1 is full"},
		"memory": {
			"PowerOnVM_Task", &types.InsufficientMemoryResourcesFault{}, director.KindExhausted,
			"no host of the cluster has room",
		},
		"busy":     {"ReconfigVM_Task", &types.TaskInProgress{}, director.KindUnavailable, "try again"},
		"licence":  {"CloneVM_Task", &types.RestrictedVersion{}, director.KindForbidden, "licence"},
		"host":     {"PowerOnVM_Task", &types.HostNotConnected{}, director.KindUnavailable, "host"},
		"settings": {"CloneVM_Task", &types.InvalidDeviceSpec{}, director.KindInvalid, "versions of vCenter"},
		"network":  {"PowerOnVM_Task", &types.CannotAccessNetwork{}, director.KindNotFound, "port group"},
		"unknown":  {"CloneVM_Task", &types.MethodDisabled{}, director.KindInternal, "MethodDisabled"},
		"disk space": {
			"CreateVirtualDisk_Task", &types.InsufficientStorageSpace{}, director.KindExhausted, "datastore",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t).withImage(t)
			f.Model.Service.AddFaultRule(&simulator.FaultInjectionRule{
				MethodName: tt.method, ObjectType: "*", ObjectName: "*", Probability: 1,
				FaultType: simulator.FaultTypeCustom, Fault: tt.fault, Enabled: true,
			})
			b := f.open(t)
			defer b.Close()
			_, err := b.Ensure(t.Context(), f.spec())
			if text := fmt.Sprintf(
				"%v (%s)", err, director.HintOf(err),
			); director.KindOf(err) != tt.kind || !strings.Contains(text, tt.want) || director.HintOf(err) == "" {
				t.Errorf("%s: %s", director.KindOf(err), text)
			}
		})
	}
}

// All privileges that are missing are said at once, before anything is made.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := f.Model.Service.Context
	ctx.Map.Put(&poorAccount{
		ctx.Map.Get(*f.Admin.ServiceContent.AuthorizationManager).(*simulator.AuthorizationManager),
	})
	b := f.open(t)
	defer b.Close()
	_, err := b.Capacity(t.Context())
	text := fmt.Sprint(err)
	if director.KindOf(err) != director.KindForbidden ||
		!strings.Contains(director.HintOf(err), "docs/operate/vsphere.md") {
		t.Errorf("%s: %s (%s)", director.KindOf(err), text, director.HintOf(err))
	}
	for _, w := range []string{
		"folder vm", "VirtualMachine.Provisioning.DeployTemplate", "datastore LocalDS_0", "Datastore.AllocateSpace",
	} {
		if !strings.Contains(text, w) {
			t.Errorf("%s\nsays nothing of %s", text, w)
		}
	}
}

// poorAccount lacks two privileges.
type poorAccount struct {
	*simulator.AuthorizationManager
}

// HasUserPrivilegeOnEntities implements the method of the API.
func (a *poorAccount) HasUserPrivilegeOnEntities(req *types.HasUserPrivilegeOnEntities) soap.HasFault {
	res := a.AuthorizationManager.HasUserPrivilegeOnEntities(req)
	for i, e := range res.(*methods.HasUserPrivilegeOnEntitiesBody).Res.Returnval {
		for j, p := range e.PrivAvailability {
			lacks := p.PrivId == "VirtualMachine.Provisioning.DeployTemplate" || p.PrivId == "Datastore.AllocateSpace"
			res.(*methods.HasUserPrivilegeOnEntitiesBody).Res.Returnval[i].PrivAvailability[j].IsGranted = !lacks
		}
	}
	return res
}

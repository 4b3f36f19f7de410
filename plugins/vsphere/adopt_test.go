package vsphere

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A VM that was adopted keeps its maker's disks when it is deleted, the root disk too; the data disk that was kept
// comes back beside those that it has.
func TestAdoptedDisksStay(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	ctx := t.Context()
	s := f.spec()
	first, err := b.Ensure(ctx, s)
	if err == nil {
		err = b.Delete(ctx, first.ID, hypervisor.DeleteOptions{Owner: s.Key})
	}
	if err != nil {
		t.Fatal(err)
	}
	f.stranger(t, s.Name)
	vm, props, _ := f.look(t, "/DC0/vm/"+s.Name)
	dc, err := f.finder(t).Datacenter(ctx, "DC0")
	if err != nil {
		t.Fatal(err)
	}
	manager, theirs := object.NewVirtualDiskManager(f.Admin.Client), "[LocalDS_0] theirs.vmdk"
	done(t)(manager.CreateVirtualDisk(ctx, theirs, dc, &types.FileBackedVirtualDiskSpec{
		CapacityKb: 8 << 10, VirtualDiskSpec: types.VirtualDiskSpec{DiskType: "thin", AdapterType: "lsiLogic"},
	}))
	scsi := &types.ParaVirtualSCSIController{}
	scsi.Key, scsi.SharedBus = -1000, types.VirtualSCSISharingNoSharing
	disk := &types.VirtualDisk{}
	disk.Key, disk.ControllerKey, disk.UnitNumber = -2000, -1000, types.NewInt32(0)
	disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: theirs}, DiskMode: "persistent",
	}
	if err := vm.AddDevice(ctx, scsi, disk); err != nil {
		t.Fatal(err)
	}
	b.at = cutAt("adopted")
	if _, err := b.Adopt(ctx, s.Key, s.Name, s.DataDisks); err == nil {
		t.Fatal("Adopt was not cut off")
	}
	b.at = cutAt("")
	got, err := b.Adopt(ctx, s.Key, s.Name, s.DataDisks)
	if err != nil || got.ID != first.ID || !got.Ready {
		t.Fatalf("Adopt: %+v, %v", got, err)
	}
	_, now, extra := f.look(t, "/DC0/vm/"+s.Name)
	if now.Config.Uuid != props.Config.Uuid || extra[keyAdopted] != "yes" || extra[keyDisks] != "kaas-data" ||
		!strings.Contains(now.Config.Annotation, "Adopted") {
		t.Errorf("the VM has the BIOS UUID %s, and had %s: %v", now.Config.Uuid, props.Config.Uuid, extra)
	}
	files := map[string]string{}
	for _, d := range disksOf(now) {
		files[fileOf(d)] = fmt.Sprintf("%d/%d", d.ControllerKey, *d.UnitNumber)
	}
	if len(files) != 2 || files[theirs] == "" || files["[LocalDS_0] kaas-data/"+dataName(s.Key, "kaas-data")] == "" {
		t.Errorf("its disks are %v", files)
	}
	if err := b.Delete(ctx, got.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := manager.QueryVirtualDiskUuid(ctx, theirs, dc); err != nil {
		t.Errorf("the disk of the VM's maker is gone: %v", err)
	}
	if left := f.remains(t, s.Key.Director); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Two VMs of the name are for a person to choose from, unless one of them is in the provider's folder.
func TestAdoptOneOfTwo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.open(t)
	defer b.Close()
	ids := map[string]hypervisor.ID{}
	root, err := f.finder(t).Folder(t.Context(), "/DC0/vm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		folder, err := root.CreateFolder(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = f.strangerIn(t, folder, "node")
	}
	_, err = b.Adopt(t.Context(), director.Stamp{Director: "d", Machine: "m"}, "node", nil)
	if director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
		t.Errorf("Adopt: %v", err)
	}
	_, err = b.Adopt(t.Context(), director.Stamp{}, "", nil)
	for _, w := range []string{"key", "name"} {
		if director.KindOf(err) != director.KindInvalid || !strings.Contains(fmt.Sprint(err), w) {
			t.Errorf("Adopt of nothing says nothing of %s: %v", w, err)
		}
	}
	f.cfg.Folder = "/DC0/vm/b"
	x := f.open(t)
	defer x.Close()
	got, err := x.Adopt(t.Context(), director.Stamp{Director: "d", Machine: "m"}, "node", nil)
	if err != nil || !got.Ready {
		t.Fatalf("Adopt: %+v, %v", got, err)
	}
	if _, err := x.Get(t.Context(), ids["b"]); director.KindOf(err) != director.KindNotFound {
		t.Errorf("the other one was taken: %v", err)
	}
	if other, err := x.Get(t.Context(), ids["a"]); err != nil || other.Stamp != (director.Stamp{}) {
		t.Errorf("the other one was touched: %+v, %v", other, err)
	}
	if err := x.Delete(t.Context(), got.ID, hypervisor.DeleteOptions{Owner: got.Stamp}); err != nil {
		t.Error(err)
	}
}

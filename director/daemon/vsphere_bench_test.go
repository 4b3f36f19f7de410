package daemon

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/plugins/vsphere/vspheretest"
)

// BenchmarkVMOverVSphere makes VMs through a whole director, one after another, and then as many by the hypervisor's
// calls alone: a clone with its settings, a data disk, its attachment, and the power. Both run on vCenter's simulator,
// where a call takes next to nothing: what is between them is the director's own.
func BenchmarkVMOverVSphere(b *testing.B) {
	const vms = 30
	s := vspheretest.Start(b)
	bundle, err := simulate.Bundle(b.Context(), b.TempDir(), "k8s-1.37", "v1.37.0")
	if err != nil {
		b.Fatal(err)
	}
	image := hypervisortest.NewImageOf(b, 2<<30, nil)
	by := signing(b, bundle, image.Path, "v1.37.0")
	by.signRelease(by.key)
	by.signImage(by.key)
	api := startReal(b, func(c *Config) {
		c.ClonesPerProvider, c.StepsAtOnce = 1, 4*vms // those that wait for guests take a place each
		c.TrustedKeys = []string{by.key.Public()}
	})
	if _, err := api.SetCredentials(b.Context(), "vcenter", vspheretest.Account, vspheretest.Password); err != nil {
		b.Fatal(err)
	}
	docs := onVSphere(b, s, image, bundle)
	docs = strings.Replace(
		docs, "    - name: worker\n      count: 1\n",
		fmt.Sprintf("    - name: worker\n      count: %d\n      dataDisk: 2GiB\n", vms), 1,
	)
	if _, err := api.Apply(b.Context(), []byte(docs), "demo", false); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := api.MakePlan(b.Context(), "demo", plan.Request{})
		if err == nil {
			_, err = api.StartPlan(b.Context(), p.ID, p.Hash)
		}
		if err != nil {
			b.Fatal(err)
		}
		p = until(b, api, p.ID, "has made its VMs", func(p wire.Plan) bool {
			for _, s := range p.Steps {
				if s.Kind == "vm.ensure" && s.Status != "done" {
					return false
				}
			}
			return true
		})
		var made int
		var first, last time.Time
		for _, s := range p.Steps {
			if s.Kind != "vm.ensure" || !strings.Contains(s.Node, "worker") {
				continue
			}
			made++
			if first.IsZero() || s.StartedAt.Before(first) {
				first = *s.StartedAt
			}
			if s.FinishedAt.After(last) {
				last = *s.FinishedAt
			}
		}
		if made != vms {
			b.Fatalf("%d VMs were made", made)
		}
		director := last.Sub(first) / vms
		began := time.Now()
		rawVMs(b, s, vms)
		raw := time.Since(began) / vms
		b.ReportMetric(float64(director.Microseconds())/1000, "ms-director")
		b.ReportMetric(float64(raw.Microseconds())/1000, "ms-raw")
		b.ReportMetric(float64((director-raw).Microseconds())/1000, "ms-overhead")
		if _, err := api.CancelPlan(b.Context(), p.ID, true); err != nil {
			b.Fatal(err)
		}
	}
}

// rawVMs makes VMs as the director's are, without one.
func rawVMs(b *testing.B, s *vspheretest.Server, count int) {
	b.Helper()
	ctx := b.Context()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	finder := find.NewFinder(s.Admin.Client)
	dc, err := finder.Datacenter(ctx, "DC0")
	must(err)
	finder.SetDatacenter(dc)
	folder, err := finder.Folder(ctx, "/DC0/vm/demo")
	must(err)
	pool, err := finder.ResourcePool(ctx, "DC0_C0/Resources")
	must(err)
	store, err := finder.Datastore(ctx, "LocalDS_0")
	must(err)
	data, err := finder.Datastore(ctx, "LocalDS_1")
	must(err)
	like, err := finder.VirtualMachine(ctx, "/DC0/vm/demo/demo-worker-1")
	must(err)
	var model mo.VirtualMachine
	must(like.Properties(ctx, like.Reference(), []string{"config.extraConfig"}, &model))
	templates, err := finder.VirtualMachineList(ctx, "/DC0/vm/*")
	must(err)
	var template mo.VirtualMachine
	for _, t := range templates {
		must(t.Properties(ctx, t.Reference(), []string{"snapshot", "config.extraConfig"}, &template))
	}
	poolRef, storeRef, dataRef := pool.Reference(), store.Reference(), data.Reference()
	for i := range count {
		task, err := object.NewVirtualMachine(
			s.Admin.Client, template.Reference(),
		).Clone(ctx, folder, fmt.Sprintf("raw-%d", i), types.VirtualMachineCloneSpec{
			Location: types.VirtualMachineRelocateSpec{
				Pool: &poolRef, Datastore: &storeRef,
				DiskMoveType: string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking),
			},
			Snapshot: template.Snapshot.CurrentSnapshot,
			Config: &types.VirtualMachineConfigSpec{
				NumCPUs: 2, MemoryMB: 4096, ExtraConfig: model.Config.ExtraConfig,
			},
		})
		must(err)
		made, err := task.WaitForResult(ctx)
		must(err)
		vm := object.NewVirtualMachine(s.Admin.Client, made.Result.(types.ManagedObjectReference))
		file := data.Path(fmt.Sprintf("kaas-data/raw-%d.vmdk", i))
		done(ctx, b)(object.NewVirtualDiskManager(
			s.Admin.Client,
		).CreateVirtualDisk(ctx, file, dc, &types.FileBackedVirtualDiskSpec{
			VirtualDiskSpec: types.VirtualDiskSpec{
				DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
			}, CapacityKb: 2 << 20,
		}))
		controller := &types.ParaVirtualSCSIController{}
		controller.Key, controller.BusNumber, controller.SharedBus = -1001, 1, types.VirtualSCSISharingNoSharing
		disk := &types.VirtualDisk{CapacityInKB: 2 << 20}
		disk.Key, disk.ControllerKey, disk.UnitNumber = -2001, -1001, types.NewInt32(0)
		disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: file, Datastore: &dataRef},
			DiskMode:                     string(types.VirtualDiskModeIndependent_persistent),
		}
		done(
			ctx, b,
		)(vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: controller},
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk},
		}}))
		done(ctx, b)(vm.PowerOn(ctx))
	}
}

// done waits for a task.
func done(ctx context.Context, b *testing.B) func(*object.Task, error) {
	return func(t *object.Task, err error) {
		b.Helper()
		if err == nil {
			err = t.Wait(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

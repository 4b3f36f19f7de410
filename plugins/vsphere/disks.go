package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// dataDir is the directory of data disks in a datastore; the names of its files carry the stamps.
const dataDir = "kaas-data"

var dataFile = regexp.MustCompile(`^([^.]+)\.([^.]+)\.([^.]+)\.vmdk$`)

func dataName(key director.Stamp, serial string) string {
	return key.Director + "." + key.Machine + "." + serial + ".vmdk"
}

// diskUUID is the disk's name in the world as vCenter writes it.
func diskUUID(key director.Stamp, serial string) string {
	w := strings.ToUpper(hypervisor.DiskWWN(key, serial))
	return w[:8] + "-" + w[8:12] + "-" + w[12:16] + "-" + w[16:20] + "-" + w[20:]
}

// spaced is the same as SetVirtualDiskUuid takes it: "60 00 C2 ..-.. ..".
func spaced(key director.Stamp, serial string) string {
	w := hypervisor.DiskWWN(key, serial)
	var b strings.Builder
	for i := 0; i < len(w); i += 2 {
		switch i {
		case 0:
		case 16:
			b.WriteByte('-')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(w[i : i+2])
	}
	return b.String()
}

// devices returns the machine's devices with the version of its configuration.
func devices(ctx context.Context, p *place, m *machine) (object.VirtualDeviceList, error) {
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: m.ref}},
		PropSet: []types.PropertySpec{
			{Type: "VirtualMachine", PathSet: []string{"config.hardware.device", "config.changeVersion"}},
		},
	})
	if err != nil {
		return nil, err
	}
	var vm mo.VirtualMachine
	if err := mo.LoadObjectContent(found, &vm); err != nil || vm.Config == nil {
		return nil, err
	}
	m.version = vm.Config.ChangeVersion
	return vm.Config.Hardware.Device, nil
}

// fileOf is the file of a disk, such as "[datastore] dir/name.vmdk".
func fileOf(d *types.VirtualDisk) string {
	if f, ok := d.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
		return f.GetVirtualDeviceFileBackingInfo().FileName
	}
	return ""
}

func uuidOf(d *types.VirtualDisk) string {
	switch f := d.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return f.Uuid
	case *types.VirtualDiskSeSparseBackingInfo:
		return f.Uuid
	}
	return ""
}

// isRoot tells whether the disk is the one that came with the image: the first of the first controller.
func isRoot(all object.VirtualDeviceList, d *types.VirtualDisk) bool {
	c, ok := all.FindByKey(d.ControllerKey).(types.BaseVirtualController)
	return ok && c.GetVirtualController().BusNumber == 0 && d.UnitNumber != nil && *d.UnitNumber == 0
}

// rootDisk returns the disk that came with the image.
func rootDisk(ctx context.Context, p *place, m *machine) (*types.VirtualDisk, error) {
	all, err := devices(ctx, p, m)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if disk, ok := d.(*types.VirtualDisk); ok && isRoot(all, disk) {
			if disk.CapacityInBytes == 0 {
				disk.CapacityInBytes = disk.CapacityInKB << 10
			}
			return disk, nil
		}
	}
	return nil, director.Errorf(
		director.KindInvalid, "vsphere.template",
		"the template %s has no disk at the first place of its first controller", m.name,
	).
		WithHint("import the image again")
}

// finish gives the cloned VM its data disks, its console and the mark that it is complete, in one call.
func (b *dataDisks) finish(ctx context.Context, op string, p *place, s hypervisor.Spec, m *machine) error {
	have, err := b.ensureDisks(ctx, op, p, s)
	if err != nil {
		return err
	}
	if err := b.at("disks"); err != nil {
		return err
	}
	all, err := devices(ctx, p, m)
	if err != nil {
		return err
	}
	change := attach(all, s, have)
	if port := consolePort(all, m); port != nil {
		change = append(change, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: port,
		})
	}
	extra := []types.BaseOptionValue{option(keyMade, "yes")}
	if len(s.DataDisks) > 0 {
		extra = append(extra, option(keyDisks, serials(s.DataDisks)))
	}
	if apartOf(s) && m.extra[keyApart] != "yes" { // its deletion was begun, and it is wanted again
		extra = append(extra, option(keyApart, "yes"))
	}
	err = b.reconfigure(ctx, op, p, m, types.VirtualMachineConfigSpec{
		Annotation: note("Made", s.Key), DeviceChange: change, ExtraConfig: extra,
	})
	if err == nil {
		return nil
	}
	// Another director may have done the same meanwhile.
	if now, again := readMachine(ctx, p.vim, m.ref); again == nil && now != nil && now.made() {
		return nil
	}
	return err
}

// note is what a person reads of the machine in vCenter.
func note(verb string, key director.Stamp) string {
	return fmt.Sprintf(
		"%s by director %s as machine %s. It goes with its cluster; do not change kaas.* in its advanced settings.",
		verb, key.Director, key.Machine,
	)
}

// serials are the disks as the machine's settings list them.
func serials(disks []hypervisor.Disk) string {
	var list []string
	for _, d := range disks {
		name := d.Serial
		if d.Of != (director.Stamp{}) {
			name += "@" + d.Of.Machine
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

// listed is a disk as the settings of the machine with the key list it.
func listed(key director.Stamp, name string) (owner director.Stamp, serial string) {
	serial, machine, taken := strings.Cut(name, "@")
	if taken {
		key.Machine = machine
	}
	return key, serial
}

// kept is a data disk that exists.
type kept struct {
	file  string // "[datastore] kaas-data/name.vmdk"
	size  int64
	store *object.Datastore
	stamp director.Stamp
	disk  string // serial
}

// ensureDisks makes the data disks that are missing, and returns all by serial.
func (b *dataDisks) ensureDisks(ctx context.Context, op string, p *place, s hypervisor.Spec) (map[string]kept, error) {
	if len(s.DataDisks) == 0 {
		return nil, nil
	}
	have, err := b.keptOf(ctx, op, p, s.Key, s.DataDisks)
	if err != nil {
		return nil, err
	}
	manager := object.NewVirtualDiskManager(p.vim)
	dir := false
	for _, d := range s.DataDisks {
		if _, found := have[d.Serial]; found {
			continue
		}
		if d.Of != (director.Stamp{}) { // never a new, empty one in its place
			return nil, noDisk(op, s, d)
		}
		if !dir {
			err := object.NewFileManager(p.vim).MakeDirectory(ctx, p.data.Path(dataDir), p.dc, false)
			if err != nil && !hasFault[types.FileAlreadyExists](err) {
				return nil, b.translate(ctx, op, "directory "+p.data.Path(dataDir), err)
			}
			dir = true
		}
		file := p.data.Path(path.Join(dataDir, dataName(s.Key, d.Serial)))
		_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			t, err := manager.CreateVirtualDisk(ctx, file, p.dc, &types.FileBackedVirtualDiskSpec{
				VirtualDiskSpec: types.VirtualDiskSpec{
					DiskType:    string(types.VirtualDiskTypeThin),
					AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
				},
				CapacityKb: roundUp(d.Size, 1<<10) >> 10,
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return t.Reference(), nil
		})
		if err != nil && !hasFault[types.FileAlreadyExists](err) {
			return nil, b.translate(ctx, op, "disk "+file, err)
		}
		if err := b.at("disk " + d.Serial); err != nil {
			return nil, err
		}
		have[d.Serial] = kept{file: file, size: roundUp(d.Size, 1<<10), store: p.data, stamp: s.Key, disk: d.Serial}
	}
	for _, d := range s.DataDisks { // also of one that was made before a crash
		if err := manager.SetVirtualDiskUuid(
			ctx, have[d.Serial].file, p.dc, spaced(d.Owner(s.Key), d.Serial),
		); err != nil && !hasFault[types.FileLocked](err) {
			return nil, b.translate(ctx, op, "disk "+have[d.Serial].file, err)
		}
	}
	return have, nil
}

// keptOf are those of the VM's data disks that exist, by serial: its own, and those that it takes over.
func (b *dataDisks) keptOf(
	ctx context.Context, op string, p *place, key director.Stamp, disks []hypervisor.Disk,
) (map[string]kept, error) {
	have := map[string]kept{}
	var owners []director.Stamp
	for _, d := range disks {
		if o := d.Owner(key); !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	for _, o := range owners {
		found, err := b.disks(ctx, op, p, o.Director+"."+o.Machine+".*.vmdk")
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			if slices.ContainsFunc(disks, func(d hypervisor.Disk) bool {
				return d.Owner(key) == k.stamp && d.Serial == k.disk
			}) {
				have[k.disk] = k
			}
		}
	}
	return have, nil
}

func noDisk(op string, s hypervisor.Spec, d hypervisor.Disk) error {
	return director.Errorf(director.KindNotFound, op, "the provider's datastores do not have the data disk %s of "+
		"machine %s, which %s is to take over",
		d.Serial, d.Of.Machine, s.Name).WithHint("see where it is: directorctl disks list")
}

// takeable tells what keeps a new VM from the disks that it is to take over.
func (b *dataDisks) takeable(ctx context.Context, op string, p *place, s hypervisor.Spec) error {
	if err := b.whole(ctx, op, p, s.Key, s.DataDisks); err != nil {
		return err
	}
	var taken []hypervisor.Disk
	for _, d := range s.DataDisks {
		if d.Of != (director.Stamp{}) {
			taken = append(taken, d)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	have, err := b.keptOf(ctx, op, p, s.Key, taken)
	if err != nil {
		return err
	}
	var list []kept
	for _, d := range taken {
		k, there := have[d.Serial]
		if !there {
			return noDisk(op, s, d)
		}
		list = append(list, k)
	}
	users, err := diskUsers(ctx, p, list)
	if err != nil {
		return err
	}
	for _, k := range list {
		if user := users[k.file]; user.vm != "" && user.vm != s.Name {
			return diskUsed(op, user.vm, k)
		}
	}
	return nil
}

// attach adds the data disks that the machine does not have yet, on controllers of their own as far as these have free
// places: fifteen on each, since a controller takes the eighth place itself.
func attach(all object.VirtualDeviceList, s hypervisor.Spec, have map[string]kept) []types.BaseVirtualDeviceConfigSpec {
	var change []types.BaseVirtualDeviceConfigSpec
	add := func(d types.BaseVirtualDevice) {
		change = append(change, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: d,
		})
	}
	type seat struct{ controller, unit int32 }
	controllers, taken := map[int32]int32{}, map[seat]bool{}
	for _, d := range all {
		if c, ok := d.(types.BaseVirtualSCSIController); ok {
			controllers[c.GetVirtualSCSIController().BusNumber] = c.GetVirtualSCSIController().Key
		}
		if v := d.GetVirtualDevice(); v.UnitNumber != nil {
			taken[seat{v.ControllerKey, *v.UnitNumber}] = true
		}
	}
	next := 0
	place := func() (key, unit int32) {
		for {
			bus, n := int32(1+next/15), int32(next%15)
			next++
			if n >= 7 {
				n++
			}
			key, found := controllers[bus]
			if !found {
				key = -1000 - bus
				controllers[bus] = key
				c := &types.ParaVirtualSCSIController{}
				c.Key, c.BusNumber, c.SharedBus = key, bus, types.VirtualSCSISharingNoSharing
				add(c)
			}
			if at := (seat{key, n}); !taken[at] {
				taken[at] = true
				return key, n
			}
		}
	}
	for i, d := range s.DataDisks {
		k := have[d.Serial]
		if hasDisk(all, d.Owner(s.Key), d.Serial, k.file) {
			continue
		}
		key, unit := place()
		disk := &types.VirtualDisk{CapacityInKB: k.size >> 10, CapacityInBytes: k.size}
		disk.Key, disk.ControllerKey, disk.UnitNumber = int32(-2000-i), key, types.NewInt32(unit)
		store := k.store.Reference()
		disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: k.file, Datastore: &store},
			// snapshots of the VM leave it alone
			DiskMode:        string(types.VirtualDiskModeIndependent_persistent),
			ThinProvisioned: types.NewBool(true), Uuid: diskUUID(d.Owner(s.Key), d.Serial),
		}
		add(disk)
	}
	return change
}

// hasDisk tells whether one of the devices is the machine's data disk with the serial.
func hasDisk(all object.VirtualDeviceList, key director.Stamp, serial, file string) bool {
	return slices.ContainsFunc(all, func(x types.BaseVirtualDevice) bool {
		disk, ok := x.(*types.VirtualDisk)
		return ok && (fileOf(disk) == file || strings.EqualFold(uuidOf(disk), diskUUID(key, serial)))
	})
}

// disks returns the data disks whose file names match the pattern, in all of the provider's datastores.
func (b *dataDisks) disks(ctx context.Context, op string, p *place, pattern string) ([]kept, error) {
	var all []kept
	for _, store := range p.dataStores() {
		files, err := b.search(ctx, op, p, store, pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			d, ok := f.(*types.VmDiskFileInfo)
			if !ok {
				continue
			}
			if m := dataFile.FindStringSubmatch(d.Path); m != nil {
				all = append(all, kept{
					file: store.Path(path.Join(dataDir, d.Path)), size: d.CapacityKb << 10, store: store,
					stamp: director.Stamp{Director: m[1], Machine: m[2]}, disk: m[3],
				})
			}
		}
	}
	slices.SortFunc(all, func(x, y kept) int { return cmp.Compare(x.file, y.file) })
	return all, nil
}

// search lists the disks of a datastore's directory of data disks.
func (b *dataDisks) search(
	ctx context.Context, op string, p *place, store *object.Datastore, pattern string,
) ([]types.BaseFileInfo, error) {
	return b.browse(ctx, op, p, store, types.HostDatastoreBrowserSearchSpec{
		MatchPattern: []string{pattern}, Details: &types.FileQueryFlags{FileType: true},
		Query: []types.BaseFileQuery{
			&types.VmDiskFileQuery{Details: &types.VmDiskFileQueryFlags{CapacityKb: true}},
		},
	})
}

// browse lists files of a datastore's directory of data disks. No such directory is an empty one.
func (b *dataDisks) browse(
	ctx context.Context, op string, p *place, store *object.Datastore, spec types.HostDatastoreBrowserSearchSpec,
) ([]types.BaseFileInfo, error) {
	browser, err := store.Browser(ctx)
	if err != nil {
		return nil, b.translate(ctx, op, "datastore "+store.Name(), b.forget(err))
	}
	result, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		res, err := methods.SearchDatastore_Task(ctx, p.vim, &types.SearchDatastore_Task{
			This: browser.Reference(), DatastorePath: store.Path(dataDir), SearchSpec: &spec,
		})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
	if hasFault[types.FileNotFound](err) {
		return nil, nil
	}
	if err != nil {
		return nil, b.translate(ctx, op, "datastore "+store.Name(), err)
	}
	found, _ := result.(types.HostDatastoreBrowserSearchResults)
	return found.File, nil
}

// deleteDisk removes a data disk. No error if it is gone.
func (b *dataDisks) deleteDisk(ctx context.Context, op string, p *place, file string) error {
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		t, err := object.NewVirtualDiskManager(p.vim).DeleteVirtualDisk(ctx, file, p.dc)
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return t.Reference(), nil
	})
	if hasFault[types.FileNotFound](err) {
		return nil
	}
	return b.translate(ctx, op, "disk "+file, err)
}

// storeSpace is what a datastore has.
type storeSpace struct {
	size, free int64
	usable     bool
}

// stores returns the space of the provider's datastores.
func (b *center) stores(
	ctx context.Context, op string, p *place,
) (map[types.ManagedObjectReference]storeSpace, error) {
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: "Datastore", PathSet: []string{"summary"}}}}
	for _, d := range append(p.dataStores(), p.images) {
		if d != nil &&
			!slices.ContainsFunc(spec.ObjectSet, func(o types.ObjectSpec) bool { return o.Obj == d.Reference() }) {
			spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: d.Reference()})
		}
	}
	if len(spec.ObjectSet) == 0 {
		return nil, nil
	}
	found, err := retrieve(ctx, p.vim, spec)
	if err != nil {
		return nil, b.translate(ctx, op, "the provider's datastores", b.forget(err))
	}
	all := map[types.ManagedObjectReference]storeSpace{}
	for _, o := range found {
		for _, v := range o.PropSet {
			if s, ok := v.Val.(types.DatastoreSummary); ok {
				all[o.Obj] = storeSpace{
					s.Capacity, s.FreeSpace,
					s.Accessible &&
						(s.MaintenanceMode == "" ||
							s.MaintenanceMode == string(types.DatastoreSummaryMaintenanceModeStateNormal)),
				}
			}
		}
	}
	return all, nil
}

package vsphere

import (
	"cmp"
	"context"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

const (
	mostDataDisks = 16
	mostName      = 80 // characters that vCenter takes
	// minFree is what a datastore must have free before anything is made in it. Disks are thin, so this keeps the last
	// bytes of a full datastore for the VMs that live there already.
	minFree = 1 << 30
)

// Ensure implements hypervisor.Backend. Spec.Host says where a new VM goes; without it DRS chooses, or where DRS is off
// the host with the most free memory is taken.
func (b *machines) Ensure(ctx context.Context, s hypervisor.Spec) (vm hypervisor.VM, err error) {
	const op = "vsphere.ensure"
	if err := s.Validate(op); err != nil {
		return hypervisor.VM{}, err
	}
	if len(s.DataDisks) > mostDataDisks || len(s.Name) > mostName {
		return hypervisor.VM{}, director.Errorf(director.KindInvalid, op, "%s has a name of %d characters and %d "+
			"data disks; vSphere takes %d and %d",
			s.Name, len(s.Name), len(s.DataDisks), mostName, mostDataDisks)
	}
	err = b.alone(ctx, op, machineKey(s.Key), func() error {
		vm, err = b.ensure(ctx, op, s)
		return b.translate(ctx, op, "VM "+s.Name, b.forget(err))
	})
	return vm, err
}

// ensure is Ensure under the machine's lock. Each line may be the last one, and the next call continues from there.
func (b *machines) ensure(ctx context.Context, op string, s hypervisor.Spec) (hypervisor.VM, error) {
	p, err := b.place(ctx, op)
	if err != nil {
		return hypervisor.VM{}, err
	}
	m, err := lookup(ctx, p, vmUUID(s.Key))
	if err != nil {
		return hypervisor.VM{}, err
	}
	if m == nil {
		if m, err = b.create(ctx, op, p, s); err != nil {
			return hypervisor.VM{}, err
		}
	}
	if m.stamp() != s.Key {
		return hypervisor.VM{}, director.Errorf(
			director.KindConflict, op, "the VM %s has our UUID %s and another stamp", m.name, m.uuid,
		).
			WithHint(
				"a person changed kaas.director or kaas.machine in its advanced settings; restore them, or remove " +
					"the VM by hand",
			)
	}
	if !m.made() {
		if err := b.describe(ctx, op, p, s, m); err != nil {
			return hypervisor.VM{}, err
		}
		if err := b.finish(ctx, op, p, s, m); err != nil {
			return hypervisor.VM{}, err
		}
		if err := b.at("made"); err != nil {
			return hypervisor.VM{}, err
		}
	}
	if apartOf(s) {
		if err := b.keepApart(ctx, op, p, s.Group); err != nil {
			return hypervisor.VM{}, err
		}
		if err := b.at("apart"); err != nil {
			return hypervisor.VM{}, err
		}
	}
	if !m.on {
		if err := b.power(ctx, op, p, m.ref, true); err != nil {
			return hypervisor.VM{}, err
		}
		b.conn.log.InfoContext(ctx, "vm started", "vm", s.Name)
		if err := b.at("started"); err != nil {
			return hypervisor.VM{}, err
		}
	}
	if m, err = readMachine(ctx, p.vim, m.ref); err != nil || m == nil {
		if err == nil {
			err = director.Errorf(director.KindUnavailable, op, "the VM %s vanished while it was made", s.Name)
		}
		return hypervisor.VM{}, err
	}
	return b.vm(ctx, p, m)
}

// create clones the VM, with everything that can be said in one call.
func (b *machines) create(ctx context.Context, op string, p *place, s hypervisor.Spec) (*machine, error) {
	if err := s.NeedsSeed(op); err != nil {
		return nil, err
	}
	if err := b.nameIsFree(ctx, op, p, s); err != nil {
		return nil, err
	}
	c, err := b.prepare(ctx, op, p, s)
	if err != nil {
		return nil, err
	}
	if c.pool, err = b.groupPool(ctx, op, p, s.Group); err != nil {
		return nil, err
	}
	spec, err := b.cloneSpec(op, s, c)
	if err != nil {
		return nil, err
	}
	folder, err := p.group(ctx, s.Group)
	if err != nil {
		return nil, err
	}
	done, err := b.cloneSlot(ctx, op, c)
	if err != nil {
		return nil, err
	}
	defer done()
	b.conn.log.InfoContext(ctx, "cloning", "vm", s.Name, "image", s.Image, "clone", c.kind, "reason", c.reason)
	return b.clone(ctx, op, p, s, &types.CloneVM_Task{
		This: c.source.ref, Folder: folder.Reference(), Name: s.Name, Spec: *spec,
	})
}

// clone runs the call and finds the VM that it made.
func (b *machines) clone(
	ctx context.Context, op string, p *place, s hypervisor.Spec, call *types.CloneVM_Task,
) (*machine, error) {
	res, err := methods.CloneVM_Task(ctx, p.vim, call)
	if err != nil {
		return nil, err
	}
	if _, err := wait(ctx, p.vim, res.Returnval); hasFault[types.DuplicateName](err) {
		// Another was faster since we looked: another director with the same machine, or a stranger.
		if m, found := lookup(ctx, p, vmUUID(s.Key)); m != nil || found != nil {
			return m, found
		}
		if taken := b.nameIsFree(ctx, op, p, s); taken != nil {
			return nil, taken
		}
		return nil, err
	} else if err != nil {
		return nil, err
	}
	if err := b.at("cloned"); err != nil {
		return nil, err
	}
	m, err := lookup(ctx, p, vmUUID(s.Key))
	if err == nil && m == nil {
		err = director.Errorf(
			director.KindUnavailable, op, "the VM %s was cloned and is not found by its UUID yet", s.Name,
		)
	}
	return m, err
}

// cloneSlot waits until the clone may begin. The caller ends it.
func (b *machines) cloneSlot(ctx context.Context, op string, c *cloning) (func(), error) {
	cost, host := int64(linkedCost), anyHost
	if c.kind == "full" {
		cost = fullCost
	}
	if c.host != nil {
		host = c.host.name
	}
	return b.slots.provision(ctx, op, host, cost)
}

// nameIsFree returns conflict if another VM has the name where the VM is to be, or next to the groups' folders.
func (b *machines) nameIsFree(ctx context.Context, op string, p *place, s hypervisor.Spec) error {
	group, err := p.knownGroup(ctx, s.Group)
	if err != nil {
		return err
	}
	for _, f := range []*object.Folder{p.folder, group} {
		if f == nil {
			continue
		}
		child, err := object.NewSearchIndex(p.vim).FindChild(ctx, f, s.Name)
		if err != nil {
			return err
		}
		if child == nil {
			continue
		}
		if child.Reference().Type != "VirtualMachine" {
			return director.Errorf(
				director.KindConflict, op, "%s is the name of a %s in the provider's folder", s.Name,
				child.Reference().Type,
			).
				WithHint("choose another name, or another folder for the provider")
		}
		m, err := readMachine(ctx, p.vim, child.Reference())
		if err != nil {
			return err
		}
		if m == nil || m.uuid == vmUUID(s.Key) {
			continue
		}
		if m.uuid == "" { // it has no configuration yet
			return director.Errorf(director.KindUnavailable, op, "vCenter is making a VM named %s", s.Name).
				WithHint("this may be an earlier attempt that is still running; the director checks it again")
		}
		if out, err := b.leftOut(ctx, p, m); err != nil {
			return err
		} else if out && m.stamp().Director == s.Key.Director {
			if err := b.giveNameUp(ctx, op, p, m); err != nil {
				return err
			}
			continue
		}
		whose := "is not the director's"
		if owner := m.stamp(); owner.Director == s.Key.Director {
			whose = "belongs to machine " + owner.Machine
		} else if owner.Director != "" {
			whose = "belongs to the director " + owner.Director
		}
		return director.Errorf(director.KindConflict, op, "a VM named %q exists in vCenter and %s", s.Name, whose).
			WithHint("choose another name, or remove that VM by hand; it was left as it is")
	}
	return nil
}

// cloning is what was decided for a new VM.
type cloning struct {
	source *machine // the template
	disk   *types.VirtualDisk
	kind   string // linked or full
	reason string
	host   *esx // nil if DRS chooses
	store  *object.Datastore
	nics   []*portGroup
	pool   types.ManagedObjectReference
}

// prepare looks for what would make the VM fail later, and decides where it goes and how it is cloned. It makes nothing
// but a copy of the template, if a linked clone needs one of that size or in that datastore.
func (b *machines) prepare(ctx context.Context, op string, p *place, s hypervisor.Spec) (*cloning, error) {
	base, err := b.template(ctx, op, p, s.Image)
	if err != nil {
		return nil, err
	}
	size, err := base.diskSize()
	if err != nil {
		return nil, err
	}
	if s.RootDisk < size {
		return nil, director.Errorf(
			director.KindInvalid, op, "the root disk of %s has %d MiB, and the image %q needs %d MiB", s.Name,
			s.RootDisk>>20, s.Image, size>>20,
		).
			WithHint("choose a larger root disk")
	}
	if err := b.takeable(ctx, op, p, s); err != nil {
		return nil, err
	}
	c := &cloning{source: base}
	if c.store, err = b.room(ctx, op, p, s); err != nil {
		return nil, err
	}
	needs := map[types.ManagedObjectReference]string{c.store.Reference(): c.store.Name()}
	if len(s.DataDisks) > 0 {
		needs[p.data.Reference()] = p.data.Name()
	}
	for _, n := range s.NICs {
		g, err := b.network(ctx, op, p, cmp.Or(n.PortGroup, n.Network))
		if err != nil {
			return nil, err
		}
		c.nics, needs[g.ref] = append(c.nics, g), g.name
	}
	if c.host, err = b.choose(ctx, op, p, s, needs); err != nil {
		return nil, err
	}
	c.kind = "linked"
	switch {
	case b.cfg.Clone == "full":
		c.kind, c.reason = "full", "the provider asks for full clones"
	case base.snapshot == nil:
		c.kind, c.reason = "full", "the template has no snapshot to link to"
	case s.RootDisk == size && c.store.Reference() == p.images.Reference():
		c.reason = "the template has the disk's size and is in the VM's datastore"
	default:
		if c.source, err = b.replica(ctx, op, p, base, s.Image, c.store, s.RootDisk); err != nil {
			return nil, err
		}
		c.reason = fmt.Sprintf(
			"a copy of the template with %d MiB in datastore %s serves every VM of that size", s.RootDisk>>20,
			c.store.Name(),
		)
	}
	c.disk, err = rootDisk(ctx, p, c.source)
	return c, err
}

// room returns the datastore for a new VM: the one with the most free space. Errors: exhausted if a disk cannot be
// held.
func (b *machines) room(ctx context.Context, op string, p *place, s hypervisor.Spec) (*object.Datastore, error) {
	full := func(name string, free int64) error {
		return director.Errorf(
			director.KindExhausted, op, "the datastore %s has %d MiB free, too little for the disks of %s", name,
			free>>20, s.Name,
		).
			WithHint("free space in it, choose smaller disks, or name another datastore in spec.vsphere.datastores")
	}
	space, err := b.stores(ctx, op, p)
	if err != nil {
		return nil, err
	}
	var best *object.Datastore
	for _, d := range p.stores {
		if i := space[d.Reference()]; i.usable && (best == nil || i.free > space[best.Reference()].free) {
			best = d
		}
	}
	if best == nil {
		return nil, director.Errorf(director.KindUnavailable, op, "none of the provider's datastores can be used").
			WithHint("look at their state in vCenter: they are in maintenance or not accessible")
	}
	if i := space[best.Reference()]; s.RootDisk > i.size || i.free < minFree {
		return nil, full(best.Name(), i.free)
	}
	var data int64
	for _, d := range s.DataDisks {
		if d.Of == (director.Stamp{}) {
			data = max(data, d.Size)
		}
	}
	if i := space[p.data.Reference()]; len(s.DataDisks) > 0 && (data > i.size || i.free < minFree) {
		return nil, full(p.data.Name(), i.free)
	}
	return best, nil
}

// cloneSpec is the whole VM but its data disks.
func (b *machines) cloneSpec(op string, s hypervisor.Spec, c *cloning) (*types.VirtualMachineCloneSpec, error) {
	extra, err := guestinfo(op, s.Seed)
	if err != nil {
		return nil, err
	}
	extra = append(extra,
		option(keyDirector, s.Key.Director), option(keyMachine, s.Key.Machine), option(keyImage, s.Image),
		option(keyClone, c.kind), option(keyReason, c.reason),
		option("disk.EnableUUID", "TRUE")) // the guest finds its disks by WWN
	if s.Group != "" {
		extra = append(extra, option(keyGroup, s.Group))
	}
	if apartOf(s) {
		extra = append(extra, option(keyApart, "yes"))
	}
	if len(s.NICs) > 0 {
		extra = append(extra, option(keyNICs, nicLines(s, c.nics)))
	}
	store := c.store.Reference()
	spec := &types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{
			Pool: &c.pool, Datastore: &store,
			DiskMoveType: string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndDisallowSharing),
		},
		Config: &types.VirtualMachineConfigSpec{
			InstanceUuid: vmUUID(s.Key), NumCPUs: int32(s.CPUs), MemoryMB: roundUp(s.Memory, 4<<20) >> 20,
		},
	}
	if c.host != nil {
		spec.Location.Host = &c.host.ref
	}
	if c.kind == "linked" {
		spec.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
		spec.Snapshot = c.source.snapshot
	} else if size := roundUp(s.RootDisk, 1<<10); size != c.disk.CapacityInBytes {
		grown := *c.disk
		grown.CapacityInBytes, grown.CapacityInKB = size, size>>10
		spec.Config.DeviceChange = append(spec.Config.DeviceChange, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &grown,
		})
	}
	for i, n := range s.NICs {
		card := &types.VirtualVmxnet3{}
		card.Key = int32(-100 - i)
		card.Backing = c.nics[i].backing
		card.AddressType, card.MacAddress = string(types.VirtualEthernetCardMacTypeManual), n.MAC
		card.Connectable = &types.VirtualDeviceConnectInfo{
			StartConnected: true, Connected: true, AllowGuestControl: true,
		}
		spec.Config.DeviceChange = append(spec.Config.DeviceChange, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: card,
		})
		// The director's addresses are outside of VMware's range, which hosts look at otherwise.
		extra = append(extra, option(fmt.Sprintf("ethernet%d.checkMACAddress", i), "FALSE"))
	}
	spec.Config.ExtraConfig = extra
	return spec, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

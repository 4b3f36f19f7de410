package vsphere

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/imagefile"
)

const (
	hardware     = "vmx-15" // ESXi 6.7 U2 and later
	guestID      = "otherLinux64Guest"
	snapshotName = "kaas" // that linked clones are linked to
)

// imageUUID is the instance UUID of an image's template, or of a copy of it; images of one folder are one set.
func imageUUID(p *place, name, variant string) string {
	return uuid.NewSHA1(space, []byte("image/"+p.templates.Reference().Value+"/"+name+"/"+variant)).String()
}

// complete tells whether a template is whole: it is made one last of all.
func (m *machine) complete() bool { return m.template }

// diskSize is the size of the template's disk.
func (m *machine) diskSize() (int64, error) {
	n, err := strconv.ParseInt(m.extra[keySize], 10, 64)
	if err != nil {
		return 0, director.Errorf(
			director.KindInvalid, "vsphere.template", "the template %s does not say how large its disk is", m.name,
		).
			WithHint(
				"a person changed kaas.size in its advanced settings; delete the template, and import the image again",
			)
	}
	return n, nil
}

// template returns the whole template of the image. Errors: not_found.
func (b *images) template(ctx context.Context, op string, p *place, name string) (*machine, error) {
	m, err := lookup(ctx, p, imageUUID(p, name, ""))
	if err != nil {
		return nil, b.translate(ctx, op, "image "+name, b.forget(err))
	}
	if m == nil || !m.complete() || m.extra[keyTemplate] != name {
		return nil, director.Errorf(
			director.KindNotFound, op, "vCenter has no complete image %q in the folder of templates", name,
		).
			WithHint("bring the image first")
	}
	return m, nil
}

// EnsureImage implements hypervisor.Imaging. The file's checksum is compared before anything is sent. The file is
// converted where the director runs, since vCenter wants to know how much will come.
func (b *images) EnsureImage(ctx context.Context, s hypervisor.ImageSpec, progress func(done, total int64)) error {
	const op = "vsphere.ensure_image"
	if err := s.Validate(op); err != nil {
		return err
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	return b.alone(ctx, op, imageKey(s.Name), func() error {
		return b.translate(ctx, op, "image "+s.Name, b.forget(b.ensureImage(ctx, op, s, progress)))
	})
}

func (b *images) ensureImage(
	ctx context.Context, op string, s hypervisor.ImageSpec, progress func(done, total int64),
) error {
	p, err := b.place(ctx, op)
	if err != nil {
		return err
	}
	old, err := lookup(ctx, p, imageUUID(p, s.Name, ""))
	if err != nil {
		return err
	}
	if old != nil && old.complete() {
		if sum := old.extra[keySum]; sum != s.SHA256 {
			return director.Errorf(
				director.KindConflict, op, "vCenter has an image %q with another checksum (%.16s...)", s.Name, sum,
			).
				WithHint("give the new image another name; images are never replaced under their VMs")
		}
		return nil
	}
	file, err := imagefile.Open(op, s)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Check(ctx); err != nil {
		return err
	}
	if err := b.imageRoom(ctx, op, p, s, file); err != nil {
		return err
	}
	if err := b.templateNameIsFree(ctx, op, p, templateName(s.Name, "")); err != nil {
		return err
	}
	vmdk, length, err := b.convert(ctx, op, s, file, func(done int64) {
		progress(share(done, file.Virtual, file.Size), 2*file.Size)
	})
	if err != nil {
		return err
	}
	defer vmdk.Close()
	if !file.Unchanged() {
		return director.Errorf(director.KindInvalid, op, "%s changed while it was read", s.Path)
	}
	if old != nil { // what an earlier try left
		if err := b.destroy(ctx, op, p, old.ref); err != nil {
			return err
		}
	}
	sent := func(done int64) { progress(file.Size+share(done, length, file.Size), 2*file.Size) }
	if err := b.upload(ctx, op, p, s, file.Virtual, vmdk, length, sent); err != nil {
		return err
	}
	progress(2*file.Size, 2*file.Size)
	return nil
}

// share is done out of all, as a part of size.
func share(done, all, size int64) int64 { return int64(float64(done) / float64(all) * float64(size)) }

func (b *images) imageRoom(
	ctx context.Context, op string, p *place, s hypervisor.ImageSpec, file *imagefile.File,
) error {
	space, err := b.stores(ctx, op, p)
	if err != nil {
		return err
	}
	if i := space[p.images.Reference()]; i.free < file.Size+minFree || file.Virtual > i.size {
		return director.Errorf(
			director.KindExhausted, op, "the datastore %s has %d MiB free, too little for image %s", p.images.Name(),
			i.free>>20, s.Name,
		).
			WithHint("free space in it, or name another one in spec.vsphere.templateDatastore")
	}
	return nil
}

// templateName is what the template is called. It is found by its UUID; the name only has to be free.
func templateName(image, variant string) string {
	name := image
	if variant != "" {
		sum := sha256.Sum256([]byte(variant))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	if len(name) > mostName {
		sum := sha256.Sum256([]byte(name))
		name = name[:mostName-9] + "-" + hex.EncodeToString(sum[:4])
	}
	return name
}

func (b *images) templateNameIsFree(ctx context.Context, op string, p *place, name string) error {
	child, err := object.NewSearchIndex(p.vim).FindChild(ctx, p.templates, name)
	if err != nil || child == nil {
		return err
	}
	if child.Reference().Type == "VirtualMachine" {
		m, err := readMachine(ctx, p.vim, child.Reference())
		if err != nil || m == nil || m.extra[keyTemplate] != "" {
			return err
		}
		if m.uuid == "" { // it has no configuration yet
			return director.Errorf(director.KindUnavailable, op, "vCenter is making the template %s", name).
				WithHint("this may be an earlier attempt that is still running; the director checks it again")
		}
	}
	return director.Errorf(
		director.KindConflict, op,
		"the name %s is taken in the folder of templates by something that the director did not make", name,
	).
		WithHint("give the image another name, or the provider a folder of its own in spec.vsphere.templateFolder")
}

// convert writes the disk as VMDK to a nameless file.
func (b *images) convert(
	ctx context.Context, op string, s hypervisor.ImageSpec, file *imagefile.File, looked func(int64),
) (out *os.File, length int64, err error) {
	disk, err := imagefile.OpenDisk(file)
	if err != nil {
		return nil, 0, director.Errorf(director.KindInvalid, op, "%s cannot be converted: %w", s.Path, err)
	}
	if out, err = os.CreateTemp(b.cfg.WorkDir, "kaas-image-*.vmdk"); err != nil {
		return nil, 0, director.Errorf(
			director.KindExhausted, op, "no file can be made for the converted image: %w", err,
		)
	}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	if err := os.Remove(out.Name()); err != nil { // it lives as long as it is open, also if the director dies
		return nil, 0, director.Errorf(director.KindInternal, op, "the converted image cannot be kept: %w", err)
	}
	if err := writeVMDK(ctx, out, disk, looked); err != nil {
		if interrupted(ctx, op) != nil {
			return nil, 0, interrupted(ctx, op)
		}
		return nil, 0, director.Errorf(director.KindInvalid, op, "%s cannot be converted: %w", s.Path, err).
			WithHint("the file is damaged, or the director's disk is full")
	}
	if length, err = out.Seek(0, io.SeekCurrent); err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, director.Errorf(director.KindInternal, op, "the converted image cannot be read: %w", err)
	}
	return out, length, nil
}

// templateSpec is a VM that holds the image's disk and the image's stamp.
func (b *images) templateSpec(p *place, s hypervisor.ImageSpec, virtual int64) types.VirtualMachineConfigSpec {
	controller := &types.ParaVirtualSCSIController{}
	controller.Key, controller.SharedBus = -1000, types.VirtualSCSISharingNoSharing
	store := p.images.Reference()
	disk := &types.VirtualDisk{CapacityInKB: roundUp(virtual, 1<<10) >> 10, CapacityInBytes: roundUp(virtual, 1<<10)}
	disk.Key, disk.ControllerKey, disk.UnitNumber = -2000, -1000, types.NewInt32(0)
	disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{Datastore: &store},
		DiskMode:                     string(types.VirtualDiskModePersistent), ThinProvisioned: types.NewBool(true),
	}
	return types.VirtualMachineConfigSpec{
		Name: templateName(s.Name, ""), GuestId: guestID, Version: hardware, Firmware: b.cfg.Firmware, NumCPUs: 2,
		MemoryMB:     2048,
		InstanceUuid: imageUUID(p, s.Name, ""), Annotation: "Node image " + s.Name + " of a director.",
		Files: &types.VirtualMachineFileInfo{VmPathName: "[" + p.images.Name() + "]"},
		ExtraConfig: []types.BaseOptionValue{
			option(keyTemplate, s.Name), option(keySum, s.SHA256),
			option(keySize, strconv.FormatInt(roundUp(virtual, 1<<10), 10)),
		},
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: controller},
			&types.VirtualDeviceConfigSpec{
				Operation:     types.VirtualDeviceConfigSpecOperationAdd,
				FileOperation: types.VirtualDeviceConfigSpecFileOperationCreate, Device: disk,
			},
		},
	}
}

// seal makes the VM a template, with a snapshot that linked clones are linked to.
func (b *images) seal(ctx context.Context, op string, p *place, m *machine) error {
	if m.snapshot == nil {
		_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			res, err := methods.CreateSnapshot_Task(ctx, p.vim, &types.CreateSnapshot_Task{
				This: m.ref, Name: snapshotName, Description: "linked clones are linked to it",
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
		if err != nil {
			return err
		}
	}
	if err := b.at("sealing"); err != nil {
		return err
	}
	_, err := methods.MarkAsTemplate(ctx, p.vim, &types.MarkAsTemplate{This: m.ref})
	return err
}

// replica returns a copy of the template in the datastore with a disk of that size, and makes it if need be: a linked
// clone can neither grow its disk nor lie far from what it is linked to, and one full copy serves all that follow.
func (b *images) replica(
	ctx context.Context, op string, p *place, base *machine, image string, store *object.Datastore, size int64,
) (m *machine, err error) {
	size = roundUp(size, 1<<10)
	variant := store.Reference().Value + "/" + strconv.FormatInt(size, 10)
	err = b.alone(ctx, op, imageKey(image+" "+variant), func() error {
		if m, err = lookup(ctx, p, imageUUID(p, image, variant)); err != nil {
			return err
		}
		if m != nil && m.complete() {
			return nil
		}
		if m == nil {
			if m, err = b.copyTemplate(ctx, op, p, base, image, variant, store, size); err != nil {
				return err
			}
		}
		// It was copied by one call, so it is whole, however it was made: an earlier try that was cut off here, or
		// another director at this moment.
		if err = b.seal(ctx, op, p, m); err != nil {
			now, again := readMachine(ctx, p.vim, m.ref)
			if again != nil || now == nil || !now.complete() {
				return err
			}
		}
		if m, err = lookup(ctx, p, imageUUID(p, image, variant)); err == nil && (m == nil || !m.complete()) {
			err = director.Errorf(director.KindUnavailable, op, "the copy of image %s is not there yet", image)
		}
		return err
	})
	return m, err
}

func (b *images) copyTemplate(
	ctx context.Context, op string, p *place, base *machine, image, variant string, store *object.Datastore, size int64,
) (*machine, error) {
	spec, err := copySpec(ctx, p, base, image, variant, store, size)
	if err != nil {
		return nil, err
	}
	done, err := b.slots.provision(ctx, op, anyHost, fullCost)
	if err != nil {
		return nil, err
	}
	defer done()
	b.conn.log.InfoContext(
		ctx, "copying a template for linked clones", "image", image, "datastore", store.Name(), "size", size,
	)
	res, err := methods.CloneVM_Task(ctx, p.vim, &types.CloneVM_Task{
		This: base.ref, Folder: p.templates.Reference(), Name: templateName(image, variant), Spec: *spec,
	})
	if err != nil {
		return nil, err
	}
	_, err = wait(ctx, p.vim, res.Returnval)
	taken := hasFault[types.DuplicateName](err)
	if err != nil && !taken {
		return nil, err
	}
	m, err := lookup(ctx, p, imageUUID(p, image, variant))
	if err != nil || m != nil {
		return m, err
	}
	if taken { // by a copy that has no settings yet, or by a stranger
		return nil, cmp.Or(b.templateNameIsFree(ctx, op, p, templateName(image, variant)),
			error(
				director.Errorf(
					director.KindUnavailable, op, "another director copies the template of image %s", image,
				).
					WithHint("the director checks it again"),
			))
	}
	return nil, director.Errorf(director.KindUnavailable, op, "the copy of image %s is not found by its UUID", image)
}

// copySpec describes a copy of the image in the datastore, with a root disk of size bytes.
func copySpec(
	ctx context.Context, p *place, base *machine, image, variant string, store *object.Datastore, size int64,
) (*types.VirtualMachineCloneSpec, error) {
	disk, err := rootDisk(ctx, p, base)
	if err != nil {
		return nil, err
	}
	grown := *disk
	grown.CapacityInBytes, grown.CapacityInKB = size, size>>10
	pool, ds := p.pool.Reference(), store.Reference()
	spec := &types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{
			Pool: &pool, Datastore: &ds,
			DiskMoveType: string(types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndDisallowSharing),
		},
		Config: &types.VirtualMachineConfigSpec{
			InstanceUuid: imageUUID(p, image, variant),
			Annotation:   "Copy of node image " + image + " for linked clones.",
			ExtraConfig: []types.BaseOptionValue{
				option(keyTemplate, image), option(keySum, base.extra[keySum]),
				option(keySize, strconv.FormatInt(size, 10)),
			},
		},
	}
	if size != disk.CapacityInBytes {
		spec.Config.DeviceChange = []types.BaseVirtualDeviceConfigSpec{
			&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: &grown},
		}
	}
	return spec, nil
}

// DeleteImage implements hypervisor.Imaging. The copies of the template go with it.
func (b *images) DeleteImage(ctx context.Context, name string) error {
	const op = "vsphere.delete_image"
	return b.alone(ctx, op, imageKey(name), func() error {
		p, err := b.place(ctx, op)
		if err != nil {
			return err
		}
		return b.translate(ctx, op, "image "+name, b.forget(b.deleteImage(ctx, op, p, name)))
	})
}

func (b *images) deleteImage(ctx context.Context, op string, p *place, name string) error {
	templates, err := below(ctx, p.vim, p.templates.Reference())
	if err != nil {
		return err
	}
	templates = slices.DeleteFunc(templates, func(m *machine) bool { return m.extra[keyTemplate] != name })
	if len(templates) == 0 {
		return nil
	}
	all, err := below(ctx, p.vim, p.root)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.extra[keyImage] == name && m.extra[keyClone] == "linked" {
			return director.Errorf(director.KindConflict, op, "the VM %s is linked to the image %q", m.name, name).
				WithHint("delete the VMs that were made from it first")
		}
	}
	for _, m := range templates {
		if err := b.destroy(ctx, op, p, m.ref); err != nil {
			return err
		}
	}
	return nil
}

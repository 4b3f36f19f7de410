package libvirt

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/imagefile"
)

// image is a complete image in a pool.
type image struct {
	path string
	sum  string // the first 16 digits
	size uint64 // virtual
	// bytes is what the file takes; known where disks are copies of it.
	bytes uint64
}

// image returns the complete image with the name, or nil. A volume without its mark is an upload that was cut off.
func (p *pool) image(name string) (*image, error) {
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	disks, marks := imageVolumes(names, name)
	for _, mark := range marks {
		disk := strings.TrimSuffix(mark, "complete") + "qcow2"
		if !slices.Contains(disks, disk) {
			continue
		}
		m := imageVolume.FindStringSubmatch(disk)
		size, err := strconv.ParseUint(m[3], 10, 64)
		if err != nil {
			return nil, err
		}
		found := &image{path: p.path(disk), sum: m[2], size: size}
		if p.copies() {
			info, there, err := read(p, disk, (*virt.StorageVol).GetInfo)
			if err != nil || !there {
				return nil, err
			}
			found.bytes = info.Allocation
		}
		return found, nil
	}
	return nil, nil
}

// imageVolumes returns which of the volumes belong to the image, whole or cut off: its disks, and the marks that say
// which are complete.
func imageVolumes(names []string, image string) (disks, marks []string) {
	for _, n := range names {
		m := imageVolume.FindStringSubmatch(n)
		switch {
		case m == nil || m[1] != image:
		case m[4] == "complete":
			marks = append(marks, n)
		default:
			disks = append(disks, n)
		}
	}
	return disks, marks
}

// EnsureImage implements hypervisor.Imaging. The file's checksum is compared while it is sent, so that gigabytes are
// read once. A small volume next to the image says that it is complete: it is made after the checksum was right, and
// without it the volume is no image.
func (b *Backend) EnsureImage(ctx context.Context, s hypervisor.ImageSpec, progress func(done, total int64)) error {
	const op = "libvirt.ensure_image"
	if err := s.Validate(op); err != nil {
		return err
	}
	return b.alone(ctx, op, imageKey(
		s.Name,
	), func(work context.Context) error { return b.ensureImage(ctx, work, op, s, progress) })
}

func (b *Backend) ensureImage(
	ctx, work context.Context, op string, s hypervisor.ImageSpec, progress func(done, total int64),
) error {
	var missing []*host
	for _, h := range b.hosts {
		done, err := inPool(work, h, op, func(p *pool) (bool, error) { return p.hasImage(s) })
		if err != nil {
			return err
		}
		if !done {
			missing = append(missing, h)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	file, err := imagefile.Open(op, s)
	if err != nil {
		return err
	}
	defer file.Close()
	size := file.Size
	for i, h := range missing {
		sent := func(done int64) {
			if progress != nil && ctx.Err() == nil {
				progress(int64(i)*size+done, int64(len(missing))*size)
			}
		}
		_, err := inPool(work, h, op, func(p *pool) (none, error) {
			if p.shared() { // another host of this provider may have it in the meantime
				if there, err := p.hasImage(s); there || err != nil {
					sent(size)
					return none{}, err
				}
			}
			return none{}, b.sendImage(ctx, p, s, file, sent)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hasImage tells whether the pool has the complete image. Errors: conflict if it has another one of the name.
func (p *pool) hasImage(s hypervisor.ImageSpec) (bool, error) {
	found, err := p.image(s.Name)
	if err != nil || found == nil {
		return false, err
	}
	if found.sum != s.SHA256[:16] {
		return false, director.Errorf(
			director.KindConflict, p.op, "host %s has an image %q with another checksum (%s...)", p.h.Name, s.Name,
			found.sum,
		).
			WithHint("give the new image another name; images are never replaced under their VMs")
	}
	return true, nil
}

// sendImage uploads the file and marks it as complete.
func (b *Backend) sendImage(
	ctx context.Context, p *pool, s hypervisor.ImageSpec, file *imagefile.File, sent func(int64),
) error {
	// Whatever earlier tries left of this name is taken away.
	names, err := p.names()
	if err != nil {
		return err
	}
	disks, marks := imageVolumes(names, s.Name)
	if err := p.remove(slices.Concat(marks, disks)...); err != nil {
		return err
	}
	size := file.Size
	if err := p.room(size, size); err != nil {
		return err
	}
	base := fmt.Sprintf("kaas-image.%s.%s.%d.", s.Name, s.SHA256[:16], file.Virtual)
	v, err := p.ensure(volume{name: base + "qcow2", size: uint64(size), format: "raw"}, true)
	if err != nil {
		return err
	}
	defer func() { _ = v.Free() }()
	content, err := file.Content(ctx)
	if err != nil {
		return err
	}
	err = b.upload(ctx, p.conn, v, source{r: content, size: size, progress: sent})
	if err == nil {
		err = file.Matches()
	}
	if err != nil {
		if err := p.remove(base + "qcow2"); err != nil {
			p.h.log.WarnContext(ctx, "part of an image is left in the pool until the next try", "err", err)
		}
		return err
	}
	done, err := p.ensure(volume{name: base + "complete", size: 512, format: "raw"}, false)
	if err != nil {
		return err
	}
	sent(size)
	return done.Free()
}

// DeleteImage implements hypervisor.Imaging.
func (b *Backend) DeleteImage(ctx context.Context, name string) error {
	const op = "libvirt.delete_image"
	return b.alone(ctx, op, imageKey(name), func(work context.Context) error {
		return b.onEachPool(work, op, func(p *pool) error { return p.deleteImage(name) })
	})
}

func (p *pool) deleteImage(name string) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	disks, marks := imageVolumes(names, name)
	doomed := slices.Concat(marks, disks)
	if len(doomed) == 0 {
		return nil
	}
	paths := map[string]bool{}
	for _, n := range doomed {
		paths[p.path(n)] = true
	}
	for _, n := range names { // copies elsewhere need it no more
		if !strings.HasSuffix(n, ".qcow2") || paths[p.path(n)] {
			continue
		}
		def, found, err := read(p, n, definition)
		if err != nil {
			return err
		}
		if found && paths[backing(def)] {
			return director.Errorf(
				director.KindConflict, p.op, "the disk %s on host %s is linked to the image %q", n, p.h.Name, name,
			).
				WithHint("delete the VMs that were made from it first")
		}
	}
	return p.remove(doomed...)
}

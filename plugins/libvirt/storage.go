package libvirt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Names of volumes. Neither part of a stamp has a dot (hypervisor.Spec.Validate), and names of images are cut at both ends.
func rootName(s director.Stamp) string    { return volumePrefix(s) + "root.qcow2" }
func seedName(s director.Stamp) string    { return volumePrefix(s) + "seed.iso" }
func consoleName(s director.Stamp) string { return volumePrefix(s) + "console.log" }
func dataName(s director.Stamp, serial string) string {
	return volumePrefix(s) + "data." + serial + ".qcow2"
}
func volumePrefix(s director.Stamp) string { return "kaas." + s.Director + "." + s.Machine + "." }

var (
	dataVolume = regexp.MustCompile(`^kaas\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.data\.([A-Za-z0-9_-]+)\.qcow2$`)
	// The number is the virtual size of the disk: libvirt learns it only when the pool is read again.
	imageVolume = regexp.MustCompile(`^kaas-image\.(.+)\.([0-9a-f]{16})\.([0-9]+)\.(qcow2|complete)$`)
)

// pool is the storage pool of a host, with the names of its volumes as they were when it was opened.
type pool struct {
	*virt.StoragePool
	h    *host
	op   string
	conn *virt.Connect
	dir  string
	free uint64
	all  uint64
}

// pool opens the host's storage pool. Errors: not_found or invalid with what to do.
func (h *host) pool(op string, c *virt.Connect) (*pool, error) {
	p, err := c.LookupStoragePoolByName(h.Pool)
	if is(err, virt.ERR_NO_STORAGE_POOL) {
		return nil, director.Errorf(director.KindNotFound, op, "host %s has no storage pool %q", h.Name, h.Pool).
			WithHint("make it: virsh -c %s pool-define-as %s dir --target /var/lib/libvirt/%s, then pool-build, pool-start and pool-autostart %s",
				h.URI, h.Pool, h.Pool, h.Pool)
	}
	if err != nil {
		return nil, err
	}
	opened := &pool{StoragePool: p, h: h, op: op, conn: c}
	ok := false
	defer func() {
		if !ok {
			opened.close()
		}
	}()
	if active, err := p.IsActive(); err != nil {
		return nil, err
	} else if !active {
		return nil, director.Errorf(director.KindUnavailable, op, "the storage pool %q of host %s is not started", h.Pool, h.Name).
			WithHint("start it: virsh -c %s pool-start %s", h.URI, h.Pool)
	}
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	var def virtxml.StoragePool
	if err := def.Unmarshal(text); err != nil {
		return nil, director.Errorf(director.KindInternal, op, "cannot read the storage pool %q of host %s: %w", h.Pool, h.Name, err)
	}
	if !slices.Contains([]string{"dir", "fs", "netfs"}, def.Type) || def.Target == nil || def.Target.Path == "" {
		return nil, director.Errorf(director.KindInvalid, op, "the storage pool %q of host %s is of type %s", h.Pool, h.Name, def.Type).
			WithHint("use a pool of type dir, fs or netfs: disks are files that are linked to their image")
	}
	opened.dir = def.Target.Path
	info, err := p.GetInfo()
	if err != nil {
		return nil, err
	}
	opened.free, opened.all = info.Available, info.Capacity
	ok = true
	return opened, nil
}

func (p *pool) close() { _ = p.Free() }

func (p *pool) path(name string) string { return path.Join(p.dir, name) }

// room refuses with exhausted what cannot fit: a disk larger than the pool, or need more bytes in a pool that is nearly full.
func (p *pool) room(need int64, disks ...int64) error {
	for _, size := range disks {
		if uint64(size) > p.all {
			return director.Errorf(director.KindExhausted, p.op, "a disk of %s does not fit into the storage pool %q of host %s, which has %s",
				bytesOf(uint64(size)), p.h.Pool, p.h.Name, bytesOf(p.all)).WithHint("choose a smaller disk, or a larger pool")
		}
	}
	if p.free < uint64(need) || p.free-uint64(need) < minFree {
		return director.Errorf(director.KindExhausted, p.op, "the storage pool %q of host %s has %s free, and %s are needed",
			p.h.Pool, p.h.Name, bytesOf(p.free), bytesOf(uint64(need)+minFree)).WithHint("free space in it, or choose another pool")
	}
	return nil
}

func bytesOf(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// names returns the names of all volumes, ordered.
func (p *pool) names() ([]string, error) {
	names, err := p.ListStorageVolumes()
	slices.Sort(names)
	return names, err
}

// find returns the volume, or nil.
func (p *pool) find(name string) (*virt.StorageVol, error) {
	v, err := p.LookupStorageVolByName(name)
	if is(err, virt.ERR_NO_STORAGE_VOL) {
		return nil, nil
	}
	return v, err
}

// volume describes a volume to make.
type volume struct {
	name    string
	size    uint64
	format  string // raw or qcow2
	backing string // path of the image; empty for none
}

// ensure returns the volume and makes it if it is missing. One that was left with another size or image is replaced if replace
// is set.
func (p *pool) ensure(want volume, replace bool) (*virt.StorageVol, error) {
	v, err := p.find(want.name)
	if err != nil {
		return nil, err
	}
	if v != nil {
		same, err := want.matches(v)
		if err == nil && (same || !replace) {
			return v, nil
		}
		if err != nil {
			_ = v.Free()
		} else {
			err = discard(v)
		}
		if err != nil && !is(err, virt.ERR_NO_STORAGE_VOL) {
			return nil, err
		}
	}
	def := virtxml.StorageVolume{
		Name:       want.name,
		Capacity:   &virtxml.StorageVolumeSize{Value: want.size, Unit: "bytes"},
		Allocation: &virtxml.StorageVolumeSize{Value: 0},
		Target:     &virtxml.StorageVolumeTarget{Format: &virtxml.StorageVolumeTargetFormat{Type: want.format}},
	}
	if want.format == "qcow2" {
		def.Target.Compat = "1.1"
	}
	if want.backing != "" {
		def.BackingStore = &virtxml.StorageVolumeBackingStore{
			Path: want.backing, Format: &virtxml.StorageVolumeTargetFormat{Type: "qcow2"},
		}
	}
	text, err := def.Marshal()
	if err != nil {
		return nil, err
	}
	v, err = p.StorageVolCreateXML(text, 0)
	if err == nil {
		return v, nil
	}
	// Another director may have been quicker, for which every driver has an error of its own: the volume itself decides.
	if v, findErr := p.find(want.name); findErr == nil && v != nil {
		return v, nil
	}
	return nil, err
}

func (want volume) matches(v *virt.StorageVol) (bool, error) {
	def, err := definition(v)
	if err != nil {
		return false, err
	}
	return def.Capacity != nil && def.Capacity.Value == want.size && backing(def) == want.backing, nil
}

func definition(v *virt.StorageVol) (virtxml.StorageVolume, error) {
	var def virtxml.StorageVolume
	text, err := v.GetXMLDesc(0)
	if err != nil {
		return def, err
	}
	return def, def.Unmarshal(text)
}

// backing is the path of the volume that this one is linked to, or empty.
func backing(def virtxml.StorageVolume) string {
	if def.BackingStore == nil {
		return ""
	}
	return def.BackingStore.Path
}

// read returns what get reads of the volume, and false if there is no such volume, also if it went away meanwhile.
func read[T any](p *pool, name string, get func(v *virt.StorageVol) (T, error)) (value T, found bool, err error) {
	v, err := p.find(name)
	if v == nil || err != nil {
		return value, false, err
	}
	value, err = get(v)
	_ = v.Free()
	if is(err, virt.ERR_NO_STORAGE_VOL) {
		return value, false, nil
	}
	return value, err == nil, err
}

// discard deletes the volume and frees it. No error if it is gone.
func discard(v *virt.StorageVol) error {
	err := v.Delete(0)
	_ = v.Free()
	if is(err, virt.ERR_NO_STORAGE_VOL) {
		return nil
	}
	return err
}

// remove deletes the volumes that exist.
func (p *pool) remove(names ...string) error {
	for _, name := range names {
		v, err := p.find(name)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		if err := discard(v); err != nil {
			return err
		}
	}
	return nil
}

// removeMachine deletes what the machine has in the pool; the data disks only if asked.
func (p *pool) removeMachine(s director.Stamp, data bool) error {
	// virtlogd may have turned a long console log over into files that the pool has not seen. Where the pool is busy, they wait
	// for the next refresh.
	_ = p.Refresh(0)
	names, err := p.names()
	if err != nil {
		return err
	}
	var doomed []string
	for _, name := range names {
		if !strings.HasPrefix(name, volumePrefix(s)) {
			continue
		}
		if data || !dataVolume.MatchString(name) {
			doomed = append(doomed, name)
		}
	}
	return p.remove(doomed...)
}

// source is content to upload.
type source struct {
	r        io.Reader
	size     int64
	progress func(done int64) // may be nil
}

// uploadStream sends the content to the volume.
func uploadStream(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error {
	stream, err := c.NewStream(0)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Free() }()
	if err := v.Upload(stream, 0, uint64(src.size), 0); err != nil {
		return err
	}
	abort := func(err error) error {
		_ = stream.Abort()
		return err
	}
	buffer := make([]byte, 256<<10)
	var done int64
	for {
		n, err := src.r.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			sent, err := stream.Send(rest)
			if err != nil {
				return abort(err)
			}
			rest = rest[sent:]
		}
		done += int64(n)
		if src.progress != nil && n > 0 {
			src.progress(done)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return abort(err)
		}
	}
	return stream.Finish()
}

// image is a complete image in a pool.
type image struct {
	path string
	sum  string // the first 16 digits
	size uint64 // virtual
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
		return &image{path: p.path(disk), sum: m[2], size: size}, nil
	}
	return nil, nil
}

// imageVolumes returns which of the volumes belong to the image, whole or cut off: its disks, and the marks that say which are
// complete.
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

// localImage is the file to upload, after it was checked.
type localImage struct {
	*os.File
	info    fs.FileInfo
	virtual uint64
}

// openImage opens the file and compares its checksum before anything is sent.
func openImage(ctx context.Context, op string, s hypervisor.ImageSpec) (*localImage, error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, director.Errorf(director.KindNotFound, op, "there is no file %s", s.Path).
			WithHint("the path is one on the director")
	}
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	ok := false
	defer func() {
		if !ok {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a regular file", s.Path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, readerWith(ctx, f)); err != nil {
		if err := interrupted(ctx, op); err != nil {
			return nil, err
		}
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
		return nil, director.Errorf(director.KindInvalid, op, "%s has the SHA-256 %s and not %s", s.Path, got, s.SHA256).
			WithHint("the file is damaged or another one: fetch or build it again, or correct the checksum of image %s", s.Name)
	}
	// The header of qcow2: magic, version, and the virtual size at byte 24.
	header := make([]byte, 32)
	if _, err := f.ReadAt(header, 0); err != nil || !bytes.HasPrefix(header, []byte("QFI\xfb")) {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a qcow2 image", s.Path)
	}
	if binary.BigEndian.Uint64(header[8:]) != 0 {
		return nil, director.Errorf(director.KindInvalid, op, "%s needs a backing file", s.Path).
			WithHint("make it self-contained: qemu-img convert -O qcow2")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	ok = true
	return &localImage{File: f, info: info, virtual: binary.BigEndian.Uint64(header[24:])}, nil
}

// unchanged tells whether the file is still the one that was checked.
func (l *localImage) unchanged() bool {
	info, err := l.Stat()
	return err == nil && info.Size() == l.info.Size() && info.ModTime().Equal(l.info.ModTime())
}

// readerWith is r until the context ends.
func readerWith(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// EnsureImage implements hypervisor.Imaging. The file's checksum is compared before anything is sent, and a small volume
// beside the image says that it is complete.
func (b *Backend) EnsureImage(ctx context.Context, s hypervisor.ImageSpec, progress func(done, total int64)) error {
	const op = "libvirt.ensure_image"
	if err := s.Validate(op); err != nil {
		return err
	}
	return b.alone(ctx, op, imageKey(s.Name), func(work context.Context) error { return b.ensureImage(ctx, work, op, s, progress) })
}

func (b *Backend) ensureImage(ctx, work context.Context, op string, s hypervisor.ImageSpec, progress func(done, total int64)) error {
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
	file, err := openImage(ctx, op, s)
	if err != nil {
		return err
	}
	defer file.Close()
	size := file.info.Size()
	for i, h := range missing {
		sent := func(done int64) {
			if progress != nil && ctx.Err() == nil {
				progress(int64(i)*size+done, int64(len(missing))*size)
			}
		}
		if _, err := inPool(work, h, op, func(p *pool) (none, error) { return none{}, b.sendImage(ctx, p, s, file, sent) }); err != nil {
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
		return false, director.Errorf(director.KindConflict, p.op, "host %s has an image %q with another checksum (%s...)", p.h.Name, s.Name, found.sum).
			WithHint("give the new image another name; images are never replaced under their VMs")
	}
	return true, nil
}

// sendImage uploads the file and marks it as complete.
func (b *Backend) sendImage(ctx context.Context, p *pool, s hypervisor.ImageSpec, file *localImage, sent func(int64)) error {
	// Whatever earlier tries left of this name is taken away.
	names, err := p.names()
	if err != nil {
		return err
	}
	disks, marks := imageVolumes(names, s.Name)
	if err := p.remove(slices.Concat(marks, disks)...); err != nil {
		return err
	}
	size := file.info.Size()
	if err := p.room(size, size); err != nil {
		return err
	}
	base := fmt.Sprintf("kaas-image.%s.%s.%d.", s.Name, s.SHA256[:16], file.virtual)
	v, err := p.ensure(volume{name: base + "qcow2", size: uint64(size), format: "raw"}, true)
	if err != nil {
		return err
	}
	defer func() { _ = v.Free() }()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return director.Errorf(director.KindInvalid, p.op, "cannot read %s: %w", s.Path, err)
	}
	if err := b.upload(ctx, p.conn, v, source{r: readerWith(ctx, file), size: size, progress: sent}); err != nil {
		if err := p.remove(base + "qcow2"); err != nil {
			p.h.log.WarnContext(ctx, "part of an image is left in the pool until the next try", "err", err)
		}
		return err
	}
	if !file.unchanged() {
		return errors.Join(director.Errorf(director.KindInvalid, p.op, "%s changed while it was read", s.Path), p.remove(base+"qcow2"))
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
	for _, n := range names {
		if !strings.HasSuffix(n, ".qcow2") || paths[p.path(n)] {
			continue
		}
		def, found, err := read(p, n, definition)
		if err != nil {
			return err
		}
		if found && paths[backing(def)] {
			return director.Errorf(director.KindConflict, p.op, "the disk %s on host %s is linked to the image %q", n, p.h.Name, name).
				WithHint("delete the VMs that were made from it first")
		}
	}
	return p.remove(doomed...)
}

// ListVolumes implements hypervisor.Volumes.
func (b *Backend) ListVolumes(ctx context.Context, directorID string) ([]hypervisor.VolumeInfo, error) {
	const op = "libvirt.list_volumes"
	var all []hypervisor.VolumeInfo
	for _, h := range b.hosts {
		rows, err := inPool(ctx, h, op, func(p *pool) ([]hypervisor.VolumeInfo, error) {
			return p.dataDisks(func(s director.Stamp) bool { return s.Director == directorID })
		})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(x, y hypervisor.VolumeInfo) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Host, y.Host))
	})
	return all, nil
}

// dataDisks returns the data disks that match.
func (p *pool) dataDisks(match func(director.Stamp) bool) ([]hypervisor.VolumeInfo, error) {
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	var rows []hypervisor.VolumeInfo
	for _, name := range names {
		m := dataVolume.FindStringSubmatch(name)
		if m == nil || !match(director.Stamp{Director: m[1], Machine: m[2]}) {
			continue
		}
		info, found, err := read(p, name, (*virt.StorageVol).GetInfo)
		if err != nil {
			return nil, err
		}
		if found {
			rows = append(rows, hypervisor.VolumeInfo{
				Name: name, Host: p.h.Name, Size: int64(info.Capacity), Stamp: director.Stamp{Director: m[1], Machine: m[2]},
			})
		}
	}
	return rows, nil
}

// DeleteVolume implements hypervisor.Volumes.
func (b *Backend) DeleteVolume(ctx context.Context, owner director.Stamp) error {
	const op = "libvirt.delete_volume"
	if err := director.Invalid(op, "the owner is wrong", hypervisor.ValidStamp("owner", owner)); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		return b.onEachPool(work, op, func(p *pool) error { return p.deleteVolumes(owner) })
	})
}

func (p *pool) deleteVolumes(owner director.Stamp) error {
	rows, err := p.dataDisks(func(s director.Stamp) bool { return s == owner })
	if err != nil || len(rows) == 0 {
		return err
	}
	domains, err := p.conn.ListAllDomains(0)
	if err != nil {
		return err
	}
	used := ""
	for i := range domains {
		text, err := domains[i].GetXMLDesc(0)
		name, _ := domains[i].GetName()
		_ = domains[i].Free()
		if err != nil {
			continue // it went away
		}
		for _, r := range rows {
			if strings.Contains(text, p.path(r.Name)) {
				used = name
			}
		}
	}
	if used != "" {
		return director.Errorf(director.KindConflict, p.op, "the VM %s on host %s uses the data disks of machine %s", used, p.h.Name, owner.Machine).
			WithHint("delete the VM first")
	}
	for _, r := range rows {
		if err := p.remove(r.Name); err != nil {
			return err
		}
	}
	return nil
}

package libvirt

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Names of volumes. Neither part of a stamp has a dot (hypervisor.Spec.Validate), and names of images are cut at both
// ends.
func seedName(s director.Stamp) string    { return volumePrefix(s) + "seed.iso" }
func consoleName(s director.Stamp) string { return volumePrefix(s) + "console.log" }

// copiedName is a volume next to the seed which says that the root disk's copy of the image is complete.
func copiedName(s director.Stamp) string { return volumePrefix(s) + "root.complete" }

// blankingName is a volume next to the seed which says that a new data disk may still hold what others have left.
func blankingName(disk string) string { return disk + ".blanking" }

// copyingName is a volume next to the seed which says that a data disk is not a whole copy yet.
func copyingName(disk string) string { return disk + ".copying" }

// rootName and dataName are those of volumes in the pool of disks.
func (p *pool) rootName(s director.Stamp) string { return volumePrefix(s) + "root." + p.disks.format() }

func (p *pool) dataName(s director.Stamp, serial string) string {
	return volumePrefix(s) + "data." + serial + "." + p.disks.format()
}
func volumePrefix(s director.Stamp) string { return "kaas." + s.Director + "." + s.Machine + "." }

var (
	dataVolume = regexp.MustCompile(`^kaas\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.data\.([A-Za-z0-9_-]+)\.(?:qcow2|raw)$`)
	// keptVolume is a volume next to the seeds that says what a data disk was for.
	keptVolume = regexp.MustCompile(
		`^(kaas\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.data\.[A-Za-z0-9_-]+\.(?:qcow2|raw))\.kept\.([A-Za-z0-9_.-]*)$`,
	)
	// The number is the virtual size of the disk: libvirt learns it only when the pool is read again.
	imageVolume = regexp.MustCompile(`^kaas-image\.(.+)\.([0-9a-f]{16})\.([0-9]+)\.(qcow2|complete)$`)
)

// pool is the storage pool of a host, with the names of its volumes as they were when it was opened.
type pool struct {
	*virt.StoragePool
	h     *host
	op    string
	conn  *virt.Connect
	name  string
	kind  string // libvirt's type of it
	disks *pool  // where disks are; this one itself if that is no other
	dir   string
	free  uint64
	all   uint64
}

// block tells whether volumes are block devices, which are raw and as large as they are said to be.
func (p *pool) block() bool { return p.kind == "logical" }

// shared tells whether other hosts see the same volumes.
func (p *pool) shared() bool { return p.kind == "netfs" }

// copies tells whether root disks are full copies of their image, and not linked to it.
func (p *pool) copies() bool { return p.disks != p }

func (p *pool) format() string {
	if p.block() {
		return "raw"
	}
	return "qcow2"
}

// The types of pools that can be used.
var (
	fileTypes = []string{"dir", "fs", "netfs"}
	diskTypes = []string{"dir", "fs", "netfs", "logical"}
)

// pool opens the host's storage pools. Errors: not_found or invalid with what to do.
func (h *host) pool(op string, c *virt.Connect) (*pool, error) {
	p, err := h.openPool(op, c, h.Pool, fileTypes)
	if err != nil {
		return nil, err
	}
	if h.DiskPool == "" || h.DiskPool == h.Pool {
		p.disks = p
		return p, nil
	}
	if p.disks, err = h.openPool(op, c, h.DiskPool, diskTypes); err != nil {
		_ = p.Free()
		return nil, err
	}
	p.disks.disks = p.disks
	return p, nil
}

func (h *host) openPool(op string, c *virt.Connect, name string, types []string) (*pool, error) {
	p, err := c.LookupStoragePoolByName(name)
	if is(err, virt.ERR_NO_STORAGE_POOL) {
		return nil, director.Errorf(director.KindNotFound, op, "host %s has no storage pool %q", h.Name, name).
			WithHint("make it: virsh -c %s pool-define-as %s dir --target /var/lib/libvirt/%s, then pool-build, "+
				"pool-start and pool-autostart %s",
				h.URI, name, name, name)
	}
	if err != nil {
		return nil, err
	}
	opened := &pool{StoragePool: p, h: h, op: op, conn: c, name: name}
	ok := false
	defer func() {
		if !ok {
			_ = opened.Free()
		}
	}()
	if active, err := p.IsActive(); err != nil {
		return nil, err
	} else if !active {
		return nil, director.Errorf(
			director.KindUnavailable, op, "the storage pool %q of host %s is not started", name, h.Name,
		).
			WithHint("start it: virsh -c %s pool-start %s", h.URI, name)
	}
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	var def virtxml.StoragePool
	if err := def.Unmarshal(text); err != nil {
		return nil, director.Errorf(
			director.KindInternal, op, "cannot read the storage pool %q of host %s: %w", name, h.Name, err,
		)
	}
	if !slices.Contains(types, def.Type) || def.Target == nil || def.Target.Path == "" {
		e := director.Errorf(
			director.KindInvalid, op, "the storage pool %q of host %s is of type %s", name, h.Name, def.Type,
		)
		if def.Type == "logical" {
			return nil, e.WithHint(
				"name it as diskPool, and a pool of type dir, fs or netfs as pool: images, seeds and consoles are " +
					"files",
			)
		}
		return nil, e.WithHint("use a pool of type %s", strings.Join(types, ", "))
	}
	opened.dir, opened.kind = def.Target.Path, def.Type
	if opened.shared() {
		_ = p.Refresh(0) // other hosts write to it; where it is busy, what is known has to do
	}
	info, err := p.GetInfo()
	if err != nil {
		return nil, err
	}
	opened.free, opened.all = info.Available, info.Capacity
	ok = true
	return opened, nil
}

func (p *pool) close() {
	if p.disks != p {
		_ = p.disks.Free()
	}
	_ = p.Free()
}

func (p *pool) path(name string) string { return path.Join(p.dir, name) }

// room refuses with exhausted what cannot fit: a disk larger than the pool, or need more bytes in a pool that is nearly
// full.
func (p *pool) room(need int64, disks ...int64) error {
	for _, size := range disks {
		if uint64(size) > p.all {
			return director.Errorf(director.KindExhausted, p.op, "a disk of %s does not fit into the storage pool "+
				"%q of host %s, which has %s",
				bytesOf(uint64(size)), p.name, p.h.Name, bytesOf(p.all)).
				WithHint("choose a smaller disk, or a larger pool")
		}
	}
	need = max(need, 0) // a disk may take less than the one that it replaces
	if p.free < uint64(need) || p.free-uint64(need) < minFree {
		return director.Errorf(director.KindExhausted, p.op, "the storage pool %q of host %s has %s free, and %s "+
			"are needed",
			p.name, p.h.Name, bytesOf(p.free), bytesOf(uint64(need)+minFree)).
			WithHint("free space in it, or choose another pool")
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
	copied  string // name of the image's volume that it is a copy of; empty for none
}

// ensure returns the volume and makes it if it is missing. One that was left with another size or image is replaced if
// replace is set.
func (p *pool) ensure(want volume, replace bool) (*virt.StorageVol, error) {
	return p.ensureBy(want, replace, func(xml string) (*virt.StorageVol, error) {
		return p.StorageVolCreateXML(xml, 0)
	})
}

// ensureBy is ensure with another way to make the volume.
func (p *pool) ensureBy(
	want volume, replace bool, create func(xml string) (*virt.StorageVol, error),
) (*virt.StorageVol, error) {
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
	text, err := p.define(want)
	if err != nil {
		return nil, err
	}
	v, err = create(text)
	if err == nil {
		return v, nil
	}
	// Another director may have been quicker, for which every driver has an error of its own: the volume itself
	// decides.
	if v, findErr := p.find(want.name); findErr == nil && v != nil {
		return v, nil
	}
	return nil, err
}

// define is the definition of the volume as libvirt takes it.
func (p *pool) define(want volume) (string, error) {
	def := virtxml.StorageVolume{
		Name:       want.name,
		Capacity:   &virtxml.StorageVolumeSize{Value: want.size, Unit: "bytes"},
		Allocation: &virtxml.StorageVolumeSize{Value: 0},
		Target:     &virtxml.StorageVolumeTarget{Format: &virtxml.StorageVolumeTargetFormat{Type: want.format}},
	}
	if want.format == "qcow2" {
		def.Target.Compat = "1.1"
	}
	if p.block() {
		// less would make it a snapshot of nothing, which fills up
		def.Allocation.Value, def.Allocation.Unit = want.size, "bytes"
	}
	if want.backing != "" {
		def.BackingStore = &virtxml.StorageVolumeBackingStore{
			Path: want.backing, Format: &virtxml.StorageVolumeTargetFormat{Type: "qcow2"},
		}
	}
	return def.Marshal()
}

func (want volume) matches(v *virt.StorageVol) (bool, error) {
	def, err := definition(v)
	if err != nil {
		return false, err
	}
	if want.copied != "" { // volume groups round up
		return def.Capacity != nil && def.Capacity.Value >= want.size && def.Capacity.Value < want.size+mostExtent, nil
	}
	return def.Capacity != nil && def.Capacity.Value == want.size && backing(def) == want.backing, nil
}

// mostExtent is more than a volume group rounds up to.
const mostExtent = 256 << 20

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
		if err := discard(v); err != nil && !is(err, virt.ERR_NO_STORAGE_VOL) { // a peer may have been quicker
			return err
		}
	}
	return nil
}

// removeMachine deletes what the machine with the domain id has in the pool; the data disks only if asked.
func (p *pool) removeMachine(id hypervisor.ID, o hypervisor.DeleteOptions) error {
	s := o.Owner
	if o.DataDisks {
		if err := p.volumesUnused(s, nil, id); err != nil {
			return err
		}
	}
	// virtlogd may have turned a long console log over into files that the pool has not seen. Where the pool is busy,
	// they wait for the next refresh.
	_ = p.Refresh(0)
	mine, err := p.names()
	if err != nil {
		return err
	}
	for _, in := range p.both() {
		names, err := in.names()
		if err != nil {
			return err
		}
		var doomed []string
		for _, name := range names {
			if !strings.HasPrefix(name, volumePrefix(s)) {
				continue
			}
			kept := dataVolume.MatchString(name) && !slices.Contains(mine, blankingName(name)) ||
				keptVolume.MatchString(name) || strings.HasSuffix(name, copyingName(""))
			if o.DataDisks || !kept {
				doomed = append(doomed, name)
			}
		}
		if err := in.remove(doomed...); err != nil {
			return err
		}
	}
	return nil
}

// labelAll labels those of the data disks that a deletion keeps.
func (p *pool) labelAll(disks []string, o hypervisor.DeleteOptions) error {
	if o.Label == (hypervisor.DiskLabel{}) {
		return nil
	}
	for _, name := range disks {
		if o.DataDisks && strings.HasPrefix(name, volumePrefix(o.Owner)) {
			continue
		}
		if err := p.ofLabels().label(name, o.Label); err != nil {
			return err
		}
	}
	return nil
}

// both are the pools that machines have volumes in, that of the disks first: the mark of a complete copy goes after the
// copy.
func (p *pool) both() []*pool {
	if p.disks == p {
		return []*pool{p}
	}
	return []*pool{p.disks, p}
}

// cloneVolume makes a volume of the pool with the content of the image, which libvirt converts.
func cloneVolume(p *pool, xml string, image *virt.StorageVol) (*virt.StorageVol, error) {
	return p.StorageVolCreateXMLFrom(xml, image, 0)
}

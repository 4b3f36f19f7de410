package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Snapshots = (*Backend)(nil)

// A snapshot is libvirt's own, of the root disk alone: the file that the disk was in stays as it is, and the VM writes
// to a new one that is linked to it.
//
//   - libvirt keeps the list, also that of people's snapshots. Ours are known by their description.
//   - Going back is done here: libvirt learned it for such snapshots in its version 9.9 only. The disk gets a
//     new file that is linked to the snapshot's.
//   - A file that is neither under the disk nor under a snapshot any more is deleted by the next call, whichever it
//     is, and one that only the disk needs is taken up into the file below it. QEMU does that, so it
//     has to wait for a VM that runs.

// ourSnapshot begins the description of snapshots that the director took.
const ourSnapshot = "Taken by director "

// snapshotName is what libvirt can keep as the name of a file, with some room.
var snapshotName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$`)

// layerName is a file that the root disk is in after a snapshot. They are numbered in the order in which they were
// made.
func layerName(s director.Stamp, n int) string {
	return fmt.Sprintf("%sroot.%d.qcow2", volumePrefix(s), n)
}

// layerOf returns the number in the name of a file of the root disk: 0 for the first, which has none, and -1 for other
// files.
func layerOf(s director.Stamp, name string) int {
	middle, ok := strings.CutPrefix(name, volumePrefix(s)+"root.")
	switch {
	case !ok:
		return -1
	case middle == "qcow2":
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(middle, ".qcow2"))
	if err != nil || n < 1 {
		return -1
	}
	return n
}

// taken is a snapshot as libvirt has it.
type taken struct {
	hypervisor.Snapshot
	base string // the file that has the state of the root disk
}

// rootDisk is a machine's root disk with the files that it and its snapshots are in.
type rootDisk struct {
	*domain
	op   string
	key  director.Stamp
	pool *pool // of disks
	have []taken

	disk   virtxml.DomainDisk
	others []string          // targets of the other disks
	layers map[string]string // path of each file, and of the one below it
}

// active is the file that the VM writes to.
func (r *rootDisk) active() string { return r.disk.Source.File.File }

// openRoot reads the root disk of the domain, which must be the owner's.
func (p *pool) openRoot(op string, d *domain, owner director.Stamp) (*rootDisk, error) {
	if d.mark.stamp() != owner || owner == (director.Stamp{}) {
		return nil, director.Errorf(
			director.KindConflict, op, "the VM %s has another owner (%s/%s)", d.name, d.mark.Director, d.mark.ID,
		).
			WithHint("it is left as it is")
	}
	if p.disks.block() {
		return nil, director.Errorf(
			director.KindInvalid, op, "the root disk of %s is in the volume group %q, where there are no snapshots",
			d.name, p.disks.name,
		).
			WithHint(
				"put disks into a pool of type dir, fs or netfs (diskPool of the host), or save the state " +
					"with the tools of the volume group",
			)
	}
	r := &rootDisk{domain: d, op: op, key: owner, pool: p.disks, layers: map[string]string{}}
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	var def virtxml.Domain
	if err := def.Unmarshal(text); err != nil {
		return nil, err
	}
	for _, disk := range def.Devices.Disks {
		switch {
		case disk.Serial == rootSerial && disk.Source != nil && disk.Source.File != nil:
			r.disk = disk
		case disk.Target != nil:
			r.others = append(r.others, disk.Target.Dev)
		}
	}
	if r.disk.Source == nil || layerOf(owner, path.Base(r.active())) < 0 {
		return nil, director.Errorf(
			director.KindConflict, op, "the root disk of %s is not one that the director made", d.name,
		).
			WithHint("use the hypervisor's own snapshots for a VM that was adopted")
	}
	if err := r.readLayers(); err != nil {
		return nil, err
	}
	r.have, err = snapshotsOf(d)
	return r, err
}

// rootSerial is the serial number of root disks.
const rootSerial = "kaas-root"

func (r *rootDisk) readLayers() error {
	names, err := r.pool.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if layerOf(r.key, name) < 0 {
			continue
		}
		def, found, err := read(r.pool, name, definition)
		if err != nil {
			return err
		}
		if found {
			r.layers[r.pool.path(name)] = backing(def)
		}
	}
	return nil
}

// snapshotsOf returns the domain's snapshots, the oldest first.
func snapshotsOf(d *domain) ([]taken, error) {
	list, err := d.ListAllSnapshots(0)
	if err != nil {
		return nil, err
	}
	var all []taken
	for i := range list {
		text, err := list[i].GetXMLDesc(0)
		_ = list[i].Free()
		if is(err, virt.ERR_NO_DOMAIN_SNAPSHOT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := parseSnapshot(text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	// libvirt counts seconds; of two in one second the base of the later has the higher number.
	slices.SortFunc(all, func(x, y taken) int {
		return cmp.Or(
			x.Created.Compare(y.Created),
			layerOf(d.mark.stamp(), path.Base(x.base))-layerOf(d.mark.stamp(), path.Base(y.base)),
		)
	})
	return all, nil
}

func parseSnapshot(text string) (taken, error) {
	var def virtxml.DomainSnapshot
	if err := def.Unmarshal(text); err != nil {
		return taken{}, err
	}
	seconds, err := strconv.ParseInt(def.CreationTime, 10, 64)
	if err != nil {
		return taken{}, fmt.Errorf("the snapshot %s was taken at %q", def.Name, def.CreationTime)
	}
	s := taken{
		Snapshot: hypervisor.Snapshot{
			Name: def.Name, Created: time.Unix(seconds, 0), Ours: strings.HasPrefix(def.Description, ourSnapshot),
		},
	}
	if def.Domain == nil || def.Domain.Devices == nil {
		return s, nil
	}
	for _, disk := range def.Domain.Devices.Disks { // as they were before
		if disk.Serial == rootSerial && disk.Source != nil && disk.Source.File != nil {
			s.base = disk.Source.File.File
		}
	}
	return s, nil
}

func (r *rootDisk) snapshots() []hypervisor.Snapshot {
	var out []hypervisor.Snapshot
	for _, s := range r.have {
		out = append(out, s.Snapshot)
	}
	return out
}

// find returns the snapshot of the name, which libvirt has once at most, or nil.
func (r *rootDisk) find(name string) *taken {
	i := slices.IndexFunc(r.have, func(s taken) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &r.have[i]
}

// next returns a new file for the root disk, linked to below.
func (r *rootDisk) next(below string) (string, error) {
	most := 0
	for file := range r.layers {
		most = max(most, layerOf(r.key, path.Base(file)))
	}
	def, found, err := read(r.pool, path.Base(below), definition)
	if err != nil {
		return "", err
	}
	if !found || def.Capacity == nil {
		return "", director.Errorf(
			director.KindInternal, r.op, "the file %s of the root disk of %s is not there", below, r.name,
		).
			WithHint("restore it; the disk cannot be read without it")
	}
	name := layerName(r.key, most+1)
	v, err := r.pool.ensure(volume{name: name, size: def.Capacity.Value, format: "qcow2", backing: below}, true)
	if err != nil {
		return "", err
	}
	_ = v.Free()
	r.layers[r.pool.path(name)] = below
	return r.pool.path(name), nil
}

// needed are the files under the disk and under its snapshots.
func (r *rootDisk) needed() map[string]bool {
	keep := map[string]bool{}
	follow := func(file string) {
		for ; file != "" && !keep[file]; file = r.layers[file] {
			keep[file] = true
		}
	}
	follow(r.active())
	for _, s := range r.have {
		follow(s.base)
	}
	return keep
}

// sweep deletes the files that nothing needs.
func (r *rootDisk) sweep() error {
	keep := r.needed()
	for file := range r.layers {
		if keep[file] {
			continue
		}
		if err := r.pool.remove(path.Base(file)); err != nil {
			return err
		}
		delete(r.layers, file)
	}
	return nil
}

// lone tells whether nothing but the file above needs this one, which may then take that one up.
func (r *rootDisk) lone(file string) bool {
	if _, ours := r.layers[file]; !ours { // the image
		return false
	}
	above := 0
	for _, below := range r.layers {
		if below == file {
			above++
		}
	}
	return above == 1 && !slices.ContainsFunc(r.have, func(s taken) bool { return s.base == file })
}

// merge takes the active file up into those below that nothing else needs. Only QEMU can: of a VM that is off the files
// stay until the next call. Others who take snapshots count on the files as they are.
func (r *rootDisk) merge(ctx context.Context) error {
	for r.domain.active && !slices.ContainsFunc(r.have, func(s taken) bool { return !s.Ours }) {
		below := r.layers[r.active()]
		if !r.lone(below) {
			return nil
		}
		if err := r.BlockCommit(r.disk.Target.Dev, below, "", 0, virt.DOMAIN_BLOCK_COMMIT_ACTIVE); err != nil {
			return err
		}
		if err := r.settle(ctx); err != nil {
			return err
		}
		delete(r.layers, r.active())
		if err := r.pool.remove(path.Base(r.active())); err != nil {
			return err
		}
		r.disk.Source.File.File = below
	}
	return nil
}

// settle waits for a commit of the active file, this call's or that of one that was cut off, and lets the VM write to
// the file below then.
func (r *rootDisk) settle(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		job, err := r.GetBlockJobInfo(r.disk.Target.Dev, 0)
		if err != nil {
			return err
		}
		if job.Type != virt.DOMAIN_BLOCK_JOB_TYPE_ACTIVE_COMMIT {
			return nil
		}
		if job.Cur == job.End {
			err := r.BlockJobAbort(r.disk.Target.Dev, virt.DOMAIN_BLOCK_JOB_ABORT_PIVOT)
			if err == nil {
				return nil
			}
			if !is(err, virt.ERR_BLOCK_COPY_ACTIVE) { // not quite at its end
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return interrupted(ctx, r.op)
		}
	}
}

// ofRoot runs act with the root disk of the VM, alone on the machine, after what an earlier call has left is put in
// order, and puts in order what act has left. Errors: not_found, conflict if the VM has another owner.
func (b *Backend) ofRoot(
	ctx context.Context, op string, id hypervisor.ID, owner director.Stamp, act func(r *rootDisk) error,
) error {
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		_, h, err := b.get(work, op, id)
		if err != nil {
			return err
		}
		_, err = inPool(work, h, op, func(p *pool) (none, error) {
			before := func(r *rootDisk) error {
				if !r.domain.active {
					return nil
				}
				return r.settle(work)
			}
			after := func(r *rootDisk) error {
				if err := r.sweep(); err != nil {
					return err
				}
				return r.merge(work)
			}
			for _, step := range []func(*rootDisk) error{before, (*rootDisk).sweep, act, after} {
				if err := p.withRoot(op, id, owner, step); err != nil {
					return none{}, err
				}
			}
			return none{}, nil
		})
		return err
	})
}

// withRoot runs act with the root disk as it is now.
func (p *pool) withRoot(op string, id hypervisor.ID, owner director.Stamp, act func(r *rootDisk) error) error {
	_, err := withDomain(op, p.conn, id, func(d *domain) (none, error) {
		r, err := p.openRoot(op, d, owner)
		if err != nil {
			return none{}, err
		}
		return none{}, act(r)
	})
	return err
}

// TakeSnapshot implements hypervisor.Snapshots. Of a VM that runs the disk is kept as a power cut would leave it.
func (b *Backend) TakeSnapshot(
	ctx context.Context, id hypervisor.ID, owner director.Stamp, name string, g hypervisor.SnapshotGuard,
) (s hypervisor.Snapshot, err error) {
	const op = "libvirt.take_snapshot"
	if !snapshotName.MatchString(name) {
		return s, director.Invalid(op, "the snapshot cannot be taken", []director.Field{
			{
				Path: "name",
				Msg: fmt.Sprintf(
					"%q has other characters than letters, digits, '.', '_' and '-', or is too long", name,
				),
			},
		})
	}
	err = b.ofRoot(ctx, op, id, owner, func(r *rootDisk) error {
		if old := r.find(name); old != nil {
			s = old.Snapshot
			if !old.Ours {
				return hypervisor.ForeignSnapshot(op, r.name, name)
			}
			return nil
		}
		size, _, err := read(r.pool, path.Base(r.active()), (*virt.StorageVol).GetInfo)
		if err != nil {
			return err
		}
		if size == nil {
			return director.Errorf(
				director.KindInternal, op, "the storage pool %q does not know the root disk of %s", r.pool.name, r.name,
			).
				WithHint("refresh the pool: virsh pool-refresh %s", r.pool.name)
		}
		if err := g.Check(op, r.name, r.snapshots(), time.Now(), int64(r.pool.free), int64(size.Capacity)); err != nil {
			return err
		}
		if err := r.take(name, b.at); err != nil {
			return err
		}
		if r.have, err = snapshotsOf(r.domain); err != nil {
			return err
		}
		made := r.find(name)
		if made == nil {
			return director.Errorf(
				director.KindUnavailable, op, "the snapshot %s of %s was taken and is gone", name, r.name,
			)
		}
		s = made.Snapshot
		return nil
	})
	return s, err
}

func (r *rootDisk) take(name string, at func(point string) error) error {
	file, err := r.next(r.active())
	if err != nil {
		return err
	}
	if err := at("layer"); err != nil {
		return err
	}
	def := virtxml.DomainSnapshot{
		Name: name, Description: ourSnapshot + r.key.Director + ".",
		Memory: &virtxml.DomainSnapshotMemory{Snapshot: "no"},
		Disks: &virtxml.DomainSnapshotDisks{Disks: []virtxml.DomainSnapshotDisk{{
			Name: r.disk.Target.Dev, Snapshot: "external", Driver: &virtxml.DomainDiskDriver{Type: "qcow2"},
			Source: &virtxml.DomainDiskSource{File: &virtxml.DomainDiskSourceFile{File: file}},
		}}},
	}
	for _, target := range r.others {
		def.Disks.Disks = append(def.Disks.Disks, virtxml.DomainSnapshotDisk{Name: target, Snapshot: "no"})
	}
	text, err := def.Marshal()
	if err != nil {
		return err
	}
	s, err := r.CreateSnapshotXML(
		text,
		virt.DOMAIN_SNAPSHOT_CREATE_DISK_ONLY|virt.DOMAIN_SNAPSHOT_CREATE_REUSE_EXT|virt.DOMAIN_SNAPSHOT_CREATE_ATOMIC,
	)
	if err != nil {
		return err
	}
	_ = s.Free()
	return at("snapshot")
}

// ListSnapshots implements hypervisor.Snapshots.
func (b *Backend) ListSnapshots(ctx context.Context, id hypervisor.ID) ([]hypervisor.Snapshot, error) {
	const op = "libvirt.list_snapshots"
	_, h, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	return onDomain(ctx, h, op, id, func(d *domain) ([]hypervisor.Snapshot, error) {
		have, err := snapshotsOf(d)
		return (&rootDisk{have: have}).snapshots(), err
	})
}

// RevertSnapshot implements hypervisor.Snapshots. The VM is switched off first.
func (b *Backend) RevertSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	const op = "libvirt.revert_snapshot"
	return b.ofRoot(ctx, op, id, owner, func(r *rootDisk) error {
		s := r.find(name)
		switch {
		case s == nil:
			return hypervisor.NoSnapshot(op, r.name, name)
		case !s.Ours:
			return hypervisor.ForeignSnapshot(op, r.name, name)
		}
		if err := r.power(false); err != nil {
			return err
		}
		if err := b.at("off"); err != nil {
			return err
		}
		file, err := r.next(s.base)
		if err != nil {
			return err
		}
		if err := b.at("layer"); err != nil {
			return err
		}
		// The definition of a VM that is off tells no chain of files; of one that ran a moment ago it must not.
		r.disk.Source.File.File, r.disk.BackingStore, r.disk.Alias = file, nil, nil
		text, err := r.disk.Marshal()
		if err != nil {
			return err
		}
		if err := r.UpdateDeviceFlags(text, virt.DOMAIN_DEVICE_MODIFY_CONFIG); err != nil {
			return err
		}
		return b.at("reverted")
	})
}

// DeleteSnapshot implements hypervisor.Snapshots.
func (b *Backend) DeleteSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	const op = "libvirt.delete_snapshot"
	return b.ofRoot(ctx, op, id, owner, func(r *rootDisk) error {
		s := r.find(name)
		switch {
		case s == nil:
			return nil
		case !s.Ours:
			return hypervisor.ForeignSnapshot(op, r.name, name)
		}
		snapshot, err := r.SnapshotLookupByName(name, 0)
		if err == nil {
			err = snapshot.Delete(virt.DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY) // the files are looked at after it
			_ = snapshot.Free()
		}
		if is(err, virt.ERR_NO_DOMAIN_SNAPSHOT) {
			err = nil
		}
		if err != nil {
			return err
		}
		return b.at("forgotten")
	})
}

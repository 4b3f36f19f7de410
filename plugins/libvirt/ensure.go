package libvirt

import (
	"bytes"
	"context"
	"io"
	"path"
	"slices"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Ensure implements hypervisor.Backend. Where the machine exists on a host already, or its data disks do, it stays
// there. Spec.Host says where a new one goes; without it a new one goes to the host with the most free memory, and
// every host must answer, since the machine may exist on the one that does not.
func (b *domains) Ensure(ctx context.Context, s hypervisor.Spec) (hypervisor.VM, error) {
	const op = "libvirt.ensure"
	if err := s.Validate(op); err != nil {
		return hypervisor.VM{}, err
	}
	return locked(ctx, b.fleet, op, machineKey(s.Key), func(work context.Context) (hypervisor.VM, error) {
		h, err := b.place(work, op, s)
		if err != nil {
			return hypervisor.VM{}, err
		}
		return call(work, h, op, func(c *virt.Connect) (hypervisor.VM, error) { return b.ensure(ctx, op, h, c, s) })
	})
}

// place chooses the host.
func (b *domains) place(ctx context.Context, op string, s hypervisor.Spec) (*host, error) {
	var asked *host
	for _, h := range b.hosts {
		if h.Name == s.Host {
			asked = h
		}
	}
	if s.Host != "" && asked == nil {
		if slices.ContainsFunc(b.all, func(h *host) bool { return h.Name == s.Host }) {
			return nil, director.Errorf(director.KindConflict, op, "host %s was declared lost", s.Host).
				WithHint("place the VM on another host")
		}
		return nil, director.Errorf(director.KindNotFound, op, "the provider has no host %q", s.Host)
	}
	if len(b.hosts) == 0 {
		return nil, director.Errorf(director.KindUnavailable, op, "every host of the provider was declared lost").
			WithHint("add a host to the provider, or bring one back")
	}
	if len(b.hosts) == 1 {
		return b.hosts[0], nil
	}
	_, found, err := b.locate(ctx, op, domainUUID(s.Key))
	if found != nil {
		return found, nil
	}
	if err != nil && asked == nil {
		return nil, err
	}
	return b.choose(ctx, op, s, asked)
}

// choose returns the host that has the VM's data disks, or else the one that was asked for, or else the one with the
// most free memory.
func (b *domains) choose(ctx context.Context, op string, s hypervisor.Spec, asked *host) (*host, error) {
	var best *host
	var most int64
	for _, h := range b.hosts {
		type answer struct {
			disks bool
			free  int64
		}
		a, err := inPool(ctx, h, op, func(p *pool) (answer, error) {
			disks, err := p.dataDisks(wants(s))
			if err != nil {
				return answer{}, err
			}
			row, err := p.capacity()
			// Disks that every host sees bind the VM to none.
			return answer{len(disks) > 0 && !p.disks.shared(), row.MemoryFree}, err
		})
		if err != nil {
			if asked == nil || asked == h {
				return nil, err
			}
			continue
		}
		if a.disks {
			if asked != nil && asked != h {
				return nil, director.Errorf(
					director.KindConflict, op, "the data disks of %s are on host %s and not on %s", s.Name, h.Name,
					asked.Name,
				).
					WithHint("place it on %s, or delete the disks if their data is not wanted", h.Name)
			}
			return h, nil
		}
		if best == nil || a.free > most {
			best, most = h, a.free
		}
	}
	if asked != nil {
		return asked, nil
	}
	return best, nil
}

// ensure is Ensure on the chosen host. Each line may be the last one, and the next call continues from there.
func (b *domains) ensure(
	ctx context.Context, op string, h *host, c *virt.Connect, s hypervisor.Spec,
) (hypervisor.VM, error) {
	const rounds = 4 // a peer that makes the VM at the same time may remove a disk and make it again
	for n := 1; ; n++ {
		var vm hypervisor.VM
		err := b.makeOnce(ctx, op, h, c, s)
		if err == nil {
			vm, err = b.start(ctx, op, h, c, domainUUID(s.Key))
		}
		if err == nil || n == rounds || !diskIsGone(err) {
			return vm, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(n) * 100 * time.Millisecond):
		}
	}
}

// makeOnce builds the VM unless it is complete.
func (b *domains) makeOnce(ctx context.Context, op string, h *host, c *virt.Connect, s hypervisor.Spec) error {
	id := domainUUID(s.Key)
	d, err := findDomain(c, id)
	if err != nil {
		return err
	}
	if d != nil {
		defer func() { _ = d.Free() }()
		if d.mark.stamp() != s.Key {
			return director.Errorf(director.KindConflict, op,
				"the VM %s on host %s has our UUID %s and another stamp", d.name, h.Name, id).
				WithHint("a person changed its metadata; restore the stamp, or remove the VM by hand")
		}
		if d.made() {
			return nil
		}
	}
	return b.build(ctx, op, h, c, s, d)
}

// build defines the domain and makes its disks. old is what an earlier try left of it, or nil.
func (b *domains) build(
	ctx context.Context, op string, h *host, c *virt.Connect, s hypervisor.Spec, old *domain,
) error {
	if err := s.NeedsSeed(op); err != nil {
		return err
	}
	if err := nameIsFree(op, h, c, s); err != nil {
		return err
	}
	p, err := h.pool(op, c)
	if err != nil {
		return err
	}
	defer p.close()
	base, err := b.precheck(op, h, c, p, s)
	if err != nil {
		return err
	}
	kind, err := b.domainType(op, h, c)
	if err != nil {
		return err
	}
	if err := b.able(op, h, c, kind); err != nil {
		return err
	}
	if err := clearLeftovers(p, s, old); err != nil {
		return err
	}
	if err := interrupted(ctx, op); err != nil {
		return err
	}
	dom, err := b.define(op, h, c, p, kind, s)
	if err != nil {
		return err
	}
	defer func() { _ = dom.Free() }()
	if err := b.at("defined"); err != nil {
		return err
	}

	if err := b.makeVolumes(ctx, op, p, s, base); err != nil {
		return err
	}
	if err := b.makeSeed(ctx, c, p, s); err != nil {
		return err
	}
	if err := setMade(dom, s.Key, "yes"); err != nil {
		return err
	}
	if b.cfg.Autostart {
		if err := dom.SetAutostart(true); err != nil {
			return err
		}
	}
	return b.at("made")
}

// clearLeftovers removes what must not get into the new VM: an earlier definition under another name, or a former root
// disk.
func clearLeftovers(p *pool, s hypervisor.Spec, old *domain) error {
	if old == nil {
		return p.dropRoot(s)
	}
	if old.name != s.Name {
		return undefine(old.Domain)
	}
	return nil
}

// define defines the domain, which is what takes the name.
func (b *domains) define(
	op string, h *host, c *virt.Connect, p *pool, kind string, s hypervisor.Spec,
) (*virt.Domain, error) {
	text, err := b.domainXML(kind, p, s)
	if err != nil {
		return nil, err
	}
	dom, err := c.DomainDefineXML(text)
	if err != nil {
		if taken := nameIsFree(op, h, c, s); taken != nil { // since we looked
			return nil, taken
		}
		return nil, err
	}
	return dom, nil
}

// makeVolumes makes the root disk and the data disks.
func (b *domains) makeVolumes(ctx context.Context, op string, p *pool, s hypervisor.Spec, base *image) error {
	if err := b.copyRoot(p, s, base); err != nil {
		return err
	}
	for _, v := range p.volumes(s, base.path) {
		in := p
		if v.disk {
			in = p.disks
		}
		if v.disk && in.block() {
			if err := b.blank(ctx, p, v.volume); err != nil {
				return err
			}
		}
		vol, err := in.ensure(v.volume, v.name == p.rootName(s.Key))
		if err != nil {
			return err
		}
		_ = vol.Free()
		if err := b.at(v.name[len(volumePrefix(s.Key)):]); err != nil {
			return err
		}
		if err := interrupted(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// makeSeed makes the seed's disk and uploads the seed to it.
func (b *domains) makeSeed(ctx context.Context, c *virt.Connect, p *pool, s hypervisor.Spec) error {
	seed := seedISO(s.Seed)
	vol, err := p.ensure(volume{name: seedName(s.Key), size: uint64(len(seed)), format: "raw"}, true)
	if err != nil {
		return err
	}
	defer func() { _ = vol.Free() }()
	if err := b.at("seed"); err != nil {
		return err
	}
	if err := b.upload(ctx, c, vol, source{r: bytes.NewReader(seed), size: int64(len(seed))}); err != nil {
		return err
	}
	return b.at("uploaded")
}

// dropRoot removes the root disk that a VM of the machine left behind, which vanished without the director: it has
// booted, and holds the keys and the state of the former node. A disk that is there before a domain uses it is such a
// disk: another director that makes the VM at this moment defines the domain first.
func (p *pool) dropRoot(s hypervisor.Spec) error {
	left, err := p.disks.find(p.rootName(s.Key))
	if err != nil || left == nil {
		return err
	}
	_ = left.Free()
	users, err := p.users()
	if err != nil {
		return err
	}
	if u, used := users[p.disks.path(p.rootName(s.Key))]; used {
		if string(u.id) == domainUUID(s.Key) {
			return nil
		}
		return director.Errorf(director.KindConflict, p.op, "the VM %s on host %s uses the root disk of %s",
			u.name, p.h.Name, s.Name).WithHint("delete that VM first")
	}
	if p.copies() { // what is not marked as complete is copied again
		return p.remove(copiedName(s.Key))
	}
	return p.disks.remove(p.rootName(s.Key))
}

// start powers the domain on.
func (b *domains) start(ctx context.Context, op string, h *host, c *virt.Connect, id string) (hypervisor.VM, error) {
	d, err := findDomain(c, id)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if d == nil {
		return hypervisor.VM{}, director.Errorf(
			director.KindUnavailable, op, "the VM vanished from host %s while it was made", h.Name,
		)
	}
	defer func() { _ = d.Free() }()
	if err := interrupted(ctx, op); err != nil {
		return hypervisor.VM{}, err
	}
	if !d.active {
		if err := d.power(true); err != nil {
			return hypervisor.VM{}, err
		}
		h.log.InfoContext(ctx, "vm started", "vm", d.name)
		if err := b.at("started"); err != nil {
			return hypervisor.VM{}, err
		}
	}
	// two directors made it at once, and one defined it again under the other; it runs, so it is complete
	if d.mark.Made != "yes" {
		if err := setMade(d.Domain, d.mark.stamp(), "yes"); err != nil {
			return hypervisor.VM{}, err
		}
		d.mark.Made = "yes"
	}
	return d.vm(h), nil
}

// nameIsFree returns conflict if another domain has the name.
func nameIsFree(op string, h *host, c *virt.Connect, s hypervisor.Spec) error {
	dom, err := c.LookupDomainByName(s.Name)
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil
	}
	if err != nil {
		return err
	}
	d, err := inspect(dom)
	if err != nil || d == nil {
		return err
	}
	defer func() { _ = d.Free() }()
	if string(d.id) == domainUUID(s.Key) {
		return nil
	}
	whose := "is not the director's"
	if d.mark.Director == s.Key.Director {
		whose = "belongs to machine " + d.mark.ID
	} else if d.mark.Director != "" {
		whose = "belongs to the director " + d.mark.Director
	}
	return director.Errorf(director.KindConflict, op, "a VM named %q exists on host %s and %s", s.Name, h.Name, whose).
		WithHint("choose another name, or remove that VM by hand; it was left as it is")
}

// precheck looks for what would make the VM fail later and returns its image.
func (b *domains) precheck(op string, h *host, c *virt.Connect, p *pool, s hypervisor.Spec) (*image, error) {
	base, err := p.image(s.Image)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return nil, director.Errorf(
			director.KindNotFound, op, "host %s has no complete image %q in the storage pool %q", h.Name, s.Image,
			h.Pool,
		).
			WithHint("bring the image first")
	}
	if uint64(s.RootDisk) < base.size {
		return nil, director.Errorf(director.KindInvalid, op, "the root disk of %s has %s, and the image %q needs %s",
			s.Name, bytesOf(uint64(s.RootDisk)), s.Image, bytesOf(base.size)).WithHint("choose a larger root disk")
	}
	for _, n := range s.NICs {
		if err := networkIsUp(op, h, c, n.Network); err != nil {
			return nil, err
		}
	}
	info, err := c.GetNodeInfo()
	if err != nil {
		return nil, err
	}
	if memory := info.Memory << 10; uint64(s.Memory) > memory {
		return nil, director.Errorf(director.KindExhausted, op, "%s wants %s of memory, and host %s has %s",
			s.Name, bytesOf(uint64(s.Memory)), h.Name, bytesOf(memory)).WithHint("choose a smaller VM or another host")
	}
	disks, need := []int64{s.RootDisk}, int64(0)
	for _, d := range s.DataDisks {
		disks = append(disks, d.Size)
	}
	if err := p.takeable(s); err != nil {
		return nil, err
	}
	if p.copies() {
		if err := p.room(0); err != nil { // the seed and the console
			return nil, err
		}
		if need, err = p.disks.growth(p, s, base); err != nil {
			return nil, err
		}
	}
	return base, p.disks.room(need, disks...)
}

// growth is how much the disks of the VM will take of a pool in which they are no links: what is missing of them, where
// they are as large as they are said to be, and the image's copy elsewhere.
func (p *pool) growth(files *pool, s hypervisor.Spec, base *image) (int64, error) {
	have, err := p.names()
	if err != nil {
		return 0, err
	}
	need := int64(0)
	if !slices.Contains(have, files.rootName(s.Key)) {
		need = int64(base.bytes)
		if p.block() {
			need = s.RootDisk
		}
	}
	for _, d := range s.DataDisks {
		if p.block() && !slices.Contains(have, files.dataName(d.Owner(s.Key), d.Serial)) {
			need += d.Size
		}
	}
	return need, nil
}

// copyRoot makes the root disk in a pool of its own, where it cannot be linked to the image. A copy whose end is not
// written down was cut off, and is recreated.
func (b *domains) copyRoot(p *pool, s hypervisor.Spec, base *image) error {
	if !p.copies() {
		return nil
	}
	want := volume{
		name: p.rootName(s.Key), size: uint64(s.RootDisk), format: p.disks.format(), copied: path.Base(base.path),
	}
	if copied, err := p.copied(s, want); err != nil || copied {
		return err
	}
	if err := p.disks.remove(want.name); err != nil {
		return err
	}
	_ = p.Refresh(0) // or libvirt takes the image, which was uploaded, for raw
	from, err := p.find(want.copied)
	if err != nil {
		return err
	}
	if from == nil {
		return director.Errorf(director.KindUnavailable, p.op, "the image of %s vanished while it was made", s.Name)
	}
	defer func() { _ = from.Free() }()
	root, err := p.disks.ensureBy(want, false, func(xml string) (*virt.StorageVol, error) {
		return b.clone(p.disks, xml, from)
	})
	if err != nil {
		return err
	}
	info, err := root.GetInfo()
	if err == nil && info.Capacity < want.size { // a copy is as large as the image, where it is a file
		err = root.Resize(want.size, 0)
	}
	_ = root.Free()
	if err != nil {
		return err
	}
	if err := b.at("copied"); err != nil {
		return err
	}
	mark, err := p.ensure(volume{name: copiedName(s.Key), size: 512, format: "raw"}, false)
	if err != nil {
		return err
	}
	return mark.Free()
}

// copied tells whether the root disk is a whole copy already. It removes the mark of one that is not.
func (p *pool) copied(s hypervisor.Spec, want volume) (bool, error) {
	done, err := p.find(copiedName(s.Key))
	if err != nil || done == nil {
		return false, err
	}
	_ = done.Free()
	root, err := p.disks.find(want.name)
	if err != nil {
		return false, err
	}
	if root != nil {
		same, err := want.matches(root)
		_ = root.Free()
		if err != nil || same {
			return same, err
		}
	}
	return false, p.remove(copiedName(s.Key))
}

// blank makes a data disk in a volume group, where a new volume holds what an old one has left: its ends, where a file
// system would be known by, are overwritten before it is attached. A mark next to the seed says that this is not done
// yet.
func (b *domains) blank(ctx context.Context, p *pool, want volume) error {
	mark := blankingName(want.name)
	there, err := p.disks.find(want.name)
	if err != nil {
		return err
	}
	pending, err := p.find(mark)
	if pending != nil {
		_ = pending.Free()
	}
	if err != nil || there != nil && pending == nil {
		if there != nil {
			_ = there.Free()
		}
		return err
	}
	if pending == nil {
		v, err := p.ensure(volume{name: mark, size: 512, format: "raw"}, false)
		if err != nil {
			return err
		}
		_ = v.Free()
	}
	if there == nil {
		if there, err = p.disks.ensure(want, false); err != nil {
			return err
		}
	}
	defer func() { _ = there.Free() }()
	if err := b.at("blanking"); err != nil {
		return err
	}
	end := int64(min(want.size, blankEnd))
	for _, offset := range []uint64{0, want.size - uint64(end)} {
		zeros := source{r: io.LimitReader(zero{}, end), size: end, offset: offset}
		if err := b.upload(ctx, p.conn, there, zeros); err != nil {
			return err
		}
	}
	return p.remove(mark)
}

// blankEnd is how much of each end of a new data disk is overwritten.
const blankEnd = 4 << 20

// zero reads as zeros.
type zero struct{}

func (zero) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// part is a volume of a VM; those that are disks go to the pool of disks.
type part struct {
	volume
	disk bool
}

// volumes are the VM's disks but the seed, and the file of its console. A root disk that is a copy is made before.
func (p *pool) volumes(s hypervisor.Spec, base string) []part {
	var list []part
	if !p.copies() {
		list = append(list, part{
			volume{name: p.rootName(s.Key), size: uint64(s.RootDisk), format: "qcow2", backing: base}, true,
		})
	}
	for _, d := range s.DataDisks {
		if d.Of != (director.Stamp{}) {
			continue // it exists, or precheck would have said so: never a new, empty one in its place
		}
		list = append(list, part{
			volume{name: p.dataName(s.Key, d.Serial), size: uint64(d.Size), format: p.disks.format()}, true,
		})
	}
	return append(list, part{volume{name: consoleName(s.Key), format: "raw"}, false})
}

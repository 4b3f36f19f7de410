package libvirt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/google/uuid"
	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// domainUUID is computed from the stamp, so that a second Ensure meets what the first one made.
func domainUUID(s director.Stamp) string { return stampUUID("machine", s) }

func stampUUID(kind string, s director.Stamp) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(namespace+":"+kind+"/"+s.Director+"/"+s.Machine)).String()
}

// The keys of locks.
func imageKey(name string) string        { return "image " + name }
func machineKey(s director.Stamp) string { return "machine " + s.Director + "/" + s.Machine }

// domain is a domain with what we know of it.
type domain struct {
	*virt.Domain
	name   string
	id     hypervisor.ID
	mark   mark
	active bool
	cpus   int
	memory int64 // bytes
}

func (d *domain) made() bool { return d.active || d.mark.Made == "yes" }

func (d *domain) vm(h *host) hypervisor.VM {
	power := hypervisor.PowerOff
	if d.active {
		power = hypervisor.PowerOn
	}
	return hypervisor.VM{
		ID: d.id, Name: d.name, Host: h.Name, Stamp: d.mark.stamp(), Power: power, Ready: d.active && d.mark.Made == "yes",
		CPUs: d.cpus, Memory: d.memory,
	}
}

// power starts or stops the domain at once. No error if it is so already, or if somebody else was quicker.
func (d *domain) power(on bool) error {
	if d.active == on {
		return nil
	}
	change := d.Destroy
	if on {
		change = d.Create
	}
	if err := change(); err != nil {
		if active, again := d.IsActive(); again != nil || active != on {
			return err
		}
	}
	d.active = on
	return nil
}

// inspect reads a domain, and frees it unless it returns one. It returns nil if the domain is gone.
func inspect(dom *virt.Domain) (*domain, error) {
	d := &domain{Domain: dom}
	err := d.read()
	if err == nil {
		return d, nil
	}
	_ = dom.Free()
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil, nil
	}
	return nil, err
}

func (d *domain) read() error {
	id, err := d.GetUUIDString()
	if err != nil {
		return err
	}
	d.id = hypervisor.ID(id)
	if d.name, err = d.GetName(); err != nil {
		return err
	}
	if d.active, err = d.IsActive(); err != nil {
		return err
	}
	info, err := d.GetInfo()
	if err != nil {
		return err
	}
	d.cpus, d.memory = int(info.NrVirtCpu), int64(info.MaxMem)<<10 // libvirt counts in KiB
	text, err := d.GetMetadata(virt.DOMAIN_METADATA_ELEMENT, namespace, virt.DOMAIN_AFFECT_CURRENT)
	if is(err, virt.ERR_NO_DOMAIN_METADATA) {
		return nil
	}
	if err != nil {
		return err
	}
	d.mark, _ = parseMark("machine", text)
	return nil
}

// setMade says in the domain's metadata whether all its disks are complete.
func setMade(dom *virt.Domain, s director.Stamp, made string) error {
	m := mark{Director: s.Director, ID: s.Machine, Made: made}
	impact := virt.DOMAIN_AFFECT_CONFIG
	if active, err := dom.IsActive(); err == nil && active {
		impact |= virt.DOMAIN_AFFECT_LIVE
	}
	return dom.SetMetadata(virt.DOMAIN_METADATA_ELEMENT, m.element("machine", false), "kaas", namespace, impact)
}

// findDomain returns the domain with the id, or nil.
func findDomain(c *virt.Connect, id string) (*domain, error) {
	dom, err := c.LookupDomainByUUIDString(id)
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return inspect(dom)
}

// locate returns the VM and the host that has it, or a nil host. Errors: unavailable if it was found nowhere and a host did not
// answer.
func (b *Backend) locate(ctx context.Context, op, id string) (hypervisor.VM, *host, error) {
	var failed error
	for _, h := range b.hosts {
		vm, err := call(ctx, h, op, func(c *virt.Connect) (hypervisor.VM, error) {
			d, err := findDomain(c, id)
			if d == nil || err != nil {
				return hypervisor.VM{}, err
			}
			defer func() { _ = d.Free() }()
			return d.vm(h), nil
		})
		if vm.ID != "" {
			return vm, h, nil
		}
		failed = cmp.Or(failed, err)
	}
	return hypervisor.VM{}, nil, failed
}

// Ensure implements hypervisor.Backend. Where the machine exists on a host already, or its data disks do, it stays there.
// Spec.Host says where a new one goes; without it a new one goes to the host with the most free memory, and every host must
// answer, since the machine may exist on the one that does not.
func (b *Backend) Ensure(ctx context.Context, s hypervisor.Spec) (hypervisor.VM, error) {
	const op = "libvirt.ensure"
	if err := s.Validate(op); err != nil {
		return hypervisor.VM{}, err
	}
	return locked(ctx, b, op, machineKey(s.Key), func(work context.Context) (hypervisor.VM, error) {
		h, err := b.place(work, op, s)
		if err != nil {
			return hypervisor.VM{}, err
		}
		return call(work, h, op, func(c *virt.Connect) (hypervisor.VM, error) { return b.ensure(ctx, op, h, c, s) })
	})
}

// place chooses the host.
func (b *Backend) place(ctx context.Context, op string, s hypervisor.Spec) (*host, error) {
	var asked *host
	for _, h := range b.hosts {
		if h.Name == s.Host {
			asked = h
		}
	}
	if s.Host != "" && asked == nil {
		return nil, director.Errorf(director.KindNotFound, op, "the provider has no host %q", s.Host)
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
	var best *host
	var most int64
	for _, h := range b.hosts {
		type answer struct {
			disks bool
			free  int64
		}
		a, err := inPool(ctx, h, op, func(p *pool) (answer, error) {
			disks, err := p.dataDisks(func(stamp director.Stamp) bool { return stamp == s.Key })
			if err != nil {
				return answer{}, err
			}
			row, err := p.capacity()
			return answer{len(disks) > 0, row.MemoryFree}, err
		})
		if err != nil {
			if asked == nil || asked == h {
				return nil, err
			}
			continue
		}
		if a.disks {
			if asked != nil && asked != h {
				return nil, director.Errorf(director.KindConflict, op, "the data disks of %s are on host %s and not on %s", s.Name, h.Name, asked.Name).
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

// ensure is Ensure on the chosen host. Each line may be the last one, and the next call goes on from there.
func (b *Backend) ensure(ctx context.Context, op string, h *host, c *virt.Connect, s hypervisor.Spec) (hypervisor.VM, error) {
	id := domainUUID(s.Key)
	d, err := findDomain(c, id)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if d != nil {
		defer func() { _ = d.Free() }()
		if d.mark.stamp() != s.Key {
			return hypervisor.VM{}, director.Errorf(director.KindConflict, op, "the VM %s on host %s has our UUID %s and another stamp", d.name, h.Name, id).
				WithHint("somebody changed its metadata; restore the stamp, or remove the VM by hand")
		}
	}
	if d == nil || !d.made() {
		if err := b.build(ctx, op, h, c, s, d); err != nil {
			return hypervisor.VM{}, err
		}
	}
	return b.start(ctx, op, h, c, id)
}

// build defines the domain and makes its disks. old is what an earlier try left of it, or nil.
func (b *Backend) build(ctx context.Context, op string, h *host, c *virt.Connect, s hypervisor.Spec, old *domain) error {
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
	if old != nil && old.name != s.Name {
		if err := undefine(old.Domain); err != nil {
			return err
		}
	}
	if err := interrupted(ctx, op); err != nil {
		return err
	}

	text, err := b.domainXML(kind, p, s)
	if err != nil {
		return err
	}
	dom, err := c.DomainDefineXML(text)
	if err != nil {
		if taken := nameIsFree(op, h, c, s); taken != nil { // since we looked
			return taken
		}
		return err
	}
	defer func() { _ = dom.Free() }()
	if err := b.at("defined"); err != nil {
		return err
	}

	for _, v := range volumes(s, base.path) {
		vol, err := p.ensure(v, v.name == rootName(s.Key))
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
	if err := b.at("uploaded"); err != nil {
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

// start powers the domain on.
func (b *Backend) start(ctx context.Context, op string, h *host, c *virt.Connect, id string) (hypervisor.VM, error) {
	d, err := findDomain(c, id)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if d == nil {
		return hypervisor.VM{}, director.Errorf(director.KindUnavailable, op, "the VM vanished from host %s while it was made", h.Name)
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
	if d.mark.Made != "yes" { // two directors made it at once, and one defined it again under the other; it runs, so it is complete
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
func (b *Backend) precheck(op string, h *host, c *virt.Connect, p *pool, s hypervisor.Spec) (*image, error) {
	base, err := p.image(s.Image)
	if err != nil {
		return nil, err
	}
	if base == nil {
		return nil, director.Errorf(director.KindNotFound, op, "host %s has no complete image %q in the storage pool %q", h.Name, s.Image, h.Pool).
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
	disks := []int64{s.RootDisk}
	for _, d := range s.DataDisks {
		disks = append(disks, d.Size)
	}
	return base, p.room(0, disks...)
}

// volumes are the VM's disks but the seed, and the file of its console.
func volumes(s hypervisor.Spec, base string) []volume {
	list := []volume{{name: rootName(s.Key), size: uint64(s.RootDisk), format: "qcow2", backing: base}}
	for _, d := range s.DataDisks {
		list = append(list, volume{name: dataName(s.Key, d.Serial), size: uint64(d.Size), format: "qcow2"})
	}
	return append(list, volume{name: consoleName(s.Key), format: "raw"})
}

// Get implements hypervisor.Backend.
func (b *Backend) Get(ctx context.Context, id hypervisor.ID) (hypervisor.VM, error) {
	const op = "libvirt.get"
	vm, _, err := b.get(ctx, op, id)
	return vm, err
}

func (b *Backend) get(ctx context.Context, op string, id hypervisor.ID) (hypervisor.VM, *host, error) {
	if uuid.Validate(string(id)) != nil {
		return hypervisor.VM{}, nil, notThere(op, id)
	}
	vm, h, err := b.locate(ctx, op, string(id))
	if h == nil && err == nil {
		err = notThere(op, id)
	}
	return vm, h, err
}

func notThere(op string, id hypervisor.ID) error {
	return director.Errorf(director.KindNotFound, op, "there is no VM with the id %s", id)
}

// List implements hypervisor.Backend. All hosts must answer.
func (b *Backend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	const op = "libvirt.list"
	if f.Director == "" && !f.Strangers {
		return nil, director.Invalid(op, "the filter is wrong", []director.Field{{Path: "director", Msg: "is empty"}})
	}
	var all []hypervisor.VM
	for _, h := range b.hosts {
		rows, err := call(ctx, h, op, func(c *virt.Connect) ([]hypervisor.VM, error) {
			domains, err := c.ListAllDomains(0)
			if err != nil {
				return nil, err
			}
			var rows []hypervisor.VM
			for i := range domains {
				d, err := inspect(&domains[i])
				if err != nil {
					return nil, err
				}
				if d == nil {
					continue
				}
				if f.Match(d.mark.stamp()) {
					rows = append(rows, d.vm(h))
				}
				_ = d.Free()
			}
			return rows, nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(x, y hypervisor.VM) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID)) })
	return all, nil
}

// SetPower implements hypervisor.Backend. Off is immediate; Delete has the patient way.
func (b *Backend) SetPower(ctx context.Context, id hypervisor.ID, p hypervisor.Power) error {
	const op = "libvirt.set_power"
	if p != hypervisor.PowerOn && p != hypervisor.PowerOff {
		return director.Errorf(director.KindInvalid, op, "%q is not a power state", p)
	}
	_, h, err := b.get(ctx, op, id)
	if err != nil {
		return err
	}
	_, err = call(ctx, h, op, func(c *virt.Connect) (none, error) {
		d, err := findDomain(c, string(id))
		if err != nil {
			return none{}, err
		}
		if d == nil {
			return none{}, notThere(op, id)
		}
		defer func() { _ = d.Free() }()
		return none{}, d.power(p == hypervisor.PowerOn)
	})
	return err
}

// Delete implements hypervisor.Backend. The domain goes last, so that a half-done Delete is still listed.
func (b *Backend) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	const op = "libvirt.delete"
	return b.alone(ctx, op, machineKey(o.Owner), func(work context.Context) error { return b.delete(ctx, work, op, id, o) })
}

// delete is Delete under the machine's lock. It waits for the guest as long as ctx does; what it has begun besides, it ends.
func (b *Backend) delete(ctx, work context.Context, op string, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	vm, h, err := b.get(work, op, id)
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return err
	}
	if err != nil { // gone; so are its volumes, unless somebody removed the domain by hand
		if string(id) != domainUUID(o.Owner) {
			return nil
		}
		return b.onEachPool(work, op, func(p *pool) error { return p.removeMachine(o.Owner, o.DataDisks) })
	}
	if vm.Stamp != o.Owner || o.Owner == (director.Stamp{}) {
		return director.Errorf(director.KindConflict, op, "the VM %s on host %s has another owner (%s/%s)", vm.Name, h.Name, vm.Stamp.Director, vm.Stamp.Machine).
			WithHint("it is left as it is; remove it by hand if it is yours")
	}
	if err := b.shutdown(ctx, op, h, id, o.Grace); err != nil {
		return err
	}
	_, err = call(work, h, op, func(c *virt.Connect) (none, error) { return none{}, h.deleteDomain(op, c, id, o) })
	return err
}

// shutdown asks the guest to power off and waits for it, at most for grace. No error if it does not comply.
func (b *Backend) shutdown(ctx context.Context, op string, h *host, id hypervisor.ID, grace time.Duration) error {
	active := func(ask bool) (bool, error) {
		return call(ctx, h, op, func(c *virt.Connect) (bool, error) {
			d, err := findDomain(c, string(id))
			if d == nil || err != nil {
				return false, err
			}
			defer func() { _ = d.Free() }()
			if ask && d.active {
				if err := d.Shutdown(); err != nil {
					h.log.InfoContext(ctx, "guest takes no request to shut down", "vm", d.name, "err", err)
					return false, nil
				}
			}
			return d.active, nil
		})
	}
	if grace <= 0 {
		return nil
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for ask := true; ; ask = false {
		if on, err := active(ask); !on || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return interrupted(ctx, op)
		}
	}
}

func (h *host) deleteDomain(op string, c *virt.Connect, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	d, err := findDomain(c, string(id))
	if d == nil || err != nil {
		return err
	}
	defer func() { _ = d.Free() }()
	if d.mark.stamp() != o.Owner {
		return director.Errorf(director.KindConflict, op, "the VM %s has another owner now", d.name)
	}
	if err := d.power(false); err != nil {
		return err
	}
	if d.mark.Made != "" { // from here on it is half a machine
		if err := setMade(d.Domain, o.Owner, ""); err != nil {
			return err
		}
	}
	p, err := h.pool(op, c)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.removeMachine(o.Owner, o.DataDisks); err != nil {
		return err
	}
	return undefine(d.Domain)
}

func undefine(dom *virt.Domain) error {
	err := dom.UndefineFlags(virt.DOMAIN_UNDEFINE_MANAGED_SAVE | virt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
		virt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | virt.DOMAIN_UNDEFINE_NVRAM)
	if is(err, virt.ERR_INVALID_ARG, virt.ERR_NO_SUPPORT) { // a driver without NVRAM or checkpoints
		err = dom.Undefine()
	}
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil
	}
	return err
}

// ConsoleTail implements hypervisor.Console. It is empty for a VM that has printed nothing yet.
func (b *Backend) ConsoleTail(ctx context.Context, id hypervisor.ID, maxBytes int) ([]byte, error) {
	const op = "libvirt.console_tail"
	vm, h, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	if vm.Stamp == (director.Stamp{}) {
		return nil, director.Errorf(director.KindNotFound, op, "the VM %s is not the director's; its console is not kept", vm.Name)
	}
	return inPool(ctx, h, op, func(p *pool) ([]byte, error) {
		v, err := p.find(consoleName(vm.Stamp))
		if v == nil || err != nil {
			return nil, err
		}
		defer func() { _ = v.Free() }()
		return tail(p.conn, v, maxBytes)
	})
}

// tail reads the end of a volume.
func tail(c *virt.Connect, v *virt.StorageVol, maxBytes int) ([]byte, error) {
	info, err := v.GetInfoFlags(virt.STORAGE_VOL_GET_PHYSICAL)
	if err != nil {
		return nil, err
	}
	size := info.Allocation // physical, by the flag
	length := min(size, uint64(max(maxBytes, 0)))
	if length == 0 {
		return nil, nil
	}
	stream, err := c.NewStream(0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Free() }()
	if err := v.Download(stream, size-length, length, 0); err != nil {
		return nil, err
	}
	text := make([]byte, 0, length)
	buffer := make([]byte, 64<<10)
	for {
		n, err := stream.Recv(buffer)
		text = append(text, buffer[:max(n, 0)]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = stream.Abort()
			return nil, err
		}
	}
	return text, stream.Finish()
}

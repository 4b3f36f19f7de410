package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var (
	_ hypervisor.Backend    = (*Backend)(nil)
	_ hypervisor.Imaging    = (*Backend)(nil)
	_ hypervisor.Networking = (*Backend)(nil)
	_ hypervisor.Capacity   = (*Backend)(nil)
	_ hypervisor.Volumes    = (*Backend)(nil)
	_ hypervisor.Console    = (*Backend)(nil)
	_ hypervisor.Adopter    = (*Backend)(nil)
	_ hypervisor.DiskTeller = (*Backend)(nil)
	_ hypervisor.Hosts      = (*Backend)(nil)
)

// Backend is one director's connection to a World.
type Backend struct {
	w      *World
	closed *atomic.Bool
	lost   map[string]bool // hosts that Without left out
	view   bool            // of another Backend
}

// Open returns a back end on w.
func Open(w *World) *Backend { return &Backend{w: w, closed: &atomic.Bool{}} }

// World returns the world of the back end.
func (b *Backend) World() *World { return b.w }

// Close implements hypervisor.Backend. What exists stays in the World.
func (b *Backend) Close() error {
	if !b.view {
		b.closed.Store(true)
	}
	return nil
}

// do runs act under the world's lock, with the faults around it. act gets the place where it shall break off; it
// returns after half of its work for Midway.
func (b *Backend) do(ctx context.Context, v Verb, keys []string, act func(op string, when When) error) error {
	op := "sim." + string(v)
	if b.closed.Load() {
		return director.Errorf(director.KindUnavailable, op, "the back end was closed")
	}
	f, rest, err := b.w.strike(ctx, v, keys...)
	if err != nil {
		return err
	}
	if err := b.act(op, f, act); err != nil {
		return err
	}
	return wait(ctx, op, rest)
}

// act changes the world and writes down what it changed.
func (b *Backend) act(op string, f *Fault, act func(op string, when When) error) error {
	when := Before
	if f != nil {
		if f.When == Before {
			return f.Err
		}
		when = f.When
	}
	if err := b.w.enter(op); err != nil {
		return err
	}
	defer b.w.leave()
	err := act(op, when)
	if jerr := b.w.journal.flush(op); jerr != nil {
		return jerr
	}
	if err == nil && f != nil {
		return f.Err
	}
	return err
}

// Ensure implements hypervisor.Backend.
func (b *Backend) Ensure(ctx context.Context, s hypervisor.Spec) (hypervisor.VM, error) {
	var got hypervisor.VM
	err := b.do(ctx, VerbEnsure, []string{s.Key.Machine, s.Name}, func(op string, when When) error {
		if err := s.Validate(op); err != nil {
			return err
		}
		w := b.w
		v := w.byStamp(s.Key)
		if v != nil && b.lost[v.Host] {
			return leftOut(op, v.Host)
		}
		if v == nil {
			if err := b.check(op, s); err != nil {
				return err
			}
			on, err := b.place(op, s)
			if err != nil {
				return err
			}
			id := w.newID()
			v = &vm{
				VM: hypervisor.VM{ID: id, Name: s.Name, Host: on, Stamp: s.Key, Power: hypervisor.PowerOff}, spec: s,
				seeded: true,
			}
			v.spec.Seed = hypervisor.Seed{}
			w.putVM(v)
		}
		if w.hosts[v.Host].down {
			return unreachable(op, v.Host)
		}
		if when == Midway {
			return nil
		}
		v.ensured++
		if v.made || v.ensured >= w.attempts {
			for _, d := range s.DataDisks {
				key := diskKey{d.Owner(s.Key), d.Serial}
				if w.disks[key] == nil {
					w.putDisk(key, &disk{host: v.Host, size: d.Size})
				}
			}
			if !v.made || v.Power != hypervisor.PowerOn {
				v.made = true
				w.power(v, hypervisor.PowerOn)
			}
		}
		got = v.seen()
		return nil
	})
	if err != nil {
		return hypervisor.VM{}, err
	}
	return got, nil
}

// seen is the VM as callers see it.
func (v *vm) seen() hypervisor.VM {
	x := v.VM
	x.Ready = v.made && v.Power == hypervisor.PowerOn
	x.CPUs, x.Memory, x.Adapters = v.spec.CPUs, v.spec.Memory, nil
	for _, n := range v.spec.NICs {
		x.Adapters = append(x.Adapters, hypervisor.Adapter{Network: n.Network, MAC: n.MAC})
	}
	return x
}

func (w *things) byStamp(s director.Stamp) *vm { return w.stamps[s] }

// check tells what keeps a new VM from existing.
func (b *Backend) check(op string, s hypervisor.Spec) error {
	if err := s.NeedsSeed(op); err != nil {
		return err
	}
	w := b.w
	if w.names[s.Name] > b.namesakes(s.Name) {
		return director.Errorf(director.KindConflict, op, "a VM named %q exists and is not ours", s.Name).
			WithHint("choose another name, or remove that VM by hand")
	}
	if i := w.images[s.Image]; i == nil || !i.done {
		return director.Errorf(director.KindNotFound, op, "there is no image %q", s.Image)
	}
	for _, n := range s.NICs {
		if w.networks[n.Network] == nil {
			return director.Errorf(director.KindNotFound, op, "there is no network %q", n.Network)
		}
	}
	if err := w.whole(op, s.Key, s.DataDisks); err != nil {
		return err
	}
	return w.takeable(op, s)
}

// free returns what is left on a host.
func (w *things) free(h *host) (memory, space int64) {
	return h.Memory - h.memory, h.Disk - h.space
}

// place chooses the host: where the VM's data disks are, the one that was asked for, or the one with the most free
// memory.
func (b *Backend) place(op string, s hypervisor.Spec) (string, error) {
	w, want := b.w, s.Host
	need := s.RootDisk
	for _, d := range s.DataDisks {
		if kept := w.disks[diskKey{d.Owner(s.Key), d.Serial}]; kept != nil {
			if want != "" && want != kept.host {
				return "", director.Errorf(director.KindConflict, op, "the data disk %s of %s is on host %s and not "+
					"on %s",
					d.Serial, s.Name, kept.host, want)
			}
			want = kept.host
		} else {
			need += d.Size
		}
	}
	if want != "" {
		h := w.hosts[want]
		if b.lost[want] {
			return "", leftOut(op, want)
		}
		if h == nil {
			return "", director.Errorf(director.KindNotFound, op, "there is no host %q", want)
		}
		if h.down {
			return "", unreachable(op, want)
		}
		if memory, space := w.free(h); memory < s.Memory || space < need {
			return "", director.Errorf(director.KindExhausted, op, "host %s has no room for %s", want, s.Name)
		}
		return want, nil
	}
	best, most := "", int64(-1)
	for _, name := range b.hostNames() {
		h := w.hosts[name]
		if h.down { // the VM may exist there
			return "", unreachable(op, name)
		}
		if memory, space := w.free(h); memory >= s.Memory && space >= need && memory > most {
			best, most = name, memory
		}
	}
	if best == "" {
		return "", director.Errorf(director.KindExhausted, op, "no host has room for %s", s.Name)
	}
	return best, nil
}

func unreachable(op, host string) error {
	return director.Errorf(director.KindUnavailable, op, "host %s does not answer", host)
}

func (b *Backend) find(op string, id hypervisor.ID) (*vm, error) {
	w := b.w
	if v := w.vms[id]; v != nil && !b.lost[v.Host] {
		if w.hosts[v.Host].down {
			return nil, unreachable(op, v.Host)
		}
		return v, nil
	}
	for _, name := range b.hostNames() {
		if w.hosts[name].down {
			return nil, unreachable(op, name)
		}
	}
	return nil, director.Errorf(director.KindNotFound, op, "there is no VM with the id %s", id)
}

// Get implements hypervisor.Backend.
func (b *Backend) Get(ctx context.Context, id hypervisor.ID) (hypervisor.VM, error) {
	var got hypervisor.VM
	err := b.do(ctx, VerbGet, []string{string(id)}, func(op string, _ When) error {
		v, err := b.find(op, id)
		if err != nil {
			return err
		}
		got = v.seen()
		return nil
	})
	if err != nil {
		return hypervisor.VM{}, err
	}
	return got, nil
}

// List implements hypervisor.Backend.
func (b *Backend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	var got []hypervisor.VM
	err := b.do(ctx, VerbList, []string{f.Machine}, func(op string, _ When) error {
		if f.Director == "" && !f.Strangers {
			return director.Invalid(op, "the filter is wrong", []director.Field{{Path: "director", Msg: "is empty"}})
		}
		for _, name := range b.hostNames() {
			if b.w.hosts[name].down {
				return unreachable(op, name)
			}
		}
		if f.Machine != "" && !f.Strangers {
			if v := b.w.byStamp(director.Stamp{Director: f.Director, Machine: f.Machine}); v != nil && !b.lost[v.Host] {
				got = append(got, v.seen())
			}
			return nil
		}
		for _, v := range b.w.vms {
			if f.Match(v.Stamp) && !b.lost[v.Host] {
				got = append(got, v.seen())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(got, func(x, y hypervisor.VM) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return got, nil
}

// SetPower implements hypervisor.Backend.
func (b *Backend) SetPower(ctx context.Context, id hypervisor.ID, p hypervisor.Power) error {
	return b.do(ctx, VerbSetPower, []string{string(id)}, func(op string, when When) error {
		v, err := b.find(op, id)
		if err != nil || when == Midway {
			return err
		}
		if p != hypervisor.PowerOn && p != hypervisor.PowerOff {
			return director.Errorf(director.KindInvalid, op, "%q is not a power state", p)
		}
		if v.Power != p {
			b.w.power(v, p)
		}
		return nil
	})
}

// Delete implements hypervisor.Backend.
func (b *Backend) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	return b.do(ctx, VerbDelete, []string{string(id), o.Owner.Machine}, func(op string, when When) error {
		v, err := b.find(op, id)
		if director.KindOf(err) == director.KindNotFound && err != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if v.Stamp != o.Owner || o.Owner == (director.Stamp{}) {
			return director.Errorf(director.KindConflict, op, "the VM %s has another owner", v.Name).
				WithHint("it is left as it is; remove it by hand if it is yours")
		}
		if o.DataDisks {
			if user := b.w.diskUser(o.Owner, nil, v); user != nil {
				return inUse(op, user)
			}
		}
		b.w.label(v, o)
		if when == Midway {
			v.made = false
			b.w.power(v, hypervisor.PowerOff)
			return nil
		}
		if o.DataDisks {
			b.w.dropDisks(o.Owner, nil)
		}
		b.w.dropVM(v)
		return nil
	})
}

// EnsureImage implements hypervisor.Imaging. It reads the file for its checksum and keeps nothing else of it.
func (b *Backend) EnsureImage(ctx context.Context, s hypervisor.ImageSpec, progress func(done, total int64)) error {
	var read int64
	err := b.do(ctx, VerbEnsureImage, []string{s.Name}, func(op string, when When) error {
		if err := s.Validate(op); err != nil {
			return err
		}
		i := b.w.images[s.Name]
		if i != nil && i.done {
			if i.sum != s.SHA256 {
				return director.Errorf(director.KindConflict, op, "the image %q exists with another checksum", s.Name)
			}
			return nil
		}
		f, err := confine.Open(s.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return director.Errorf(director.KindNotFound, op, "there is no file %s", s.Path)
		}
		if err != nil {
			return director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
		}
		defer f.Close()
		sum := sha256.New()
		n, err := io.Copy(sum, f)
		if err != nil {
			return director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
			return director.Errorf(director.KindInvalid, op, "%s has the SHA-256 %s and not %s", s.Path, got, s.SHA256)
		}
		b.w.putImage(s.Name, &image{sum: s.SHA256, done: when != Midway})
		if when != Midway {
			read = n
		}
		return nil
	})
	if progress != nil && read > 0 { // outside the world's lock, because it is the caller's code
		progress(read, read)
	}
	return err
}

// DeleteImage implements hypervisor.Imaging.
func (b *Backend) DeleteImage(ctx context.Context, name string) error {
	return b.do(ctx, VerbDeleteImage, []string{name}, func(op string, when When) error {
		for _, v := range b.w.vms {
			if v.spec.Image == name {
				return director.Errorf(director.KindConflict, op, "the VM %s is linked to the image %q", v.Name, name)
			}
		}
		if when != Midway {
			b.w.dropImage(name)
		}
		return nil
	})
}

// EnsureNetwork implements hypervisor.Networking.
func (b *Backend) EnsureNetwork(ctx context.Context, s hypervisor.NetworkSpec) error {
	return b.do(ctx, VerbEnsureNetwork, []string{s.Name, s.Owner.Machine}, func(op string, when When) error {
		if err := s.Validate(op); err != nil {
			return err
		}
		n := b.w.networks[s.Name]
		switch {
		case n != nil && n.Owner != s.Owner:
			return director.Errorf(director.KindConflict, op, "a network named %q exists and is not ours", s.Name)
		case n != nil && n.NetworkSpec != s:
			return director.Errorf(director.KindConflict, op, "the network %q exists with other settings", s.Name)
		case n == nil:
			for name, other := range b.w.networks {
				if s.Mode != "bridge" && other.Mode != "bridge" && other.CIDR.Overlaps(s.CIDR) {
					return director.Errorf(
						director.KindConflict, op, "%s overlaps %s of the network %q", s.CIDR, other.CIDR, name,
					)
				}
			}
			n = &network{NetworkSpec: s}
		case n.started:
			return nil
		}
		n.started = when != Midway
		b.w.putNetwork(n)
		return nil
	})
}

// DeleteNetwork implements hypervisor.Networking.
func (b *Backend) DeleteNetwork(ctx context.Context, name string, owner director.Stamp) error {
	return b.do(ctx, VerbDeleteNetwork, []string{name, owner.Machine}, func(op string, when When) error {
		n := b.w.networks[name]
		if n == nil {
			return nil
		}
		if n.Owner != owner {
			return director.Errorf(director.KindConflict, op, "the network %q has another owner", name)
		}
		for _, v := range b.w.vms {
			for _, nic := range v.spec.NICs {
				if nic.Network == name {
					return director.Errorf(director.KindConflict, op, "the VM %s uses the network %q", v.Name, name)
				}
			}
		}
		if when == Midway {
			n.started = false
			b.w.putNetwork(n)
			return nil
		}
		b.w.dropNetwork(name)
		return nil
	})
}

// Capacity implements hypervisor.Capacity.
func (b *Backend) Capacity(ctx context.Context) ([]hypervisor.HostCapacity, error) {
	var rows []hypervisor.HostCapacity
	err := b.do(ctx, VerbCapacity, nil, func(op string, _ When) error {
		for _, name := range b.hostNames() {
			h := b.w.hosts[name]
			if h.down {
				return unreachable(op, name)
			}
			memory, space := b.w.free(h)
			rows = append(rows, hypervisor.HostCapacity{
				Host: name, CPUs: h.CPUs, Memory: h.Memory, MemoryFree: max(memory, 0), Disk: h.Disk,
				DiskFree: max(space, 0),
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// ListVolumes implements hypervisor.Volumes.
func (b *Backend) ListVolumes(ctx context.Context, directorID string) ([]hypervisor.VolumeInfo, error) {
	var rows []hypervisor.VolumeInfo
	err := b.do(ctx, VerbListVolumes, nil, func(string, When) error {
		users := map[diskKey]string{}
		for _, v := range b.w.vms {
			for _, k := range v.disks() {
				users[k] = v.Name
			}
		}
		for k, d := range b.w.disks {
			if k.stamp.Director == directorID && !b.lost[d.host] {
				row := hypervisor.VolumeInfo{
					Name: k.name(), Host: d.host, Size: d.size, Stamp: k.stamp, Serial: k.serial, Label: d.label,
					VM: users[k],
				}
				rows = append(rows, row)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(x, y hypervisor.VolumeInfo) int { return cmp.Compare(x.Name, y.Name) })
	return rows, nil
}

// DeleteVolume implements hypervisor.Volumes.
func (b *Backend) DeleteVolume(ctx context.Context, owner director.Stamp, serials ...string) error {
	return b.do(ctx, VerbDeleteVolume, []string{owner.Machine}, func(op string, when When) error {
		if v := b.w.diskUser(owner, serials, nil); v != nil {
			return inUse(op, v)
		}
		if when == Midway {
			return nil
		}
		b.w.dropDisks(owner, serials)
		return nil
	})
}

// ConsoleTail implements hypervisor.Console.
func (b *Backend) ConsoleTail(ctx context.Context, id hypervisor.ID, maxBytes int) ([]byte, error) {
	var tail []byte
	err := b.do(ctx, VerbConsoleTail, []string{string(id)}, func(op string, _ When) error {
		v, err := b.find(op, id)
		if err != nil {
			return err
		}
		tail = slices.Clone(v.console[max(0, len(v.console)-maxBytes):])
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tail, nil
}

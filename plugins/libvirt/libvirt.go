// Package libvirt runs VMs on hosts with libvirt and QEMU.
//
// What belongs to a machine is found again by its stamp alone, so a director that died at any line continues where it
// was:
//
//   - The domain's UUID is computed from the stamp. The domain is defined first, so that half a machine is already
//     listed, and its metadata carries the stamp and, once every disk is complete, the mark made.
//   - Volumes are named kaas.<director>.<machine>.<use>, because libvirt keeps no metadata with volumes. The root
//     disk is a qcow2 clone that is linked to the image's volume; in a pool of another one it is a full copy of it.
//   - Delete takes the volumes away first and the domain last. Data disks stay, and an empty volume next to the
//     seeds says by its name whose they were:
//     <disk>.kept.<cluster>.<pool>.<node>.
//
// The storage pool of images, seeds and consoles must hold files (types dir, fs or netfs). Disks may go to another one,
// also to a volume group (type logical), where they are raw. A pool of type netfs is taken to be the same on all hosts
// that name it.
package libvirt

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/keyed"
)

var (
	_ hypervisor.Backend    = (*Backend)(nil)
	_ hypervisor.Imaging    = (*Backend)(nil)
	_ hypervisor.Networking = (*Backend)(nil)
	_ hypervisor.Capacity   = (*Backend)(nil)
	_ hypervisor.Volumes    = (*Backend)(nil)
	_ hypervisor.DiskCopier = (*Backend)(nil)
	_ hypervisor.DiskTeller = (*Backend)(nil)
	_ hypervisor.Adopter    = (*Backend)(nil)
	_ hypervisor.Console    = (*Backend)(nil)
	_ hypervisor.Hosts      = (*Backend)(nil)
)

// HostConfig is one hypervisor host.
type HostConfig struct {
	Name string // how the director calls it
	URI  string // as director/libvirturi takes it: qemu:///system, qemu+ssh://root@host/system ...
	Pool string // storage pool of files, for images and disks; default "default"
	// DiskPool is the storage pool of disks if it is another one; it may be of type logical.
	DiskPool string
}

// Config is what Open needs.
type Config struct {
	Hosts       []HostConfig
	DomainType  string // auto (default), kvm or qemu
	MachineType string // default q35
	Firmware    string // bios (default) or efi
	CPUMode     string // libvirt's mode of <cpu>; default: host-passthrough under KVM, x86-64-v2 under emulation
	// NoGuestAgent leaves out the channel to QEMU's guest agent, by which libvirt shuts guests down.
	NoGuestAgent bool
	DiskCache    string // QEMU's cache mode; default is QEMU's own, "unsafe" is for laboratories
	Autostart    bool   // start VMs when their host boots
	// Doors is what the URIs may lead to. The zero value allows libvirt on the director's own machine alone.
	Doors Doors
	Log   *slog.Logger

	testDriver bool // seam for tests: URIs may name libvirt's test driver
}

// minFree is what a pool must have free before anything is made in it. Disks are thin, so this only keeps the last
// bytes of a full pool for the VMs that live there already.
const minFree = 256 << 20

// fleet is the provider's hosts: what is asked of one of them, of each, or of the one with a certain domain.
type fleet struct {
	cfg   Config
	hosts []*host // that it asks, ordered by name
	all   []*host // of the provider
	view  bool    // of another Backend, whose hosts it shares
	locks *keyed.Locks

	patience patience

	// Seams for tests.
	at     func(point string) error // called between the lines of Ensure
	upload func(ctx context.Context, c *virt.Connect, v *virt.StorageVol, src source) error
	clone  func(p *pool, xml string, image *virt.StorageVol) (*virt.StorageVol, error)
}

// domains makes domains with their disks, takes over others' domains, and deletes them.
type domains struct{ *fleet }

// Backend implements hypervisor.Backend and all its optional interfaces.
type Backend struct {
	*fleet
	*domains
}

func newBackend(f *fleet) *Backend { return &Backend{f, &domains{f}} }

// Open returns a back end. It does not connect yet: hosts that are down are reported by the first call that needs them.
// Errors: invalid with all that is wrong with the configuration.
func Open(cfg Config) (*Backend, error) {
	const op = "libvirt.open"
	cfg.DomainType = cmp.Or(cfg.DomainType, "auto")
	cfg.Firmware = cmp.Or(cfg.Firmware, "bios")
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	var fields []director.Field
	want := func(ok bool, path, format string, args ...any) {
		if !ok {
			fields = append(fields, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
		}
	}
	want(
		slices.Contains([]string{"auto", "kvm", "qemu"}, cfg.DomainType), "domainType", "%q is not auto, kvm or qemu",
		cfg.DomainType,
	)
	want(slices.Contains([]string{"bios", "efi"}, cfg.Firmware), "firmware", "%q is not bios or efi", cfg.Firmware)
	want(
		slices.Contains([]string{"", "host-passthrough", "host-model", "maximum"}, cfg.CPUMode), "cpuMode",
		"%q is not host-passthrough, host-model or maximum", cfg.CPUMode,
	)
	want(len(cfg.Hosts) > 0, "hosts", "is empty")
	b := &fleet{
		cfg: cfg, locks: &keyed.Locks{}, at: func(string) error { return nil }, upload: uploadStream,
		clone: cloneVolume, patience: usualPatience,
	}
	names := map[string]bool{}
	for i, h := range cfg.Hosts {
		at := fmt.Sprintf("hosts[%d]", i)
		want(h.Name != "", at+".name", "is empty")
		want(!names[h.Name], at+".name", "%q is there twice", h.Name)
		names[h.Name] = true
		door, err := cfg.door(h.URI)
		want(err == nil, at+".uri", "%v", err)
		h.Pool = cmp.Or(h.Pool, "default")
		h.DiskPool = cmp.Or(h.DiskPool, h.Pool)
		b.hosts = append(b.hosts, &host{
			HostConfig: h, door: door, log: cfg.Log.With("backend", "libvirt", "host", h.Name),
			turn: make(chan struct{}, 1),
		})
	}
	if err := director.Invalid(op, "the libvirt provider's settings are wrong", fields); err != nil {
		return nil, err
	}
	slices.SortFunc(b.hosts, func(x, y *host) int { return cmp.Compare(x.Name, y.Name) })
	b.all = b.hosts
	return newBackend(b), nil
}

// Close implements hypervisor.Backend.
func (b *Backend) Close() error {
	if b.view {
		return nil
	}
	for _, h := range b.hosts {
		h.close()
	}
	return nil
}

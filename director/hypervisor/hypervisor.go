// Package hypervisor is the contract between the director and whatever runs its VMs.
//
// Backend has the five verbs that every hypervisor knows; what only some can do is an optional interface, found by
// Capability. hypervisortest.Exercise is the one conformance suite, and plugins/libvirt and sim are held to it.
package hypervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
)

// ID is how a back end finds a VM again: its UUID. It is never the VM's name.
type ID string

// Power is the power state of a VM.
type Power string

// The power states.
const (
	PowerOn  Power = "on"
	PowerOff Power = "off"
)

// Disk is a data disk that may live longer than its VM.
type Disk struct {
	// Serial is unique within the VM. The guest finds the disk by it, as /dev/disk/by-id/virtio-<serial>, or by
	// DiskWWN, as /dev/disk/by-id/wwn-0x<wwn>: each back end shows it in one of the two ways.
	Serial string
	Size   int64 // bytes
	// Of is the machine that left the disk behind, if the VM takes over a disk that was kept; zero for a disk of the
	// VM's own. Such a disk has to exist, with its own size, and keeps its stamp.
	Of director.Stamp
}

// Owner is the stamp of the disk in a VM with the key.
func (d Disk) Owner(key director.Stamp) director.Stamp {
	if d.Of != (director.Stamp{}) {
		return d.Of
	}
	return key
}

// DiskLabel says what a disk was for. It is stored next to a disk that Delete keeps, so that people recognize the disk
// on the hypervisor without the director.
type DiskLabel struct {
	Cluster string
	Pool    string
	Node    string
}

// DiskWWN is the world wide name, in 32 hexadecimal digits, of the data disk with that serial of the machine, where
// disks have one. It begins with VMware's prefix, without which vSphere takes none.
func DiskWWN(key director.Stamp, serial string) string {
	sum := sha256.Sum256([]byte("disk/" + key.Director + "/" + key.Machine + "/" + serial))
	return "6000c29" + hex.EncodeToString(sum[:13])[:25]
}

// NIC is a network adapter with the addresses that cloud-init gives it.
type NIC struct {
	Network   string         // name of a network that EnsureNetwork made, or that exists
	PortGroup string         // inventory path of the network's port group, for a network of mode portgroup
	MAC       string         // lower case, with colons
	Addresses []netip.Prefix // static addresses with prefix length
	Gateway   netip.Addr     // zero for none
	DNS       []netip.Addr
	Routes    []Route // in addition to the default route
}

// Route leads to a range of addresses.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// Seed is what cloud-init reads at first boot. The back end decides how it travels (a NoCloud disk, guestinfo) and does
// not look inside.
type Seed struct {
	MetaData      []byte
	UserData      []byte
	NetworkConfig []byte
}

// Empty tells whether there is nothing in it.
func (s Seed) Empty() bool { return len(s.MetaData)+len(s.UserData)+len(s.NetworkConfig) == 0 }

// Spec is a VM as it should be.
type Spec struct {
	Key  director.Stamp // identity: a second Ensure with the same Key returns the same VM
	Name string         // unique on the hypervisor; host name of the guest
	// what it belongs to, such as its cluster; back ends that have folders keep a group in one. May be empty
	Group string
	// never shares a host with another VM of its Group that is Apart, where the back end moves VMs by itself
	Apart    bool
	Host     string // which of the provider's hosts; empty lets the back end choose
	CPUs     int
	Memory   int64  // bytes
	Image    string // name of an image that EnsureImage brought
	RootDisk int64  // bytes; at least the image's virtual size
	// kept by Delete unless told otherwise, and attached again by a later Ensure with the same Key, Adopt, or another
	// VM by Disk.Of
	DataDisks []Disk
	NICs      []NIC
	Seed      Seed // required for a VM that does not exist yet; not looked at otherwise
}

// NeedsSeed returns unavailable if a new VM cannot be made of s for want of a seed: the one that was looked at before
// is gone. Back ends ask it before they make anything.
func (s Spec) NeedsSeed(op string) error {
	if !s.Seed.Empty() {
		return nil
	}
	return director.Errorf(
		director.KindUnavailable, op, "the VM %s does not exist any more, and there is no seed for a new one", s.Name,
	).WithHint("retry: the next try makes a seed")
}

// VM is a VM as it is.
type VM struct {
	ID    ID
	Name  string
	Host  string
	Stamp director.Stamp // zero for a VM that is not ours
	Power Power
	Ready bool // everything that Spec asks for exists and the VM is powered on; says nothing about the guest
	// The size as the hypervisor has it, for drift checks; zero if the back end does not tell.
	CPUs     int
	Memory   int64     // bytes
	Adapters []Adapter // for drift checks; nil if the back end does not tell
}

// Adapter is a network adapter of a VM as it is.
type Adapter struct {
	Network string // as NIC.Network names it; empty if it is on none
	MAC     string
}

// Filter narrows List. The zero Filter lists every VM with our director's stamp.
type Filter struct {
	Director string // stamp's director id; required unless Strangers
	Machine  string // one machine id; empty for all
	// Strangers also lists VMs without a stamp or with another director's.
	Strangers bool
}

// DeleteOptions says how far Delete goes.
type DeleteOptions struct {
	Owner     director.Stamp // must equal the VM's stamp, or Delete refuses with conflict
	DataDisks bool           // also destroy the data disks with the VM's own stamp; one that it took over is kept
	Label     DiskLabel      // what the disks that are kept are labelled with; zero for no label
	Grace     time.Duration  // how long the guest may take to shut down; 0 powers off at once
}

// Backend makes and unmakes VMs on one provider. All methods are safe for concurrent use, return *director.Error and
// honour the context. unavailable means that the hypervisor could not be reached and a later try may work.
type Backend interface {
	// Ensure makes the VM described by s exist and powers it on. It is idempotent by s.Key: a second call, also after a
	// crash at any line, returns the same VM and finishes what is missing; it never makes a twin. It may return before
	// VM.Ready; callers repeat it until then. Errors: conflict if s.Name is taken by a VM with another stamp (which is
	// left untouched) or another VM uses a disk that it is to take over, not_found if the image, a network or such a
	// disk is missing, exhausted if disk space or memory is, unavailable for a new VM without a seed.
	Ensure(ctx context.Context, s Spec) (VM, error)
	// Get returns the VM, or not_found.
	Get(ctx context.Context, id ID) (VM, error)
	// List returns the VMs that f selects, ordered by name.
	List(ctx context.Context, f Filter) ([]VM, error)
	// SetPower brings the VM to p. No error if it is there already.
	SetPower(ctx context.Context, id ID, p Power) error
	// Delete removes the VM with its root disk and seed, and keeps data disks unless told. Disks that others have
	// attached, such as the volumes of a storage driver, are detached and never destroyed. No error if the VM is gone
	// already. A VM whose stamp is not o.Owner is refused with conflict, and so is the end of a data disk that another
	// VM uses.
	Delete(ctx context.Context, id ID, o DeleteOptions) error
	// Close releases connections. The Backend is unusable afterwards.
	Close() error
}

// ImageSpec is a disk image that VMs are cloned from.
type ImageSpec struct {
	Name   string // unique per provider
	Path   string // local file
	SHA256 string // of the file, hex
	Format string // qcow2
}

// Imaging is implemented by back ends that keep images for cloning.
type Imaging interface {
	// EnsureImage brings the image to every host of the provider. It is idempotent by name and checksum; a partial
	// upload of an earlier try is replaced. Errors: conflict if the name holds another checksum, invalid if the file
	// does not match SHA256, exhausted if there is no space. progress is called with bytes done and total; it may be
	// nil.
	EnsureImage(ctx context.Context, s ImageSpec, progress func(done, total int64)) error
	// DeleteImage removes the image. No error if it is gone; conflict while VMs are linked to it.
	DeleteImage(ctx context.Context, name string) error
}

// ModePortGroup is the mode of a network that an administrator of vSphere has made.
const ModePortGroup = "portgroup"

// NetworkSpec is an underlay network for VMs.
type NetworkSpec struct {
	Owner     director.Stamp // Machine holds the network's id
	Name      string
	Mode      string       // open, nat, isolated, bridge, portgroup
	Bridge    string       // the existing bridge for mode bridge; empty lets the back end choose otherwise
	PortGroup string       // inventory path of the existing port group for mode portgroup
	CIDR      netip.Prefix // of the node network
	Gateway   netip.Addr   // the address the host takes on the bridge (not in modes bridge and portgroup)
	// VLAN is the tag of the network, 0 for none. In mode bridge the bridge sees to it; in mode portgroup the port
	// group must have it.
	VLAN        int
	OpenVSwitch bool // the existing bridge is Open vSwitch's (mode bridge)
}

// Networking is implemented by back ends that can make networks.
type Networking interface {
	// EnsureNetwork makes the network exist and started; what was there before (modes bridge and portgroup) is looked
	// for. Idempotent. Errors: conflict if the name belongs to someone else, the range overlaps another network of the
	// host, or the port group has another VLAN, not_found if a port group is missing, invalid for a mode or a VLAN that
	// the back end does not have.
	EnsureNetwork(ctx context.Context, s NetworkSpec) error
	// DeleteNetwork removes a network with our stamp. No error if it is gone; conflict if it is not ours or VMs use it.
	DeleteNetwork(ctx context.Context, name string, owner director.Stamp) error
}

// HostCapacity is what a hypervisor host has and has left.
type HostCapacity struct {
	Host       string
	CPUs       int
	Memory     int64 // bytes
	MemoryFree int64
	Disk       int64 // of the storage that VMs go to
	DiskFree   int64
}

// Capacity is implemented by back ends that can tell what is left, which the pre-checks ask.
type Capacity interface {
	// Capacity returns one row per host, ordered by name.
	Capacity(ctx context.Context) ([]HostCapacity, error)
}

// VolumeInfo is a disk that outlives its VM.
type VolumeInfo struct {
	Name   string
	Host   string // empty if it lies where every host of the provider reaches it
	Size   int64
	Stamp  director.Stamp
	Serial string
	VM     string    // name of the VM that has it; empty if none has
	Label  DiskLabel // as Delete wrote it; zero for a disk that was never kept
}

// Volumes is implemented by back ends that can list and delete the data disks that Delete kept.
type Volumes interface {
	// ListVolumes returns the data disks with our director's stamp.
	ListVolumes(ctx context.Context, directorID string) ([]VolumeInfo, error)
	// DeleteVolume removes the data disks of the stamp with those serials, or all of the stamp without any. No error if
	// they are gone; conflict while a VM uses one of them.
	DeleteVolume(ctx context.Context, owner director.Stamp, serials ...string) error
}

// AttachedDisk is a disk of a VM other than its root disk and its seed.
type AttachedDisk struct {
	Name string // as VolumeInfo.Name has it for a data disk
	Size int64  // zero if the back end does not tell
	// Stamp and Serial are those of a data disk with our kind of name; zero for a disk that someone else has attached.
	Stamp  director.Stamp
	Serial string
}

// DiskTeller is implemented by back ends that tell which disks a VM has, so that what outlives it can be written down
// before it goes.
type DiskTeller interface {
	// AttachedDisks returns the disks, ordered by name. Of a VM that was adopted its maker's root disk is one of them.
	// Errors: not_found if there is no such VM.
	AttachedDisks(ctx context.Context, id ID) ([]AttachedDisk, error)
}

// Adopter is implemented by back ends that can take over a VM that another program created instead of the director.
type Adopter interface {
	// Adopt writes the stamp into the VM of that name, attaches those of the disks that Delete has kept and that it
	// does not have, and powers it on. From then on it is ours like those that Ensure made, except that its own disks
	// are its maker's: Delete leaves them. Its id may become another one with that, which is returned. It is idempotent
	// by key. Errors: not_found if there is no VM of the name, conflict if it has another stamp, or if another VM has
	// this one.
	Adopt(ctx context.Context, key director.Stamp, name string, disks []Disk) (VM, error)
}

// Seeds is implemented by back ends that can take a VM's seed away once its guest has read it: others can read it on
// the hypervisor.
type Seeds interface {
	// RemoveSeed removes the seed from the VM and deletes it. The VM continues to run, boots without a seed from then
	// on, and a later Ensure does not restore it. It is idempotent, also after a crash at any line. A VM that was
	// created without a seed of the director stays as it is. Errors: not_found if there is no such VM, conflict if it
	// has another owner.
	RemoveSeed(ctx context.Context, id ID, owner director.Stamp) error
}

// Console is implemented by back ends that can show what the guest printed at boot, which is the first thing to read
// when SSH never comes up.
type Console interface {
	// ConsoleTail returns the last lines of the VM's serial console, at most maxBytes.
	ConsoleTail(ctx context.Context, id ID, maxBytes int) ([]byte, error)
}

// UsedAddress is an address that a hypervisor has seen a VM use.
type UsedAddress struct {
	VM      string // name
	Host    string
	Stamp   director.Stamp
	Network string // as Adapter.Network; empty if the back end does not tell
	MAC     string
	Address netip.Addr
}

// AddressTeller is implemented by back ends that know addresses of their guests: by leases, by what passed their
// bridges, or by what guests say of themselves.
type AddressTeller interface {
	// UsedAddresses returns the addresses of VMs, also of strangers, as far as the hypervisor knows without asking
	// guests that may not answer. It is a hint: an address that is missing may be in use.
	UsedAddresses(ctx context.Context) ([]UsedAddress, error)
}

// Capability returns b as the optional interface T, looking through decorators that have Unwrap() Backend.
func Capability[T any](b Backend) (T, bool) {
	for {
		if t, ok := b.(T); ok {
			return t, true
		}
		u, ok := b.(interface{ Unwrap() Backend })
		if !ok {
			var zero T
			return zero, false
		}
		b = u.Unwrap()
	}
}

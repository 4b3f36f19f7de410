// Package sim is a back end in memory, with latencies and faults on demand. It runs no guests. Tests and simulated
// directors use it where VMs are only counted. OpenWorld keeps a world in a file, so that it outlives its director and
// several directors can share it.
package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Verb names an operation of the back end, for latencies and faults.
type Verb string

// The verbs.
const (
	VerbEnsure        Verb = "ensure"
	VerbGet           Verb = "get"
	VerbList          Verb = "list"
	VerbSetPower      Verb = "set_power"
	VerbDelete        Verb = "delete"
	VerbEnsureImage   Verb = "ensure_image"
	VerbDeleteImage   Verb = "delete_image"
	VerbEnsureNetwork Verb = "ensure_network"
	VerbDeleteNetwork Verb = "delete_network"
	VerbCapacity      Verb = "capacity"
	VerbListVolumes   Verb = "list_volumes"
	VerbDeleteVolume  Verb = "delete_volume"
	VerbCopyDisk      Verb = "copy_disk"
	VerbRestoreDisk   Verb = "restore_disk"
	VerbConsoleTail   Verb = "console_tail"
	VerbAdopt         Verb = "adopt"
	VerbRemoveSeed    Verb = "remove_seed"
	VerbSnapshot      Verb = "snapshot" // all that is done with snapshots
	VerbHostStates    Verb = "host_states"
	VerbFence         Verb = "fence"
	VerbDiscover      Verb = "discover"
)

// When says where in an operation a fault strikes.
type When int

// The places. What Midway leaves half done is found by List and finished or removed by a later call.
const (
	Before When = iota // nothing was done
	Midway             // half was done; like Before where an operation has no half
	After              // all was done, but the caller hears of a failure
)

// Fault makes calls fail.
type Fault struct {
	Verb  Verb   // empty for every verb
	Key   string // machine id, VM id or name of what the call is about; empty for all
	Skip  int    // how many matching calls pass first
	Times int    // how many fail then; 0 means 1, negative all
	When  When
	Err   error // nil for unavailable
	Hang  bool  // wait for the end of the caller's context before failing
}

// Host is a pretend hypervisor host.
type Host struct {
	Name   string
	CPUs   int
	Memory int64
	Disk   int64
}

// World is what a hypervisor keeps while directors come and go: several Backends opened on one World are several
// directors on one hypervisor. Its methods are safe for concurrent use.
type World struct {
	mu sync.Mutex
	things
	latency  map[Verb]time.Duration
	calls    map[Verb]int
	faults   []*Fault
	attempts int
	weather  weather
	read     int // lines of the journal that were read

	inventory []hypervisor.Discovered
}

// things is all that exists in a world. The world's lock guards it.
type things struct {
	hosts    map[string]*host
	vms      map[hypervisor.ID]*vm
	stamps   map[director.Stamp]*vm // index of vms
	names    map[string]int         // how many VMs have the name
	disks    map[diskKey]*disk
	foreign  map[string]bool // disks that others have attached, which no VM takes along
	images   map[string]*image
	networks map[string]*network
	next     int
	journal  *journal // nil for a world that ends with its process
}

type host struct {
	Host
	down          bool
	memory, space int64 // taken by VMs and disks
}

type vm struct {
	hypervisor.VM
	spec    hypervisor.Spec // without its seed, from which nothing boots
	made    bool            // all parts exist
	seeded  bool            // its seed was not taken away
	ensured int             // calls of Ensure so far
	since   time.Time       // of the last power on

	snapshots []hypervisor.Snapshot     // the oldest first; never changed in place
	foreign   []hypervisor.AttachedDisk // disks that someone else has attached; never changed in place
	console   []byte
}

type diskKey struct {
	stamp  director.Stamp
	serial string
}

type disk struct {
	host    string
	size    int64
	label   hypervisor.DiskLabel
	content string // in place of all that a VM has written
	part    bool   // it was cut off while it was copied
}

type image struct {
	sum  string
	done bool
}

type network struct {
	hypervisor.NetworkSpec
	started bool
}

// NewWorld returns a world with the hosts; with none, with one host "sim" of 64 CPUs, 256 GiB of memory and 4 TiB of
// disk.
func NewWorld(hosts ...Host) *World {
	if len(hosts) == 0 {
		hosts = []Host{{Name: "sim", CPUs: 64, Memory: 256 << 30, Disk: 4 << 40}}
	}
	w := &World{
		things: things{
			hosts: map[string]*host{}, vms: map[hypervisor.ID]*vm{}, stamps: map[director.Stamp]*vm{},
			names: map[string]int{}, disks: map[diskKey]*disk{}, foreign: map[string]bool{},
			images: map[string]*image{}, networks: map[string]*network{},
		},
		latency: map[Verb]time.Duration{}, calls: map[Verb]int{}, attempts: 1,
	}
	for _, h := range hosts {
		w.hosts[h.Name] = &host{Host: h}
	}
	return w
}

// Clone returns an independent copy of all that exists, without latencies, faults and counts. A test that cuts a
// journal after every event keeps the worlds of those moments so.
func (w *World) Clone() *World {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := NewWorld()
	clear(c.hosts)
	for k, v := range w.hosts {
		c.hosts[k] = &host{Host: v.Host, down: v.down}
	}
	for _, v := range w.vms {
		x := *v
		x.console = slices.Clone(v.console)
		c.putVM(&x)
	}
	for k, v := range w.disks {
		x := *v
		c.putDisk(k, &x)
	}
	for k, v := range w.images {
		x := *v
		c.images[k] = &x
	}
	for k, v := range w.networks {
		x := *v
		c.networks[k] = &x
	}
	c.attempts, c.next = w.attempts, w.next
	return c
}

// Reach makes every host reachable, and returns w.
func (w *World) Reach() *World {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		h.down = false
	}
	return w
}

// Inject adds a fault. Faults are asked in the order in which they were added; the first that matches strikes.
func (w *World) Inject(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	w.faults = append(w.faults, &f)
}

// ClearFaults removes all faults.
func (w *World) ClearFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// SetLatency makes every call of the verb take d.
func (w *World) SetLatency(v Verb, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency[v] = d
}

// SetAttempts makes a new VM ready at its n-th Ensure. The first one that is ready is the first, unless told.
func (w *World) SetAttempts(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = n
}

// SetReachable takes a host off the network, or puts it back.
func (w *World) SetReachable(name string, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.hosts[name]; h != nil {
		h.down = !up
	}
}

// SetConsole sets what the VM's serial console shows.
func (w *World) SetConsole(id hypervisor.ID, text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.vms[id]; v != nil {
		v.console = slices.Clone(text)
	}
}

// AddStranger makes a VM without a stamp, as a person would by hand. It panics if the world's file cannot be written.
func (w *World) AddStranger(name string) hypervisor.ID { return w.AddStray(name, director.Stamp{}) }

// AddStray makes a VM with that stamp that no director has asked for. It panics if the world's file cannot be written.
func (w *World) AddStray(name string, stamp director.Stamp) hypervisor.ID {
	const op = "sim.stray"
	if err := w.enter(op); err != nil {
		panic(err)
	}
	defer w.leave()
	id := w.newID()
	w.putVM(&vm{
		VM: hypervisor.VM{
			ID: id, Name: name, Host: w.hostNames()[0], Stamp: stamp, Power: hypervisor.PowerOn, Ready: true,
		},
		made: true,
	})
	if err := w.journal.flush(op); err != nil {
		panic(err)
	}
	return id
}

// Calls returns how often the verb was called.
func (w *World) Calls(v Verb) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[v]
}

// Inventory returns one line for each thing that exists, sorted: VMs, disks, images, networks. With a director's id,
// only what has its stamp.
func (w *World) Inventory(directorID string) []string {
	defer w.look()()
	var lines []string
	for _, v := range w.vms {
		if directorID == "" || v.Stamp.Director == directorID {
			lines = append(
				lines,
				fmt.Sprintf("vm %s %s/%s made=%t %s", v.Name, v.Stamp.Director, v.Stamp.Machine, v.made, v.Power),
			)
		}
	}
	for k, d := range w.disks {
		if directorID == "" || k.stamp.Director == directorID {
			lines = append(lines, fmt.Sprintf("disk %s/%s %s %d", k.stamp.Director, k.stamp.Machine, k.serial, d.size))
		}
	}
	for name, n := range w.networks {
		if directorID == "" || n.Owner.Director == directorID {
			lines = append(lines, fmt.Sprintf("network %s %s %s started=%t", name, n.Mode, n.CIDR, n.started))
		}
	}
	if directorID == "" {
		for name, i := range w.images {
			lines = append(lines, fmt.Sprintf("image %s %s done=%t", name, i.sum, i.done))
		}
	}
	slices.Sort(lines)
	return lines
}

func (w *things) newID() hypervisor.ID {
	w.next++
	return hypervisor.ID(fmt.Sprintf("sim-%04d", w.next))
}

func (w *things) hostNames() []string { return slices.Sorted(maps.Keys(w.hosts)) }

// strike counts the call, waits out the latency and takes the first fault that matches one of the keys. rest is how
// long the answer takes after the act.
func (w *World) strike(ctx context.Context, v Verb, keys ...string) (hit *Fault, rest time.Duration, err error) {
	op := "sim." + string(v)
	w.mu.Lock()
	w.calls[v]++
	latency := w.latency[v]
	hit = w.injected(v, keys)
	before, rest, bad := w.weather.of(v)
	latency += before
	if hit == nil {
		hit = bad
	}
	w.mu.Unlock()
	if hit != nil && hit.Err == nil {
		hit.Err = director.Errorf(director.KindUnavailable, op, "the hypervisor does not answer").
			WithHint("this fault was injected; try again")
	}
	if hit != nil && hit.Hang {
		<-ctx.Done()
	}
	return hit, rest, wait(ctx, op, latency)
}

// injected takes the first injected fault that matches, or nil.
func (w *World) injected(v Verb, keys []string) *Fault {
	for _, f := range w.faults {
		if f.Times == 0 || f.Verb != "" && f.Verb != v || f.Key != "" && !slices.Contains(keys, f.Key) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		x := *f
		return &x
	}
	return nil
}

// wait returns after d, or with an error when ctx ends.
func wait(ctx context.Context, op string, d time.Duration) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := context.Cause(ctx); err != nil {
		return director.Errorf(director.KindUnavailable, op, "interrupted: %w", err)
	}
	return nil
}

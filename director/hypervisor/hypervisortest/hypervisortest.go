// Package hypervisortest holds every back end to the one contract of package hypervisor.
package hypervisortest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// Subject is a hypervisor under test with what the suite needs around it. Each case gets a Subject of its own; several
// may share one hypervisor, but not a Director.
type Subject struct {
	// Open returns a new connection, as another director process would have. The suite closes it.
	Open func(t *testing.T) hypervisor.Backend
	// Director is an installation id that nothing else on the hypervisor has.
	Director string
	Host     string // for Spec.Host; may be empty
	// Elsewhere is one of several hosts of the provider, and not Host; empty if it has one alone.
	Elsewhere string
	Image     string // name of an image that exists
	Network   string // name of a network that exists
	RootDisk  int64  // at least the image's virtual size; default 64 MiB
	Memory    int64  // default 64 MiB

	// Stranger makes a VM without a stamp by the hypervisor's own means, and removes it when the test ends.
	Stranger func(t *testing.T, name string) hypervisor.ID
	// Attach attaches a disk to the VM by the hypervisor's own means, as a person or a storage driver would, and tells
	// whether it still exists. It is removed when the test ends.
	Attach func(t *testing.T, vm hypervisor.VM) (exists func() bool)
	// Crashes are the lines at which an Ensure may be cut off.
	Crashes []Crash
	// HasSeed tells whether anything of the VM's seed can be read on the hypervisor, or would be there at the VM's next
	// boot.
	HasSeed func(t *testing.T, v hypervisor.VM) bool
	// SeedCrashes are the lines at which the removal of a seed may be cut off.
	SeedCrashes []Crash
	// DiskCrashes are the lines at which a copy of a data disk, or its restoration, may be cut off before its end.
	DiskCrashes []Crash
	// WriteDisk writes the text to a data disk that no VM has, and ReadDisk returns what was written last. May be nil.
	WriteDisk func(t *testing.T, d hypervisor.VolumeInfo, text string)
	ReadDisk  func(t *testing.T, d hypervisor.VolumeInfo) string
	// Remains lists all that exists with Director's stamp, in any order: VMs, disks, networks, files.
	Remains func(t *testing.T) []string

	// NewImage returns an image that does not exist on the hypervisor yet, as a local file. Its removal is the suite's.
	NewImage func(t *testing.T) hypervisor.ImageSpec
	// PartImage leaves a half-done upload of the image behind.
	PartImage func(t *testing.T, s hypervisor.ImageSpec)
	// NewNetwork returns a network that does not exist yet and overlaps no other; Owner is filled in by the suite.
	NewNetwork func(t *testing.T) hypervisor.NetworkSpec
	// ForeignNetwork makes a network without a stamp, and removes it when the test ends.
	ForeignNetwork func(t *testing.T) hypervisor.NetworkSpec

	// Skips maps the names of cases to the reason why this hypervisor cannot be held to them.
	Skips map[string]string
	// Timeout of one case; default one minute.
	Timeout time.Duration
}

// Crash is a line of Ensure at which the director may die.
type Crash struct {
	Name string
	// Arm makes the next call of b fail there, with everything before it done and nothing after it.
	Arm func(t *testing.T, b hypervisor.Backend)
}

// test is one case of the suite.
type test struct {
	name  string
	about string // for docs/reference/backends.md
	run   func(bundle)
}

var suite = []test{
	{"ensure/idempotent", "a second call returns the same VM", ensureIdempotent},
	{"ensure/concurrent", "calls at the same time, from several directors, create one VM", ensureConcurrent},
	{"ensure/after_crash", "a creation interrupted at any line is finished by the next call", ensureAfterCrash},
	{
		"ensure/foreign_name", "the name of a stranger's VM is refused, and that VM stays as it is",
		ensureForeignName,
	},
	{"ensure/name_of_other_director", "the same for another director's VM", ensureOthersName},
	{"ensure/missing_image", "an image that does not exist", ensureMissingImage},
	{"ensure/missing_network", "a network that does not exist", ensureMissingNetwork},
	{"ensure/no_space", "too little disk space", ensureNoSpace},
	{"ensure/no_memory", "too little memory", ensureNoMemory},
	{"ensure/no_seed", "a new VM without a seed is refused, one that exists needs none", ensureNoSeed},
	{"ensure/invalid", "invalid settings are reported all at once", ensureInvalid},
	{"ensure/cancelled", "a cancelled call", ensureCancelled},
	{"get/not_found", "a VM that is gone", getNotFound},
	{"get/adapters", "the networks of a VM are reported", getAdapters},
	{"get/several_adapters", "adapters on several networks are reported in their order", getSeveralAdapters},
	{"addresses/told", "the addresses that VMs use are reported", addressesTold},
	{"list/filters", "VMs by director and machine", listFilters},
	{"list/strangers", "VMs of others, if asked for", listStrangers},
	{"power/idempotent", "on and off, again and again", powerIdempotent},
	{"power/not_found", "of a VM that does not exist", powerNotFound},
	{"delete/idempotent", "of a VM that is gone, or off", deleteIdempotent},
	{"delete/foreign_stamp", "a VM with another stamp is refused", deleteForeign},
	{"delete/stranger", "a VM without a stamp is refused", deleteStranger},
	{"delete/after_crash", "the rest of an interrupted creation is removed", deleteAfterCrash},
	{"delete/keeps_data_disks", "data disks outlive their VM and are attached to it again", deleteKeepsDisks},
	{"delete/keeps_foreign_disks", "disks that others have attached are reported and stay", deleteKeepsForeignDisks},
	{"adopt/stranger", "a VM that another program created becomes the director's", adoptStranger},
	{"adopt/kept_disk", "its kept data disk is attached to it", adoptKeptDisk},
	{"adopt/others", "another director's VM is refused", adoptOthers},
	{"seeds/remove", "a seed is removed for good, and its VM continues", seedsRemove},
	{"seeds/after_crash", "a removal that was interrupted at any line is finished by the next call", seedsAfterCrash},
	{"seeds/refused", "of another owner's VM, and of what does not exist", seedsRefused},
	{"snapshots/life", "a snapshot is taken, reverted to and deleted, within the limits", snapshotsLife},
	{"snapshots/refused", "of another owner's VM, and of what does not exist", snapshotsRefused},
	{"volumes/delete", "kept data disks are listed and deleted", volumesDelete},
	{"volumes/taken_over", "a VM takes over the kept disk of another machine", volumesTakenOver},
	{"copies/life", "a data disk is copied, and gets the content of its copy again", copiesLife},
	{"copies/in_use", "a disk that a VM writes to is not copied, and one that a VM has is not replaced", copiesInUse},
	{"copies/refused", "of what does not exist, and under a wrong stamp", copiesRefused},
	{
		"copies/after_crash", "a copy that was cut off at any line is not used, and finished by the next call",
		copiesAfterCrash,
	},
	{"images/idempotent", "the same image twice", imagesIdempotent},
	{"images/wrong_checksum", "a file with another checksum than expected", imagesWrongChecksum},
	{"images/other_checksum", "another image under the same name", imagesOtherChecksum},
	{"images/partial_upload", "an interrupted upload is replaced", imagesPartial},
	{"images/in_use", "an image that VMs are linked to stays", imagesInUse},
	{"networks/idempotent", "the same network twice", networksIdempotent},
	{"networks/foreign", "a network of another owner stays", networksForeign},
	{"networks/overlap", "a range that another network has", networksOverlap},
	{"networks/in_use", "a network that VMs are on stays", networksInUse},
	{"networks/invalid", "invalid settings are refused", networksInvalid},
	{"networks/vlan", "a VLAN is refused where it is not possible", networksVLAN},
	{"hosts/fence", "a VM is powered off by its identity, and another owner's VM is refused", hostsFence},
	{"hosts/without", "a lost host is not contacted, and its VMs are not listed", hostsWithout},
	{"hosts/namesake", "two VMs with one name on two hosts are distinguished", hostsNamesake},
	{"capacity/rows", "what hosts have, and have left", capacityRows},
	{"discover/items", "what a provider has, for writers of documents", discoverItems},
	{"discover/cancelled", "a call whose caller has left", discoverCancelled},
	{"console/tail", "what a guest printed at boot", consoleTail},
}

// Exercise runs the suite. open is called for each case; the cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	exercise(t, open, func(*testing.T, test, bundle) {})
}

// exercise calls began for each case before it runs.
func exercise(t *testing.T, open func(t *testing.T) Subject, began func(t *testing.T, c test, b bundle)) {
	t.Helper()
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			b := bundle{T: t, Subject: s, why: new(string)}
			began(t, c, b)
			if reason, found := s.Skips[c.name]; found {
				b.Skipf("not on this hypervisor: %s", reason)
			}
			if b.Timeout == 0 {
				b.Timeout = time.Minute
			}
			if b.RootDisk == 0 {
				b.RootDisk = 64 << 20
			}
			if b.Memory == 0 {
				b.Memory = 64 << 20
			}
			ctx, cancel := context.WithTimeout(t.Context(), b.Timeout)
			defer cancel()
			b.ctx = ctx
			b.b = b.open()
			c.run(b)
		})
	}
}

// RandomID returns an id for Subject.Director and for the names of things.
func RandomID(prefix string) string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

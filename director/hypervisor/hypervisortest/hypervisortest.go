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

// Subject is a hypervisor under test with what the suite needs around it. Each case gets a Subject of its own; several may
// share one hypervisor, but not a Director.
type Subject struct {
	// Open returns a new connection, as another director process would have. The suite closes it.
	Open func(t *testing.T) hypervisor.Backend
	// Director is an installation id that nothing else on the hypervisor has.
	Director string
	Host     string // for Spec.Host; may be empty
	Image    string // name of an image that exists
	Network  string // name of a network that exists
	RootDisk int64  // at least the image's virtual size; default 64 MiB
	Memory   int64  // default 64 MiB

	// Stranger makes a VM without a stamp by the hypervisor's own means, and removes it when the test ends.
	Stranger func(t *testing.T, name string) hypervisor.ID
	// Crashes are the lines at which an Ensure may be cut off.
	Crashes []Crash
	// Remains lists all that exists with Director's stamp: VMs, disks, networks, files.
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
	// Arm makes the next Ensure of b fail there, with everything before it done and nothing after it.
	Arm func(t *testing.T, b hypervisor.Backend)
}

// Exercise runs the suite. open is called for each case; the cases run in parallel.
func Exercise(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(bundle)
	}{
		{"ensure/idempotent", ensureIdempotent},
		{"ensure/concurrent", ensureConcurrent},
		{"ensure/after_crash", ensureAfterCrash},
		{"ensure/foreign_name", ensureForeignName},
		{"ensure/name_of_other_director", ensureOthersName},
		{"ensure/missing_image", ensureMissingImage},
		{"ensure/missing_network", ensureMissingNetwork},
		{"ensure/no_space", ensureNoSpace},
		{"ensure/no_memory", ensureNoMemory},
		{"ensure/invalid", ensureInvalid},
		{"ensure/cancelled", ensureCancelled},
		{"get/not_found", getNotFound},
		{"get/adapters", getAdapters},
		{"list/filters", listFilters},
		{"list/strangers", listStrangers},
		{"power/idempotent", powerIdempotent},
		{"power/not_found", powerNotFound},
		{"delete/idempotent", deleteIdempotent},
		{"delete/foreign_stamp", deleteForeign},
		{"delete/stranger", deleteStranger},
		{"delete/after_crash", deleteAfterCrash},
		{"delete/keeps_data_disks", deleteKeepsDisks},
		{"adopt/stranger", adoptStranger},
		{"adopt/kept_disk", adoptKeptDisk},
		{"adopt/others", adoptOthers},
		{"volumes/delete", volumesDelete},
		{"images/idempotent", imagesIdempotent},
		{"images/wrong_checksum", imagesWrongChecksum},
		{"images/other_checksum", imagesOtherChecksum},
		{"images/partial_upload", imagesPartial},
		{"images/in_use", imagesInUse},
		{"networks/idempotent", networksIdempotent},
		{"networks/foreign", networksForeign},
		{"networks/overlap", networksOverlap},
		{"networks/in_use", networksInUse},
		{"networks/invalid", networksInvalid},
		{"capacity/rows", capacityRows},
		{"console/tail", consoleTail},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if reason, found := s.Skips[c.name]; found {
				t.Skipf("not on this hypervisor: %s", reason)
			}
			if s.Timeout == 0 {
				s.Timeout = time.Minute
			}
			if s.RootDisk == 0 {
				s.RootDisk = 64 << 20
			}
			if s.Memory == 0 {
				s.Memory = 64 << 20
			}
			ctx, cancel := context.WithTimeout(t.Context(), s.Timeout)
			defer cancel()
			b := bundle{T: t, Subject: s, ctx: ctx}
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

// Package hypervisortest holds every back end to the one contract of package hypervisor.
package hypervisortest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
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

// bundle is what one case works with.
type bundle struct {
	*testing.T
	Subject
	ctx context.Context
	b   hypervisor.Backend
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
		{"list/filters", listFilters},
		{"list/strangers", listStrangers},
		{"power/idempotent", powerIdempotent},
		{"power/not_found", powerNotFound},
		{"delete/idempotent", deleteIdempotent},
		{"delete/foreign_stamp", deleteForeign},
		{"delete/stranger", deleteStranger},
		{"delete/after_crash", deleteAfterCrash},
		{"delete/keeps_data_disks", deleteKeepsDisks},
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

// open returns another connection, closed with the case.
func (b bundle) open() hypervisor.Backend {
	b.Helper()
	x := b.Open(b.T)
	b.Cleanup(func() {
		if err := x.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	return x
}

func capability[T any](b bundle) T {
	b.Helper()
	c, ok := hypervisor.Capability[T](b.b)
	if !ok {
		b.Skipf("the back end is no %T", *new(T))
	}
	return c
}

// spec is a VM of the case; whatever the case leaves of it is removed.
func (b bundle) spec(name string) hypervisor.Spec {
	b.Helper()
	id := RandomID("m")
	s := hypervisor.Spec{
		Key: director.Stamp{Director: b.Director, Machine: id}, Name: RandomID(name + "-"), Host: b.Host,
		CPUs: 1, Memory: b.Memory, Image: b.Image, RootDisk: b.RootDisk,
		NICs: []hypervisor.NIC{{
			Network: b.Network, MAC: "52:54:00:" + id[1:3] + ":" + id[3:5] + ":" + id[5:7],
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")},
		}},
		Seed: hypervisor.Seed{MetaData: []byte("instance-id: x\n"), UserData: []byte("#cloud-config\n"), NetworkConfig: []byte("version: 2\n")},
	}
	b.Cleanup(func() { b.sweep(s.Key) })
	return s
}

// sweep removes everything of the stamp, without the case's context, which may have ended.
func (b bundle) sweep(key director.Stamp) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Minute)
	defer cancel()
	x := b.Open(b.T)
	defer x.Close()
	vms, err := x.List(ctx, hypervisor.Filter{Director: key.Director, Machine: key.Machine})
	if err != nil {
		b.Errorf("List while tidying up: %v", err)
	}
	for _, v := range vms {
		if err := x.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: key, DataDisks: true}); err != nil {
			b.Errorf("Delete while tidying up: %v", err)
		}
	}
	if v, ok := hypervisor.Capability[hypervisor.Volumes](x); ok {
		if err := v.DeleteVolume(ctx, key); err != nil {
			b.Errorf("DeleteVolume while tidying up: %v", err)
		}
	}
}

func withData(s hypervisor.Spec) hypervisor.Spec {
	s.DataDisks = []hypervisor.Disk{{Serial: "kaas-data", Size: 16 << 20}, {Serial: "more", Size: 8 << 20}}
	return s
}

// ready repeats Ensure until the VM is ready.
func (b bundle) ready(x hypervisor.Backend, s hypervisor.Spec) hypervisor.VM {
	b.Helper()
	for {
		v, err := x.Ensure(b.ctx, s)
		if err != nil {
			b.Fatalf("Ensure: %v", err)
		}
		if v.Ready {
			if v.CPUs != 0 && v.CPUs != s.CPUs || v.Memory != 0 && v.Memory != s.Memory {
				b.Errorf("%s is said to have %d vCPUs and %d bytes, want %d and %d", s.Name, v.CPUs, v.Memory, s.CPUs, s.Memory)
			}
			return v
		}
		if b.ctx.Err() != nil {
			b.Fatalf("%s is not ready in time", s.Name)
		}
	}
}

func (b bundle) get(id hypervisor.ID) hypervisor.VM {
	b.Helper()
	v, err := b.b.Get(b.ctx, id)
	if err != nil {
		b.Fatalf("Get: %v", err)
	}
	return v
}

func (b bundle) delete(id hypervisor.ID, o hypervisor.DeleteOptions) {
	b.Helper()
	if err := b.b.Delete(b.ctx, id, o); err != nil {
		b.Fatalf("Delete: %v", err)
	}
}

// untouched fails the case if the VM is not as it was before.
func (b bundle) untouched(before hypervisor.VM) {
	b.Helper()
	if diff := cmp.Diff(before, b.get(before.ID)); diff != "" {
		b.Errorf("%s was touched (-before +after):\n%s", before.Name, diff)
	}
}

// onlyOne fails the case if the director has other VMs than this one.
func (b bundle) onlyOne(v hypervisor.VM) {
	b.Helper()
	if diff := cmp.Diff([]hypervisor.VM{v}, b.list(hypervisor.Filter{Director: b.Director})); diff != "" {
		b.Errorf("List (-want +got):\n%s", diff)
	}
}

// stranger makes a VM without a stamp, or skips the case.
func (b bundle) stranger(name string) hypervisor.ID {
	b.Helper()
	if b.Stranger == nil {
		b.Skip("the subject cannot make a VM by other means")
	}
	return b.Stranger(b.T, name)
}

func (b bundle) list(f hypervisor.Filter) []hypervisor.VM {
	b.Helper()
	vms, err := b.b.List(b.ctx, f)
	if err != nil {
		b.Fatalf("List: %v", err)
	}
	return vms
}

// remains fails the case if anything of the director is left.
func (b bundle) remains(what string) {
	b.Helper()
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) > 0 {
		b.Errorf("%s: VMs are left: %v", what, got)
	}
	if v, ok := hypervisor.Capability[hypervisor.Volumes](b.b); ok {
		got, err := v.ListVolumes(b.ctx, b.Director)
		if err != nil {
			b.Fatalf("ListVolumes: %v", err)
		}
		if len(got) > 0 {
			b.Errorf("%s: volumes are left: %v", what, got)
		}
	}
	if b.Remains != nil {
		if got := b.Remains(b.T); len(got) > 0 {
			b.Errorf("%s: left behind:\n%s", what, strings.Join(got, "\n"))
		}
	}
}

func (b bundle) wantKind(err error, kind director.Kind, call string) {
	b.Helper()
	if err == nil {
		b.Errorf("%s: no error, want %s", call, kind)
		return
	}
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		b.Errorf("%s: error is a %T and no *director.Error: %v", call, err, err)
		return
	}
	if e.Kind != kind {
		b.Errorf("%s: kind %s, want %s: %v", call, e.Kind, kind, err)
	}
	if e.Op == "" || e.Msg == "" {
		b.Errorf("%s: error has no op or no message: %#v", call, e)
	}
}

func ensureIdempotent(b bundle) {
	s := withData(b.spec("same"))
	first := b.ready(b.b, s)
	if first.ID == "" || first.Host == "" {
		b.Errorf("ID or Host is empty: %+v", first)
	}
	if first.Name != s.Name || first.Stamp != s.Key || first.Power != hypervisor.PowerOn {
		b.Errorf("got %+v for %+v", first, s.Key)
	}
	second := b.ready(b.b, s)
	if diff := cmp.Diff(first, second); diff != "" {
		b.Errorf("a second Ensure returns another VM (-first +second):\n%s", diff)
	}
	third := b.ready(b.open(), s) // another process
	if diff := cmp.Diff(first, third); diff != "" {
		b.Errorf("another director's Ensure returns another VM (-first +third):\n%s", diff)
	}
	if diff := cmp.Diff(first, b.get(first.ID)); diff != "" {
		b.Errorf("Get (-Ensure +Get):\n%s", diff)
	}
	b.onlyOne(first)
}

func ensureConcurrent(b bundle) {
	s := withData(b.spec("twin"))
	other := b.open()
	ids := make([]hypervisor.ID, 6)
	var wg sync.WaitGroup
	for i := range ids {
		x := b.b
		if i%2 == 1 {
			x = other
		}
		wg.Go(func() {
			for b.ctx.Err() == nil {
				v, err := x.Ensure(b.ctx, s)
				if err != nil && director.KindOf(err) != director.KindUnavailable {
					b.Errorf("Ensure: %v", err)
					return
				}
				if ids[i] = v.ID; err == nil && v.Ready {
					return
				}
			}
		})
	}
	wg.Wait()
	if ids = slices.Compact(ids); len(ids) != 1 {
		b.Errorf("concurrent calls made several VMs: %v", ids)
	}
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) != 1 || !got[0].Ready {
		b.Errorf("List: %+v, want one VM that is ready", got)
	}
}

func (b bundle) crashes(run func(b bundle, s hypervisor.Spec)) {
	if len(b.Crashes) == 0 {
		b.Skip("the subject cannot cut Ensure off")
	}
	for _, c := range b.Crashes {
		b.Run(c.Name, func(t *testing.T) {
			b := b
			b.T = t
			s := withData(b.spec("crash"))
			x := b.open()
			c.Arm(t, x)
			if v, err := x.Ensure(b.ctx, s); err == nil {
				t.Fatalf("Ensure was not cut off and returned %+v", v)
			}
			run(b, s)
		})
	}
}

func ensureAfterCrash(b bundle) {
	b.crashes(func(b bundle, s hypervisor.Spec) {
		before := b.list(hypervisor.Filter{Director: b.Director})
		x := b.open()
		got := b.ready(x, s)
		for _, v := range before {
			if v.ID != got.ID {
				b.Errorf("the VM %s of the first try has a twin %s", v.ID, got.ID)
			}
		}
		b.onlyOne(got)
		if v, ok := hypervisor.Capability[hypervisor.Volumes](x); ok {
			disks, err := v.ListVolumes(b.ctx, b.Director)
			if err != nil || len(disks) != len(s.DataDisks) {
				b.Errorf("ListVolumes: %v, %v; want %d data disks", disks, err, len(s.DataDisks))
			}
		}
		if err := x.Delete(b.ctx, got.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
			b.Errorf("Delete: %v", err)
		}
		b.remains("after Delete")
	})
}

// deleteAfterCrash takes away what a cut-off Ensure left, without finishing it first.
func deleteAfterCrash(b bundle) {
	b.crashes(func(b bundle, s hypervisor.Spec) {
		x := b.open()
		for _, v := range b.list(hypervisor.Filter{Director: b.Director, Machine: s.Key.Machine}) {
			if err := x.Delete(b.ctx, v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
				b.Errorf("Delete: %v", err)
			}
		}
		b.remains("after Delete")
	})
}

func ensureForeignName(b bundle) {
	s := withData(b.spec("taken"))
	before := b.get(b.stranger(s.Name))
	b.refused(s, director.KindConflict)
	b.untouched(before)
}

func ensureOthersName(b bundle) {
	s := b.spec("others")
	first := b.ready(b.b, s)
	other := b
	other.Director = RandomID("d")
	s2 := other.spec("others")
	s2.Name = s.Name
	_, err := b.b.Ensure(b.ctx, s2)
	b.wantKind(err, director.KindConflict, "Ensure")
	s3 := b.spec("others")
	s3.Name = s.Name
	_, err = b.b.Ensure(b.ctx, s3)
	b.wantKind(err, director.KindConflict, "Ensure of another machine")
	b.onlyOne(first)
	if got := b.list(hypervisor.Filter{Director: other.Director}); len(got) > 0 {
		b.Errorf("the other director has VMs: %v", got)
	}
}

// refused expects an error of Ensure and nothing left.
func (b bundle) refused(s hypervisor.Spec, kind director.Kind) {
	b.Helper()
	_, err := b.b.Ensure(b.ctx, s)
	b.wantKind(err, kind, "Ensure")
	b.remains("after a refused Ensure")
}

func ensureMissingImage(b bundle) {
	s := withData(b.spec("noimage"))
	s.Image = RandomID("nothing-")
	b.refused(s, director.KindNotFound)
}

func ensureMissingNetwork(b bundle) {
	s := withData(b.spec("nonetwork"))
	s.NICs[0].Network = RandomID("nothing-")
	b.refused(s, director.KindNotFound)
}

func ensureNoSpace(b bundle) {
	s := b.spec("nospace")
	s.RootDisk = 1 << 52
	b.refused(s, director.KindExhausted)
	s = withData(b.spec("nospace"))
	s.DataDisks[1].Size = 1 << 52
	b.refused(s, director.KindExhausted)
}

func ensureNoMemory(b bundle) {
	s := b.spec("nomemory")
	s.Memory = 1 << 50
	b.refused(s, director.KindExhausted)
}

func ensureInvalid(b bundle) {
	for name, change := range map[string]func(*hypervisor.Spec){
		"no stamp":   func(s *hypervisor.Spec) { s.Key.Machine = "" },
		"bad stamp":  func(s *hypervisor.Spec) { s.Key.Machine = "../x" },
		"no name":    func(s *hypervisor.Spec) { s.Name = "" },
		"no CPU":     func(s *hypervisor.Spec) { s.CPUs = 0 },
		"no memory":  func(s *hypervisor.Spec) { s.Memory = 0 },
		"no disk":    func(s *hypervisor.Spec) { s.RootDisk = 0 },
		"bad MAC":    func(s *hypervisor.Spec) { s.NICs[0].MAC = "x" },
		"twin disks": func(s *hypervisor.Spec) { s.DataDisks[1].Serial = s.DataDisks[0].Serial },
	} {
		s := withData(b.spec("invalid"))
		change(&s)
		_, err := b.b.Ensure(b.ctx, s)
		b.wantKind(err, director.KindInvalid, name)
	}
	b.remains("after refused calls")
}

func ensureCancelled(b bundle) {
	s := b.spec("cancelled")
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := b.b.Ensure(ctx, s)
	b.wantKind(err, director.KindUnavailable, "Ensure")
	b.remains("after a cancelled Ensure")
}

func getNotFound(b bundle) {
	s := b.spec("gone")
	v := b.ready(b.b, s)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	_, err := b.b.Get(b.ctx, v.ID)
	b.wantKind(err, director.KindNotFound, "Get of a deleted VM")
	_, err = b.b.Get(b.ctx, "no-such-id")
	b.wantKind(err, director.KindNotFound, "Get of an id that never was")
}

func listFilters(b bundle) {
	var want []hypervisor.VM
	for _, name := range []string{"zeta", "alpha"} {
		want = append(want, b.ready(b.b, b.spec(name)))
	}
	slices.Reverse(want)
	other := b
	other.Director = RandomID("d")
	others := b.ready(b.b, other.spec("beta"))

	for name, tt := range map[string]struct {
		f    hypervisor.Filter
		want []hypervisor.VM
	}{
		"ours":                       {hypervisor.Filter{Director: b.Director}, want},
		"one machine":                {hypervisor.Filter{Director: b.Director, Machine: want[1].Stamp.Machine}, want[1:]},
		"no such machine":            {hypervisor.Filter{Director: b.Director, Machine: "nothing"}, nil},
		"another director":           {hypervisor.Filter{Director: other.Director}, []hypervisor.VM{others}},
		"another director's machine": {hypervisor.Filter{Director: b.Director, Machine: others.Stamp.Machine}, nil},
	} {
		got := b.list(tt.f)
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			b.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := b.b.List(b.ctx, hypervisor.Filter{})
	b.wantKind(err, director.KindInvalid, "List without a director")
}

func listStrangers(b bundle) {
	id := b.stranger(RandomID("stranger-"))
	ours := b.ready(b.b, b.spec("ours"))
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) != 1 || got[0].ID != ours.ID {
		b.Errorf("List without strangers: %v", got)
	}
	found := map[hypervisor.ID]hypervisor.VM{}
	all := b.list(hypervisor.Filter{Director: b.Director, Strangers: true})
	for _, v := range all {
		found[v.ID] = v
	}
	if diff := cmp.Diff(ours, found[ours.ID]); diff != "" {
		b.Errorf("our VM among strangers (-want +got):\n%s", diff)
	}
	if v, ok := found[id]; !ok || v.Stamp != (director.Stamp{}) {
		b.Errorf("the stranger is missing or has a stamp: %+v", v)
	}
	if !slices.IsSortedFunc(all, func(x, y hypervisor.VM) int { return strings.Compare(x.Name, y.Name) }) {
		b.Errorf("not ordered by name: %v", all)
	}
}

func powerIdempotent(b bundle) {
	s := b.spec("power")
	v := b.ready(b.b, s)
	for _, p := range []hypervisor.Power{
		hypervisor.PowerOn, hypervisor.PowerOff, hypervisor.PowerOff, hypervisor.PowerOn, hypervisor.PowerOff,
	} {
		if err := b.b.SetPower(b.ctx, v.ID, p); err != nil {
			b.Fatalf("SetPower(%s): %v", p, err)
		}
		if got := b.get(v.ID); got.Power != p || got.Ready != (p == hypervisor.PowerOn) {
			b.Errorf("after SetPower(%s): %+v", p, got)
		}
	}
	if got := b.ready(b.b, s); got.ID != v.ID || got.Power != hypervisor.PowerOn {
		b.Errorf("Ensure of a VM that is off: %+v", got)
	}
	b.wantKind(b.b.SetPower(b.ctx, v.ID, "sideways"), director.KindInvalid, "SetPower(sideways)")
}

func powerNotFound(b bundle) {
	b.wantKind(b.b.SetPower(b.ctx, "no-such-id", hypervisor.PowerOn), director.KindNotFound, "SetPower")
}

func deleteIdempotent(b bundle) {
	s := withData(b.spec("delete"))
	v := b.ready(b.b, s)
	for range 2 {
		b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
		b.remains("after Delete")
	}
	if err := b.b.Delete(b.ctx, "no-such-id", hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		b.Errorf("Delete of an id that never was: %v", err)
	}
	again := b.ready(b.b, s)
	if err := b.b.SetPower(b.ctx, again.ID, hypervisor.PowerOff); err != nil {
		b.Fatalf("SetPower: %v", err)
	}
	if err := b.b.Delete(b.ctx, again.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true, Grace: time.Second}); err != nil {
		b.Errorf("Delete of a VM that is off: %v", err)
	}
	b.remains("after Delete")
}

func deleteForeign(b bundle) {
	s := b.spec("foreign")
	v := b.ready(b.b, s)
	for _, owner := range []director.Stamp{
		{},
		{Director: s.Key.Director, Machine: RandomID("m")},
		{Director: RandomID("d"), Machine: s.Key.Machine},
	} {
		err := b.b.Delete(b.ctx, v.ID, hypervisor.DeleteOptions{Owner: owner, DataDisks: true})
		b.wantKind(err, director.KindConflict, fmt.Sprintf("Delete as %+v", owner))
	}
	b.untouched(v)
}

func deleteStranger(b bundle) {
	id := b.stranger(RandomID("stranger-"))
	for _, owner := range []director.Stamp{{}, {Director: b.Director, Machine: RandomID("m")}} {
		err := b.b.Delete(b.ctx, id, hypervisor.DeleteOptions{Owner: owner})
		b.wantKind(err, director.KindConflict, fmt.Sprintf("Delete as %+v", owner))
	}
	if _, err := b.b.Get(b.ctx, id); err != nil {
		b.Errorf("the stranger is gone: %v", err)
	}
}

func deleteKeepsDisks(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	s := withData(b.spec("disks"))
	list := func() []hypervisor.VolumeInfo {
		b.Helper()
		got, err := volumes.ListVolumes(b.ctx, b.Director)
		if err != nil {
			b.Fatalf("ListVolumes: %v", err)
		}
		return got
	}
	v := b.ready(b.b, s)
	before := list()
	if len(before) != 2 {
		b.Fatalf("ListVolumes: %v, want 2", before)
	}
	for _, d := range before {
		if d.Stamp != s.Key || d.Name == "" || d.Host != v.Host || d.Size != 16<<20 && d.Size != 8<<20 {
			b.Errorf("volume %+v of %+v", d, s.Key)
		}
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	if diff := cmp.Diff(before, list()); diff != "" {
		b.Errorf("Delete touched the data disks (-before +after):\n%s", diff)
	}
	b.ready(b.b, s)
	if diff := cmp.Diff(before, list()); diff != "" {
		b.Errorf("Ensure did not take the data disks up again (-before +after):\n%s", diff)
	}
}

func volumesDelete(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	s := withData(b.spec("volumes"))
	v := b.ready(b.b, s)
	b.wantKind(volumes.DeleteVolume(b.ctx, s.Key), director.KindConflict, "DeleteVolume in use")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	stranger := director.Stamp{Director: b.Director, Machine: RandomID("m")}
	if err := volumes.DeleteVolume(b.ctx, stranger); err != nil {
		b.Errorf("DeleteVolume of nothing: %v", err)
	}
	if got, err := volumes.ListVolumes(b.ctx, b.Director); err != nil || len(got) != 2 {
		b.Errorf("ListVolumes: %v, %v; want 2", got, err)
	}
	for range 2 {
		if err := volumes.DeleteVolume(b.ctx, s.Key); err != nil {
			b.Errorf("DeleteVolume: %v", err)
		}
	}
	b.remains("after DeleteVolume")
}

// newImage returns an image that is removed from the hypervisor after the case.
func (b bundle) newImage() (hypervisor.Imaging, hypervisor.ImageSpec) {
	b.Helper()
	imaging := capability[hypervisor.Imaging](b)
	if b.NewImage == nil {
		b.Skip("the subject has no image to bring")
	}
	s := b.NewImage(b.T)
	b.Cleanup(func() {
		x := b.Open(b.T)
		defer x.Close()
		imaging, _ := hypervisor.Capability[hypervisor.Imaging](x)
		if err := imaging.DeleteImage(context.WithoutCancel(b.ctx), s.Name); err != nil {
			b.Errorf("DeleteImage while tidying up: %v", err)
		}
	})
	return imaging, s
}

// broughtImage is newImage on the hypervisor.
func (b bundle) broughtImage() (hypervisor.Imaging, hypervisor.ImageSpec) {
	b.Helper()
	imaging, s := b.newImage()
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	return imaging, s
}

// withoutImage expects that no VM can be made from the image.
func (b bundle) withoutImage(image, call string) {
	b.Helper()
	s := b.spec("image")
	s.Image = image
	_, err := b.b.Ensure(b.ctx, s)
	b.wantKind(err, director.KindNotFound, call)
}

// boots makes a VM from the image.
func (b bundle) boots(image string) hypervisor.VM {
	b.Helper()
	s := b.spec("image")
	s.Image = image
	return b.ready(b.b, s)
}

func imagesIdempotent(b bundle) {
	imaging, s := b.newImage()
	var last, total int64
	progress := func(done, all int64) {
		if done < last {
			b.Errorf("progress went back from %d to %d", last, done)
		}
		last, total = done, all
	}
	if err := imaging.EnsureImage(b.ctx, s, progress); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	info, err := os.Stat(s.Path)
	if err != nil {
		b.Fatal(err)
	}
	if last != total || total < info.Size() {
		b.Errorf("progress ended at %d of %d for %d bytes", last, total, info.Size())
	}
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("second EnsureImage: %v", err)
	}
	b.boots(s.Name)
}

func imagesWrongChecksum(b bundle) {
	imaging, s := b.newImage()
	right := s.SHA256
	wrong := sha256.Sum256([]byte("something else"))
	s.SHA256 = hex.EncodeToString(wrong[:])
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindInvalid, "EnsureImage with a wrong checksum")
	s.SHA256 = "xyz"
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindInvalid, "EnsureImage without a checksum")
	s.SHA256 = right
	path := s.Path
	s.Path = filepath.Join(b.TempDir(), "missing.qcow2")
	b.wantKind(imaging.EnsureImage(b.ctx, s, nil), director.KindNotFound, "EnsureImage without a file")
	s.Path = path
	b.withoutImage(s.Name, "Ensure with a refused image")
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Errorf("EnsureImage with the right checksum: %v", err)
	}
}

func imagesOtherChecksum(b bundle) {
	imaging, s := b.broughtImage()
	other := b.NewImage(b.T)
	if other.SHA256 == s.SHA256 {
		b.Fatal("the subject gave the same image twice")
	}
	other.Name = s.Name
	b.wantKind(imaging.EnsureImage(b.ctx, other, nil), director.KindConflict, "EnsureImage with another content")
	b.boots(s.Name)
}

func imagesPartial(b bundle) {
	imaging, s := b.newImage()
	if b.PartImage == nil {
		b.Skip("the subject cannot leave an upload half done")
	}
	b.PartImage(b.T, s)
	b.withoutImage(s.Name, "Ensure with half an image")
	if err := imaging.EnsureImage(b.ctx, s, nil); err != nil {
		b.Fatalf("EnsureImage: %v", err)
	}
	b.boots(s.Name)
}

func imagesInUse(b bundle) {
	imaging, s := b.broughtImage()
	vm := b.boots(s.Name)
	b.wantKind(imaging.DeleteImage(b.ctx, s.Name), director.KindConflict, "DeleteImage in use")
	b.delete(vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp})
	for range 2 {
		if err := imaging.DeleteImage(b.ctx, s.Name); err != nil {
			b.Errorf("DeleteImage: %v", err)
		}
	}
	b.withoutImage(s.Name, "Ensure with a deleted image")
}

// newNetwork returns a network that is removed after the case.
func (b bundle) newNetwork() (hypervisor.Networking, hypervisor.NetworkSpec) {
	b.Helper()
	networking := capability[hypervisor.Networking](b)
	if b.NewNetwork == nil {
		b.Skip("the subject has no network to make")
	}
	s := b.NewNetwork(b.T)
	s.Owner = director.Stamp{Director: b.Director, Machine: RandomID("n")}
	b.Cleanup(func() {
		x := b.Open(b.T)
		defer x.Close()
		networking, _ := hypervisor.Capability[hypervisor.Networking](x)
		if err := networking.DeleteNetwork(context.WithoutCancel(b.ctx), s.Name, s.Owner); err != nil {
			b.Errorf("DeleteNetwork while tidying up: %v", err)
		}
	})
	return networking, s
}

// madeNetwork is newNetwork on the hypervisor.
func (b bundle) madeNetwork() (hypervisor.Networking, hypervisor.NetworkSpec) {
	b.Helper()
	networking, s := b.newNetwork()
	if err := networking.EnsureNetwork(b.ctx, s); err != nil {
		b.Fatalf("EnsureNetwork: %v", err)
	}
	return networking, s
}

func networksIdempotent(b bundle) {
	networking, s := b.newNetwork()
	for range 2 {
		if err := networking.EnsureNetwork(b.ctx, s); err != nil {
			b.Fatalf("EnsureNetwork: %v", err)
		}
	}
	changed := s
	changed.Mode = "isolated"
	if s.Mode == "isolated" {
		changed.Mode = "nat"
	}
	b.wantKind(networking.EnsureNetwork(b.ctx, changed), director.KindConflict, "EnsureNetwork with another mode")
	for range 2 {
		if err := networking.DeleteNetwork(b.ctx, s.Name, s.Owner); err != nil {
			b.Errorf("DeleteNetwork: %v", err)
		}
		b.remains("after DeleteNetwork")
	}
}

func networksForeign(b bundle) {
	networking, s := b.madeNetwork()
	other := s
	other.Owner = director.Stamp{Director: RandomID("d"), Machine: s.Owner.Machine}
	b.wantKind(networking.EnsureNetwork(b.ctx, other), director.KindConflict, "EnsureNetwork of another director")
	b.wantKind(networking.DeleteNetwork(b.ctx, s.Name, other.Owner), director.KindConflict, "DeleteNetwork by another director")
	if b.ForeignNetwork == nil {
		return
	}
	by := b.ForeignNetwork(b.T)
	by.Owner = s.Owner
	b.wantKind(networking.EnsureNetwork(b.ctx, by), director.KindConflict, "EnsureNetwork of a network made by hand")
	b.wantKind(networking.DeleteNetwork(b.ctx, by.Name, s.Owner), director.KindConflict, "DeleteNetwork of a network made by hand")
}

func networksOverlap(b bundle) {
	networking, s := b.madeNetwork()
	other := s
	other.Owner.Machine = RandomID("n")
	other.Name = RandomID("overlap-")
	other.CIDR = netip.PrefixFrom(s.CIDR.Addr(), s.CIDR.Bits()+1)
	other.Gateway = s.CIDR.Addr().Next()
	b.wantKind(networking.EnsureNetwork(b.ctx, other), director.KindConflict, "EnsureNetwork with an overlap")
	if err := networking.DeleteNetwork(b.ctx, other.Name, other.Owner); err != nil {
		b.Errorf("DeleteNetwork of a refused network: %v", err)
	}
}

func networksInUse(b bundle) {
	networking, s := b.madeNetwork()
	vm := b.spec("network")
	vm.NICs[0].Network = s.Name
	v := b.ready(b.b, vm)
	b.wantKind(networking.DeleteNetwork(b.ctx, s.Name, s.Owner), director.KindConflict, "DeleteNetwork in use")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: vm.Key})
	if err := networking.DeleteNetwork(b.ctx, s.Name, s.Owner); err != nil {
		b.Errorf("DeleteNetwork: %v", err)
	}
}

func networksInvalid(b bundle) {
	networking, s := b.newNetwork()
	for name, change := range map[string]func(*hypervisor.NetworkSpec){
		"mode":              func(s *hypervisor.NetworkSpec) { s.Mode = "magic" },
		"gateway elsewhere": func(s *hypervisor.NetworkSpec) { s.Gateway = netip.MustParseAddr("203.0.113.1") },
		"no bridge":         func(s *hypervisor.NetworkSpec) { s.Mode, s.Bridge = "bridge", "" },
		"long bridge":       func(s *hypervisor.NetworkSpec) { s.Bridge = "a-bridge-with-a-long-name" },
		"no owner":          func(s *hypervisor.NetworkSpec) { s.Owner = director.Stamp{} },
	} {
		x := s
		change(&x)
		b.wantKind(networking.EnsureNetwork(b.ctx, x), director.KindInvalid, name)
	}
	b.remains("after refused calls")
}

func capacityRows(b bundle) {
	c := capability[hypervisor.Capacity](b)
	rows, err := c.Capacity(b.ctx)
	if err != nil {
		b.Fatalf("Capacity: %v", err)
	}
	if len(rows) == 0 {
		b.Fatal("no hosts")
	}
	for _, r := range rows {
		if r.Host == "" || r.CPUs < 1 || r.Memory <= 0 || r.Disk <= 0 || r.MemoryFree < 0 || r.DiskFree < 0 ||
			r.MemoryFree > r.Memory || r.DiskFree > r.Disk {
			b.Errorf("row %+v", r)
		}
	}
	if !slices.IsSortedFunc(rows, func(x, y hypervisor.HostCapacity) int { return strings.Compare(x.Host, y.Host) }) {
		b.Errorf("not ordered by host: %v", rows)
	}
}

func consoleTail(b bundle) {
	c := capability[hypervisor.Console](b)
	v := b.ready(b.b, b.spec("console"))
	text, err := c.ConsoleTail(b.ctx, v.ID, 1000)
	if err != nil {
		b.Fatalf("ConsoleTail: %v", err)
	}
	if len(text) > 1000 {
		b.Errorf("got %d bytes", len(text))
	}
	_, err = c.ConsoleTail(b.ctx, "no-such-id", 1000)
	b.wantKind(err, director.KindNotFound, "ConsoleTail of nothing")
}

package hypervisortest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

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

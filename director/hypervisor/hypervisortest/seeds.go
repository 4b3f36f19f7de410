package hypervisortest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// hasSeed asks the subject, or skips the case.
func (b bundle) hasSeed(v hypervisor.VM) bool {
	b.Helper()
	if b.HasSeed == nil {
		b.Skip("the subject cannot look for seeds")
	}
	return b.HasSeed(b.T, v)
}

func seedsRemove(b bundle) {
	seeds := capability[hypervisor.Seeds](b)
	s := withData(b.spec("seed"))
	v := b.ready(b.b, s)
	if !b.hasSeed(v) {
		b.Fatal("a new VM has no seed")
	}
	for range 2 {
		if err := seeds.RemoveSeed(b.ctx, v.ID, s.Key); err != nil {
			b.Fatalf("RemoveSeed: %v", err)
		}
		if b.hasSeed(v) {
			b.Error("RemoveSeed left something of the seed")
		}
	}
	b.untouched(v)
	for _, seed := range []hypervisor.Seed{{}, s.Seed} { // what is asked for once more brings no seed back
		s.Seed = seed
		if diff := cmp.Diff(v, b.ready(b.b, s)); diff != "" || b.hasSeed(v) {
			b.Errorf("Ensure afterwards (seed: %t, -before +after):\n%s", b.hasSeed(v), diff)
		}
	}
	for _, p := range []hypervisor.Power{hypervisor.PowerOff, hypervisor.PowerOn} {
		if err := b.b.SetPower(b.ctx, v.ID, p); err != nil {
			b.Errorf("SetPower %s without a seed: %v", p, err)
		}
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
	b.remains("after Delete")
	if again := b.ready(b.b, s); !b.hasSeed(again) {
		b.Error("the next VM has no seed")
	}
}

func seedsAfterCrash(b bundle) {
	capability[hypervisor.Seeds](b)
	if len(b.SeedCrashes) == 0 {
		b.Skip("the subject cannot cut the removal off")
	}
	s := b.spec("seed")
	for _, c := range b.SeedCrashes {
		v := b.ready(b.b, s)
		x := b.open()
		c.Arm(b.T, x)
		seeds, _ := hypervisor.Capability[hypervisor.Seeds](x)
		if err := seeds.RemoveSeed(b.ctx, v.ID, s.Key); err == nil {
			b.Errorf("%s: RemoveSeed was not cut off", c.Name)
		}
		for _, p := range []hypervisor.Power{hypervisor.PowerOff, hypervisor.PowerOn} { // it boots at any line
			if err := b.b.SetPower(b.ctx, v.ID, p); err != nil {
				b.Errorf("%s: SetPower %s: %v", c.Name, p, err)
			}
		}
		seeds, _ = hypervisor.Capability[hypervisor.Seeds](b.b)
		if err := seeds.RemoveSeed(b.ctx, v.ID, s.Key); err != nil || b.hasSeed(v) {
			b.Errorf("%s: RemoveSeed afterwards: %v", c.Name, err)
		}
		b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	}
	b.remains("after Delete")
}

func seedsRefused(b bundle) {
	seeds := capability[hypervisor.Seeds](b)
	s := b.spec("seed")
	v := b.ready(b.b, s)
	b.wantKind(
		seeds.RemoveSeed(b.ctx, v.ID, director.Stamp{Director: b.Director, Machine: RandomID("m")}),
		director.KindConflict, "RemoveSeed of another machine's VM",
	)
	b.wantKind(seeds.RemoveSeed(b.ctx, v.ID, director.Stamp{}), director.KindConflict, "RemoveSeed without an owner")
	if !b.hasSeed(v) {
		b.Error("a refused RemoveSeed has taken the seed")
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	b.wantKind(seeds.RemoveSeed(b.ctx, v.ID, s.Key), director.KindNotFound, "RemoveSeed of nothing")
}

func ensureNoSeed(b bundle) {
	s := b.spec("seedless")
	bare := s
	bare.Seed = hypervisor.Seed{}
	if _, err := b.b.Ensure(b.ctx, bare); director.KindOf(err) != director.KindUnavailable {
		b.Errorf("a new VM without a seed: %v, want unavailable", err)
	}
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) > 0 {
		b.Errorf("something was made all the same: %+v", got)
	}
	b.onlyOne(b.ready(b.b, s))
	if _, err := b.b.Ensure(b.ctx, bare); err != nil {
		b.Errorf("a VM that exists: %v", err)
	}
}

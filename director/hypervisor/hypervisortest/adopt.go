package hypervisortest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A VM of another program becomes the director's when it is adopted, once, and stays so.
func adoptStranger(b bundle) {
	adoptRemade(b, b.spec("remade"))
}

// The data disk that was kept is attached to it.
func adoptKeptDisk(b bundle) {
	adoptRemade(b, withData(b.spec("remade")))
}

func adoptRemade(b bundle, s hypervisor.Spec) {
	a := capability[hypervisor.Adopter](b)
	first := b.ready(b.b, s)
	if err := b.b.Delete(b.ctx, first.ID, hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		b.Fatalf("Delete: %v", err)
	}
	_, err := a.Adopt(b.ctx, s.Key, s.Name, s.DataDisks)
	b.wantKind(err, director.KindNotFound, "Adopt of nothing")
	before := b.stranger(s.Name)
	got, err := a.Adopt(b.ctx, s.Key, s.Name, s.DataDisks)
	if err != nil || got.Name != s.Name || got.Stamp != s.Key || got.Power != hypervisor.PowerOn || !got.Ready {
		b.Fatalf("Adopt: %+v, %v", got, err)
	}
	id := got.ID
	b.onlyOne(got)
	if id != before { // the VM has another id now, and not a twin
		_, err := b.b.Get(b.ctx, before)
		b.wantKind(err, director.KindNotFound, "Get by the id that it had")
	}
	again, err := a.Adopt(b.ctx, s.Key, s.Name, s.DataDisks)
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		b.Fatalf("Adopt once more: %v (-first +second):\n%s", err, diff)
	}
	b.onlyOne(again)
	if err := b.b.SetPower(b.ctx, id, hypervisor.PowerOff); err != nil {
		b.Errorf("SetPower: %v", err)
	}
	if err := b.b.Delete(b.ctx, id, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
		b.Errorf("Delete: %v", err)
	}
	b.remains("after Delete")
}

// A VM that has an owner is not taken.
func adoptOthers(b bundle) {
	a := capability[hypervisor.Adopter](b)
	other := b
	other.Director = RandomID("d")
	theirs := other.spec("theirs")
	before := b.ready(b.b, theirs)
	key := b.spec("mine").Key
	_, err := a.Adopt(b.ctx, key, theirs.Name, nil)
	b.wantKind(err, director.KindConflict, "Adopt of another director's VM")
	b.untouched(before)
	if err := b.b.Delete(b.ctx, before.ID, hypervisor.DeleteOptions{Owner: theirs.Key, DataDisks: true}); err != nil {
		b.Errorf("Delete: %v", err)
	}
}

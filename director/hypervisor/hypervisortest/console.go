package hypervisortest

import (
	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

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

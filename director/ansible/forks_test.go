package ansible_test

import (
	"context"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
)

func TestOneRunPerID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := b.play(t, start+`emit '{"type":"retry","msg":"here"}'; sleep 1000`)
	done := b.begin(ctx, p)
	b.await(t, said("here"))
	if _, err := b.Play(t.Context(), p); director.KindOf(err) != director.KindConflict {
		t.Errorf("got %v", err)
	}
	cancel()
	<-done
}

// Runs wait for the director's forks, say so, and can be cancelled meanwhile.
func TestForksAreShared(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ansible.Config) { c.Forks = 3 })
	release := fifo(t)
	first := b.play(t, start+`emit '{"type":"retry","msg":"here"}'; read -r <`+release+`; ok`)
	first.Limit = []string{"a", "b"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	works := b.begin(t.Context(), first)
	b.await(t, said("here"))
	second := first
	second.ID, second.LogPath = "p1/s2/1", ""
	queued := b.begin(ctx, second)
	waits := b.await(t, func(e ansible.Event) bool { return e.Type == ansible.Waiting })
	if waits.Msg != "for 2 of the director's 3 forks" {
		t.Errorf("got %q", waits.Msg)
	}
	cancel()
	if o := <-queued; playError(t, o.err).Class != ansible.ClassCancelled {
		t.Errorf("got %v", o.err)
	}
	write(t, release, "go\n")
	if o := <-works; o.err != nil {
		t.Error(o.err)
	}
}

package ansible_test

import (
	"context"
	"errors"
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

// Forks that were reserved are used by the play and given back once, and whoever asks meanwhile waits.
func TestReservedForks(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ansible.Config) { c.Forks = 2 })
	limit := []string{"h1", "h2"}
	reserved, release, err := b.Reserve(t.Context(), "p1", limit, func() { t.Error("there were enough") })
	if err != nil {
		t.Fatal(err)
	}
	asked, got := make(chan struct{}), make(chan error, 1)
	go func() {
		_, again, err := b.Reserve(t.Context(), "p1", limit[:1], func() { close(asked) })
		if err == nil {
			again()
		}
		got <- err
	}()
	<-asked
	p := b.play(t, start+"ok")
	p.Limit = limit
	if _, err := b.Play(reserved, p); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		t.Fatalf("the play gave back what was reserved: %v", err)
	default:
	}
	release()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, release, err = b.Reserve(t.Context(), "p1", limit, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, _, err := b.Reserve(ctx, "p1", limit, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is over: %v", err)
	}
}

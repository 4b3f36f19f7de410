package ansible

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// queued waits until so many requests stand in the queue.
func queued(f *fair, n int) {
	for {
		f.mu.Lock()
		is := len(f.queue)
		f.mu.Unlock()
		if is == n {
			return
		}
	}
}

// A plan that holds all forks and asks for more, many at once too, lets another one in as soon as forks are free; and a
// wide request is met though narrow ones come all the time.
func TestForksAreSharedFairly(t *testing.T) {
	t.Parallel()
	f := newFair(4)
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	waiting := 0
	ask := func(who string, n int64) {
		waiting++
		all.Go(func() {
			if err := f.acquire(t.Context(), who, n); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprintf("%s %d", who, n))
		})
		queued(f, waiting)
	}
	if !f.tryAcquire("wide", 4) || f.tryAcquire("late", 1) {
		t.Fatal("four of four")
	}
	ask("wide", 2)
	ask("wide", 1)
	ask("late", 1)
	ask("late", 1)
	ask("other", 3)
	// release returns who was served by what was given back.
	release := func(who string, n int64, grants int) []string {
		mu.Lock()
		before := len(order)
		mu.Unlock()
		f.release(who, n)
		for {
			mu.Lock()
			got := slices.Clone(order[before:])
			mu.Unlock()
			if len(got) == grants {
				return got
			}
		}
	}
	for i, step := range []struct {
		who   string
		n     int64
		serve []string
	}{
		{"wide", 1, []string{"late 1"}}, // it holds nothing
		{"wide", 2, nil},                // other is next, and waits for its third
		{"wide", 1, []string{"wide 2"}}, // it holds nothing either by now, and asked before
		{"wide", 2, []string{"wide 1"}},
		{"wide", 1, []string{"other 3"}},
		{"other", 3, []string{"late 1"}},
	} {
		if diff := cmp.Diff(step.serve, release(step.who, step.n, len(step.serve)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%d: -want +got:\n%s", i, diff)
		}
		if len(step.serve) == 0 && f.tryAcquire("new", 1) {
			t.Error("another one overtakes who is next")
		}
	}
	all.Wait()
	f.release("late", 2)
	if f.free != 4 || len(f.held) != 0 {
		t.Errorf("%d are free, held: %v", f.free, f.held)
	}
}

// Who goes away while it is next makes room, and takes nothing along.
func TestARequestThatIsCancelledMakesRoom(t *testing.T) {
	t.Parallel()
	f := newFair(2)
	if !f.tryAcquire("a", 1) {
		t.Fatal("one of two")
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone, served := make(chan error), make(chan error)
	go func() { gone <- f.acquire(ctx, "b", 2) }()
	queued(f, 1)
	go func() { served <- f.acquire(t.Context(), "c", 1) }()
	queued(f, 2)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	f.release("a", 1)
	f.release("c", 1)
	if f.free != 2 || len(f.held) != 0 {
		t.Errorf("%d are free, held: %v", f.free, f.held)
	}
}

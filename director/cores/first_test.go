package cores

import (
	"runtime"
	"sync"
	"testing"
)

func TestFirst(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	usual, before := nice(t), 0
	want := max(usual-lead, -20)
	if err := beNice(want); err != nil {
		t.Logf("this process may not go first: %v", err)
		want = usual
	} else if err := beNice(usual); err != nil {
		t.Fatal(err)
	}
	First(func() { before = nice(t) })
	if before != want {
		t.Errorf("the work had niceness %d and not %d", before, want)
	}
	if n := nice(t); n != usual {
		t.Errorf("after it, the thread has niceness %d and not %d", n, usual)
	}
}

// Work that ends its goroutine, as a panic does, leaves nothing behind.
func TestFirstEndsEarly(t *testing.T) {
	usual, after := nice(t), make(chan int)
	go func() {
		runtime.LockOSThread()
		defer func() { after <- nice(t) }()
		First(runtime.Goexit)
	}()
	if n := <-after; n != usual || len(places) != 0 {
		t.Errorf("the thread has niceness %d and not %d; %d are first", n, usual, len(places))
	}
}

// Who comes when enough are first is served like all else, and does not wait.
func TestNotAllAreFirst(t *testing.T) {
	usual := nice(t)
	var ran sync.WaitGroup
	began, end := make(chan struct{}), make(chan struct{})
	for range cap(places) {
		ran.Go(func() {
			First(func() {
				began <- struct{}{}
				<-end
			})
		})
	}
	for range cap(places) {
		<-began
	}
	one := -100
	First(func() { one = nice(t) })
	close(end)
	ran.Wait()
	if one != usual {
		t.Errorf("one more had niceness %d and not %d", one, usual)
	}
}

func nice(t *testing.T) int {
	t.Helper()
	n, err := Niceness()
	if err != nil {
		t.Error(err)
	}
	return n
}

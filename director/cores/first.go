package cores

import (
	"runtime"
	"syscall"
)

// lead is by how many levels of niceness First puts a thread before the others of the process. With 10, Linux gives it
// nine times as much of a core as one of the others (sched_prio_to_weight in kernel/sched/core.c).
const lead = 10

// places bounds how many threads are before the others: half of the cores, or the only one. The others keep the other
// half, or a tenth of the only core.
var places = make(chan struct{}, max(1, count/2))

// First runs f and returns when it has ended. The kernel runs it before the other work of the process if not too many
// others are first, and if the process may do that: it is root, or has a limit of niceness (LimitNICE of systemd).
// Otherwise f runs like all else. It is for short work that a person waits for. f starts no process, which would be
// first for all its life. Safe for concurrent use.
func First(f func()) {
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		f()
		return
	}
	runtime.LockOSThread()
	usual, err := Niceness()
	if err == nil {
		err = beNice(usual - lead)
	}
	if err != nil {
		runtime.UnlockOSThread()
		f()
		return
	}
	defer func() {
		if beNice(usual) == nil {
			runtime.UnlockOSThread()
		} // otherwise Go ends the thread with its goroutine
	}()
	f()
}

// Niceness returns that of the calling thread: on Linux, each has its own (setpriority(2), "C library/kernel
// differences").
func Niceness() (int, error) {
	p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	return 20 - p, err // the kernel answers 20 less the niceness
}

func beNice(n int) error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, max(n, -20)) }

// Package cores tells how many cores the process has, apart from how many threads Go runs at once.
package cores

import (
	"os"
	"runtime"
)

var count = runtime.GOMAXPROCS(0) // before Overcommit; the runtime has looked at the limits of the control group

// Count returns how many cores the process may use. Work that computes is bounded by it.
func Count() int { return count }

// threads are how many threads Overcommit lets run at once for each core.
const threads = 2

// Overcommit lets Go run more threads at once than there are cores, and leaves it to the kernel to share the cores
// among them. Call it once, at the start of a process that answers requests while it works in files and in SQLite. A
// system call or a call into C keeps one of Go's places for up to 10 ms, and a request that comes meanwhile waits for a
// place although a core is free: with as many places as cores, on two of them, the list of a fleet that was being
// created had a p99 of 60 ms, and of 30 ms with twice as many; four times cost more CPU and gave little. A GOMAXPROCS
// in the environment is obeyed instead.
func Overcommit() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threads * count)
	}
}

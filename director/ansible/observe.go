package ansible

import "time"

// Observer is told of runs, for metrics. Its methods must return at once and are called from many goroutines.
type Observer interface {
	// RunWaits tells that a run waits for forks, which others hold; RunWaited that it does so no more.
	RunWaits()
	RunWaited()
	// RunStarted tells that a run begins with so many forks.
	RunStarted(forks int)
	// RunEnded tells how it ended: "ok" or a Class.
	RunEnded(forks int, how string, took time.Duration)
}

type nobody struct{}

func (nobody) RunWaits()                           {}
func (nobody) RunWaited()                          {}
func (nobody) RunStarted(int)                      {}
func (nobody) RunEnded(int, string, time.Duration) {}

package steps

import (
	"fmt"
	"sync"

	"github.com/director-kaas/kaas/director/ansible"
)

// playWatch turns what a run tells into notes of its step. A failure is noted the moment it happens, while the other
// hosts go on; after that only when as many hosts again have failed alike, so that a thousand hosts with one trouble
// are ten notes and not a thousand.
type playWatch struct {
	note func(text string)

	mu     sync.Mutex
	failed map[string]bool // hosts
}

func (w *playWatch) event(e ansible.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Type {
	case ansible.Waiting:
		w.note("waits for a free Ansible fork")
	case ansible.TaskStart:
		text := "task: " + e.Task
		switch n := len(w.failed); n {
		case 0:
		case 1:
			text += " (1 host has failed)"
		default:
			text += fmt.Sprintf(" (%d hosts have failed)", n)
		}
		w.note(text)
	}
}

func (w *playWatch) failure(g ansible.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = map[string]bool{}
	}
	for _, h := range g.Hosts {
		w.failed[h] = true
	}
	if n := len(g.Hosts); n&(n-1) != 0 {
		return
	}
	text := g.String()
	if g.Cause != nil && g.Cause.Hint != "" {
		text += "; next: " + g.Cause.Hint
	}
	w.note(text)
}

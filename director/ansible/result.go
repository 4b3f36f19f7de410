package ansible

import (
	"sort"
	"strings"
	"time"
)

// Result is what a run did, as far as it came. It is filled in also when Play returns an error.
type Result struct {
	Stats    map[string]HostStats // by host; only hosts that were part of a play
	Changed  int                  // tasks that changed something, over all hosts
	Failures []Failure            // what stopped hosts, in the order of happening; not what was ignored or rescued
	Slowest  []TaskTime           // the tasks that took longest, slowest first, at most twenty
	Started  time.Time
	Duration time.Duration
	ExitCode int // of ansible-playbook, -1 if a signal ended it or it never started; for logs, not for decisions
	Lost     int // events that are missing
}

// Failure is why a host could not continue.
type Failure struct {
	Host        string
	Task        string // without the role's name
	Role        string
	Path        string // file:line of the task, relative to the tree
	Msg         string
	Command     string // what the task ran, if the module tells
	Tail        string // the end of its output, standard error last
	Unreachable bool
}

// TaskTime is how long a task took on the slowest of its hosts.
type TaskTime struct {
	Task    string
	Role    string
	Host    string
	Seconds float64
}

const slowest = 20

// fold folds events into what a run's end is judged by.
type fold struct {
	playing  bool // a play has started
	task     string
	answered map[string]bool // hosts that are through with task
	seen     map[string]bool // hosts that are in the play, as far as known
	gone     map[string]bool // hosts that are out of it
	changed  int
	lost     int
	failures []Failure
	times    map[string]TaskTime
	stats    map[string]HostStats
	ended    bool // the stats have come
}

func newFold() *fold {
	return &fold{
		answered: map[string]bool{}, seen: map[string]bool{}, gone: map[string]bool{},
		times: map[string]TaskTime{},
	}
}

func (f *fold) add(e Event) {
	switch e.Type {
	case PlayStart:
		f.playing = true
		f.task = ""
		clear(f.answered)
		clear(f.seen)
	case TaskStart:
		f.task = taskName(e.Role, e.Task)
		clear(f.answered)
	case HostResult:
		f.host(e)
	case Stats:
		f.ended, f.stats = true, e.Stats
	case Lost:
		f.lost += e.Count
	}
}

func (f *fold) host(e Event) {
	f.seen[e.Host], f.answered[e.Host] = true, true
	name := taskName(e.Role, e.Task)
	if t, ok := f.times[name]; !ok || e.Seconds > t.Seconds {
		f.times[name] = TaskTime{Task: e.Task, Role: e.Role, Host: e.Host, Seconds: e.Seconds}
	}
	if e.Status == StatusChanged {
		f.changed++
	}
	if !e.stops() {
		return
	}
	f.gone[e.Host] = true
	f.failures = append(f.failures, failureOf(e))
}

func failureOf(e Event) Failure {
	return Failure{
		Host: e.Host, Task: e.Task, Role: e.Role, Path: e.Path, Msg: e.Msg, Command: e.Command,
		Tail:        strings.TrimSpace(strings.TrimSpace(e.Stdout) + "\n" + strings.TrimSpace(e.Stderr)),
		Unreachable: e.Status == StatusUnreachable,
	}
}

// stops tells whether the event is a failure that the playbook does not ignore. A block may still rescue the host.
func (e Event) stops() bool {
	return e.Type == HostResult && !e.Ignored && (e.Status == StatusFailed || e.Status == StatusUnreachable)
}

// pending returns the hosts that have not answered the current task. Before a host's first answer only limit tells that
// it is part of the play.
func (f *fold) pending(limit []string) []string {
	var hosts []string
	for h := range f.seen {
		hosts = append(hosts, h)
	}
	for _, h := range limit {
		if !f.seen[h] && !strings.ContainsAny(h, "*:!&[]~,") {
			hosts = append(hosts, h)
		}
	}
	waiting := hosts[:0]
	for _, h := range hosts {
		if !f.answered[h] && !f.gone[h] {
			waiting = append(waiting, h)
		}
	}
	sort.Strings(waiting)
	return waiting
}

// result fills in r. The stats at the end tell which failures counted: of a host that they list with n of them, the
// last n are what stopped it, and the others were rescued.
func (f *fold) result(r *Result) {
	r.Stats, r.Changed, r.Lost = f.stats, f.changed, f.lost
	r.Failures = f.failures
	if f.ended {
		r.Changed, r.Failures = 0, nil
		left := map[string]int{}
		for host, s := range f.stats {
			r.Changed += s.Changed
			left[host] = s.Failed + s.Unreachable
		}
		for i := len(f.failures) - 1; i >= 0; i-- {
			if x := f.failures[i]; left[x.Host] > 0 {
				left[x.Host]--
				r.Failures = append(r.Failures, x)
			}
		}
		for i, j := 0, len(r.Failures)-1; i < j; i, j = i+1, j-1 {
			r.Failures[i], r.Failures[j] = r.Failures[j], r.Failures[i]
		}
	}
	for _, t := range f.times {
		r.Slowest = append(r.Slowest, t)
	}
	sort.Slice(r.Slowest, func(i, j int) bool {
		if a, b := r.Slowest[i], r.Slowest[j]; a.Seconds != b.Seconds {
			return a.Seconds > b.Seconds
		} else {
			return taskName(a.Role, a.Task) < taskName(b.Role, b.Task)
		}
	})
	r.Slowest = r.Slowest[:min(len(r.Slowest), slowest)]
}

package ansible

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// EventType says what an Event is about. Readers skip types they do not know.
type EventType string

// The events of a run in the order in which they usually come.
const (
	RunStart      EventType = "run_start"      // the run's directory is ready; Playbook, Limit, Tags, Check
	Waiting       EventType = "waiting"        // for forks: other runs hold all of them
	PlaybookStart EventType = "playbook_start" // ansible-playbook has parsed the playbook
	PlayStart     EventType = "play_start"     // Play
	TaskStart     EventType = "task_start"     // Task, Role, Path, Action
	HostResult    EventType = "host"           // a task's outcome on one host; Status and the rest
	Retry         EventType = "retry"          // an until loop tries again; Attempts, Retries
	Diff          EventType = "diff"           // what a task changes or would change; Diff
	NoHosts       EventType = "no_hosts"       // a play has no host to run on
	Output        EventType = "output"         // a line that ansible-playbook printed; Stream, Msg
	Stats         EventType = "stats"          // the counts per host at the end
	Lost          EventType = "lost"           // Count events are missing, for example because the disk was full
	RunEnd        EventType = "run_end"        // Status is ok or a Class; Msg says why
)

// The values of Event.Status in a HostResult.
const (
	StatusOK          = "ok"
	StatusChanged     = "changed"
	StatusSkipped     = "skipped"
	StatusFailed      = "failed"
	StatusUnreachable = "unreachable"
)

// Event is one thing that happened in a run, and one line of its log. Its texts are bounded and redacted. Fields that
// say nothing are left out of the JSON.
type Event struct {
	N    int       `json:"n"` // from 1 without gaps, within a run
	Time time.Time `json:"time"`
	Type EventType `json:"type"`

	Playbook string   `json:"playbook,omitempty"`
	Limit    []string `json:"limit,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	Check    bool     `json:"check,omitempty"`

	Play    string `json:"play,omitempty"`
	Task    string `json:"task,omitempty"` // without the role's name
	Role    string `json:"role,omitempty"`
	Path    string `json:"path,omitempty"` // file:line, relative to the tree of playbooks
	TaskID  string `json:"task_id,omitempty"`
	Action  string `json:"action,omitempty"` // the module, as the playbook names it
	Handler bool   `json:"handler,omitempty"`

	Host        string   `json:"host,omitempty"`
	DelegatedTo string   `json:"delegated_to,omitempty"`
	Status      string   `json:"status,omitempty"`
	Ignored     bool     `json:"ignored,omitempty"` // the playbook continues despite this failure
	Changed     bool     `json:"changed,omitempty"`
	Seconds     float64  `json:"seconds,omitempty"`
	Msg         string   `json:"msg,omitempty"`
	Stdout      string   `json:"stdout,omitempty"` // the end of it
	Stderr      string   `json:"stderr,omitempty"` // the end of it
	Command     string   `json:"command,omitempty"`
	RC          *int     `json:"rc,omitempty"`
	Attempts    int      `json:"attempts,omitempty"`
	Retries     int      `json:"retries,omitempty"`
	Items       *Items   `json:"items,omitempty"` // of a loop
	Warnings    []string `json:"warnings,omitempty"`
	Diff        string   `json:"diff,omitempty"`
	Cut         []string `json:"cut,omitempty"` // names of the texts that are not whole

	Stream string               `json:"stream,omitempty"` // stdout or stderr
	Count  int                  `json:"count,omitempty"`
	Stats  map[string]HostStats `json:"stats,omitempty"`

	// HostsLeftOut is set in a log alone, where a line has no room for the counts of all hosts.
	HostsLeftOut int `json:"hosts_left_out,omitempty"`
}

// Items counts the outcomes of a loop's items on one host.
type Items struct {
	OK      int `json:"ok"`
	Changed int `json:"changed"`
	Skipped int `json:"skipped"`
	Failed  int `json:"failed"`
}

// HostStats counts the outcomes of a run's tasks on one host, as ansible-playbook counts them at the end: a changed
// task is also an ok one.
type HostStats struct {
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Failed      int `json:"failed"`
	Unreachable int `json:"unreachable"`
	Skipped     int `json:"skipped"`
	Rescued     int `json:"rescued"`
	Ignored     int `json:"ignored"`
}

// String renders the event as one line for a terminal, without its time.
func (e Event) String() string {
	switch e.Type {
	case RunStart:
		return "run " + e.Playbook
	case PlayStart:
		return "play " + e.Play
	case TaskStart:
		return "task " + taskName(e.Role, e.Task)
	case HostResult:
		var b strings.Builder
		fmt.Fprintf(&b, "  %s: %s", e.Host, e.Status)
		if e.Ignored {
			b.WriteString(" (ignored)")
		}
		if e.Seconds >= 0.1 {
			fmt.Fprintf(&b, " in %.1f s", e.Seconds)
		}
		if (e.Status == StatusFailed || e.Status == StatusUnreachable) && e.Msg != "" {
			b.WriteString(": " + e.Msg)
		}
		return b.String()
	case Retry:
		return fmt.Sprintf("  %s: tries again, %d of %d", e.Host, e.Attempts, e.Retries)
	case Diff:
		return e.Diff
	case Lost:
		return fmt.Sprintf("%d events are missing", e.Count)
	case RunEnd:
		return strings.TrimSpace(fmt.Sprintf("end: %s in %.1f s %s", e.Status, e.Seconds, e.Msg))
	case PlaybookStart, Stats:
		return string(e.Type)
	default:
		return strings.TrimSpace(string(e.Type) + " " + e.Msg)
	}
}

func taskName(role, task string) string {
	if role == "" {
		return task
	}
	return role + " : " + task
}

// How long texts may be, here and in the plugin. The plugin sends up to spare bytes more than are kept; they are
// dropped at the cut end after the search for secrets, so that half a secret at the cut goes with them.
const (
	keepText = 4096
	spare    = 2048
	maxLine  = 256 << 10 // of the events file; the plugin writes shorter ones
)

// decode reads one line of the events file.
func decode(line []byte) (Event, error) {
	var e Event
	err := json.Unmarshal(line, &e)
	if err == nil && e.Type == "" {
		err = fmt.Errorf("an event without a type")
	}
	return e, err
}

// sanitize removes secrets from every text of e and bounds it. tree is cut from paths.
func (e *Event) sanitize(secrets *Redactor, tree string) {
	cut := func(name string) bool {
		for _, c := range e.Cut {
			if c == name {
				return true
			}
		}
		return false
	}
	bound := func(name string, s *string, tail bool) {
		if *s == "" {
			return
		}
		*s = secrets.Redact(*s)
		if cut(name) {
			*s = shorten(*s, max(len(*s)-spare, 0), tail)
		}
		if len(*s) > keepText {
			*s = shorten(*s, keepText, tail)
			if !cut(name) {
				e.Cut = append(e.Cut, name)
			}
		}
	}
	bound("msg", &e.Msg, false)
	bound("diff", &e.Diff, false)
	bound("command", &e.Command, false)
	bound("stdout", &e.Stdout, true)
	bound("stderr", &e.Stderr, true)
	for _, s := range []*string{&e.Playbook, &e.Play, &e.Task, &e.Role, &e.Path, &e.Action} {
		*s = secrets.Redact(*s)
	}
	for i := range e.Warnings {
		e.Warnings[i] = secrets.Redact(e.Warnings[i])
	}
	e.Path = strings.TrimPrefix(e.Path, strings.TrimSuffix(tree, "/")+"/")
}

// shorten keeps n bytes of s, or a few less so as not to cut a character in two.
func shorten(s string, n int, tail bool) string {
	if len(s) <= n {
		return s
	}
	if tail {
		return strings.ToValidUTF8(s[len(s)-n:], "")
	}
	return strings.ToValidUTF8(s[:n], "")
}

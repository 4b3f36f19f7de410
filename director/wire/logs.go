package wire

import (
	"encoding/json"
	"time"
)

// LogLines is a window of a step's log.
type LogLines struct {
	Items   []LogLine `json:"items" nullable:"false"`
	Attempt int       `json:"attempt" doc:"Of the step; 0 before the first."`
	Total   int64     `json:"total" doc:"Whole lines that the log has now."`
	Next    int64     `json:"next" doc:"The line to continue with."`
	Growing bool      `json:"growing" doc:"The attempt runs, and may write more."`
}

// LogLine is a line of a log.
type LogLine struct {
	Line   int64           `json:"line" doc:"Its number, from 1."`
	Record json.RawMessage `json:"record" doc:"What it says: a LogRecord, with further fields of its type."`
}

// LogRecord is what lines of logs have in common. Lines of other types may have further fields.
type LogRecord struct {
	N        int       `json:"n,omitempty" doc:"Number within a run of a playbook, from 1."`
	Time     time.Time `json:"time,omitzero"`
	Type     string    `json:"type,omitempty" doc:"run_start, waiting, playbook_start, play_start, task_start, host, retry, diff, no_hosts, output, stats, lost or run_end. Readers skip types that they do not know."`
	Playbook string    `json:"playbook,omitempty"`
	Play     string    `json:"play,omitempty"`
	Task     string    `json:"task,omitempty"`
	Role     string    `json:"role,omitempty"`
	Path     string    `json:"path,omitempty" doc:"File and line of the task."`
	Action   string    `json:"action,omitempty" doc:"Module of the task."`
	Host     string    `json:"host,omitempty"`
	Status   string    `json:"status,omitempty" doc:"Of a host: ok, changed, skipped, failed or unreachable. Of run_end: ok, or what class of failure it is."`
	Ignored  bool      `json:"ignored,omitempty" doc:"The playbook continues despite this failure."`
	Changed  bool      `json:"changed,omitempty"`
	Seconds  float64   `json:"seconds,omitempty"`
	Msg      string    `json:"msg,omitempty"`
	Stdout   string    `json:"stdout,omitempty" doc:"The end of it."`
	Stderr   string    `json:"stderr,omitempty" doc:"The end of it."`
	Command  string    `json:"command,omitempty"`
	RC       *int      `json:"rc,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Retries  int       `json:"retries,omitempty"`
	Diff     string    `json:"diff,omitempty"`
	Cut      []string  `json:"cut,omitempty" doc:"Names of the texts that are not whole."`
	Count    int       `json:"count,omitempty" doc:"Of lost: how many events are missing."`
}

// LogHits is what a search in a step's log has found, in order.
type LogHits struct {
	Items   []LogHit `json:"items" nullable:"false"`
	Attempt int      `json:"attempt"`
	Total   int64    `json:"total" doc:"Whole lines that the log has now."`
	Next    int64    `json:"next,omitempty" doc:"The line to continue the search with. Absent if it has come to the end."`
}

// LogHit is a line that fits a search.
type LogHit struct {
	Line int64  `json:"line" doc:"Its number, from 1."`
	Text string `json:"text" doc:"What fits, with some text around it."`
}

// LogEnd is the data of the last message of a log's stream.
type LogEnd struct {
	Attempt int   `json:"attempt"`
	Total   int64 `json:"total" doc:"Lines that the log has."`
}

package wire

import "time"

// ConsoleText is the end of what a VM has printed.
type ConsoleText struct {
	Text string    `json:"text" doc:"With the control sequences of a terminal; empty for a VM that has printed nothing."`
	At   time.Time `json:"at" doc:"When the hypervisor was asked."`
}

// ShellSize is what a client says when its screen changes.
type ShellSize struct {
	Cols int `json:"cols" doc:"Width in characters."`
	Rows int `json:"rows" doc:"Height in lines."`
}

// ShellEnd is the last message of a shell.
type ShellEnd struct {
	Ended   string   `json:"ended,omitempty" doc:"Why it ended."`
	Problem *Problem `json:"problem,omitempty" doc:"Why there is no shell."`
}

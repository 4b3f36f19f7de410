package ansible

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLogLineIsBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, s string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = s
		}
		return out
	}
	stats := map[string]HostStats{}
	for i := range 10000 {
		stats[fmt.Sprintf("n%05d", i)] = HostStats{OK: 1}
	}
	stats["n09998"], stats["n09999"] = HostStats{Unreachable: 1}, HostStats{Failed: 2}
	full := strings.Repeat("\x01", keepText) // six bytes each in JSON
	for name, e := range map[string]Event{
		"texts": {Msg: full, Stdout: full, Stderr: full, Command: full, Diff: full},
		"names": {
			Play: strings.Repeat("ä", 1<<20), Task: strings.Repeat("\xff", 1<<20), Host: strings.Repeat("h", 1<<20),
		},
		"warnings": {Warnings: many(5000, "a warning of a module")},
		"limit":    {Limit: many(5000, "demo-worker-1234"), Tags: many(5000, full)},
		"stats":    {Stats: stats},
		"at bound": {Play: strings.Repeat("p", maxLogLine)},
	} {
		line, err := logLine(e)
		if err != nil || len(line) > maxLogLine || !json.Valid(line) || strings.Count(string(line), "\n") != 1 ||
			line[len(line)-1] != '\n' {
			t.Errorf("%s: %d bytes, %v", name, len(line), err)
		}
		if !strings.Contains(string(line), "left out]") && !strings.Contains(string(line), `"hosts_left_out":`) {
			t.Errorf("%s: it is not said that something is left out: %.300s", name, line)
		}
	}
	line, err := logLine(Event{Stats: stats})
	var got Event
	if err != nil || json.Unmarshal(line, &got) != nil || got.HostsLeftOut+len(got.Stats) != len(stats) ||
		got.Stats["n09999"].Failed != 2 ||
		got.Stats["n09998"].Unreachable != 1 || len(got.Stats) < 100 {
		t.Errorf("%d hosts, %d left out, %v", len(got.Stats), got.HostsLeftOut, err)
	}
}

func TestLogLineThatFits(t *testing.T) {
	t.Parallel()
	e := Event{
		N: 1, Type: HostResult, Msg: strings.Repeat("m", keepText), Stdout: strings.Repeat("o", keepText),
		Stderr: strings.Repeat("e", keepText),
	}
	line, err := logLine(e)
	var got Event
	if err != nil || json.Unmarshal(line, &got) != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("a line with room is changed: %s", diff)
	}
}

func TestCutText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		tail bool
		want string
	}{
		{"12345678", false, "12345678"},
		{"123456789", false, "12345678 [1 bytes left out]"},
		{"123456789", true, "[1 bytes left out] 23456789"},
		{"1234567ä89", false, "1234567 [4 bytes left out]"},
		{"12ä4567890", true, "[4 bytes left out] 4567890"},
	} {
		if got := cutText(c.in, 8, c.tail); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// The log that a run leaves behind holds to the bound, whatever the events are.
func TestSinkBoundsItsLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run.jsonl")
	var seen int
	s, err := openSink(path, nil, "", func(e Event) { seen = max(seen, len(e.Warnings)) })
	if err != nil {
		t.Fatal(err)
	}
	s.emit(Event{Type: HostResult, Warnings: strings.Split(strings.Repeat("warning ", 20000), " ")})
	s.emit(Event{Type: RunEnd})
	s.flush()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2 || len(lines[0]) >= maxLogLine || seen < 20000 {
		t.Errorf("%d lines, the first has %d bytes; listeners saw %d warnings", len(lines), len(lines[0]), seen)
	}
	if err := s.out.Close(); err != nil {
		t.Fatal(err)
	}
}

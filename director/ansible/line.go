package ansible

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxLogLine is how long a line of a run's log is at most, with its end. Events are bounded text by text; this holds
// for what has many of them, or hosts by the thousand, or bytes that JSON writes as six.
const maxLogLine = 32 << 10

// logLine renders the event as a line of the log. In one that would be too long, every long text is cut to the same
// length and says how many bytes were left out, and lists say how many entries.
func logLine(e Event) ([]byte, error) {
	line, err := json.Marshal(e)
	for limit := keepText; err == nil && len(line) >= maxLogLine; limit /= 2 {
		line, err = json.Marshal(e.within(limit))
	}
	return append(line, '\n'), err
}

// within returns a copy whose texts have about limit bytes at most and whose lists have limit/16 entries.
func (e Event) within(limit int) Event {
	for _, s := range []*string{
		&e.Playbook, &e.Play, &e.Task, &e.Role, &e.Path, &e.TaskID, &e.Action, &e.Host, &e.DelegatedTo, &e.Msg,
		&e.Command, &e.Diff,
	} {
		*s = cutText(*s, limit, false)
	}
	e.Stdout, e.Stderr = cutText(e.Stdout, limit, true), cutText(e.Stderr, limit, true)
	for _, l := range []*[]string{&e.Limit, &e.Tags, &e.Warnings, &e.Cut} {
		*l = cutList(*l, limit)
	}
	if len(e.Stats) > limit/16 {
		hosts := slices.SortedFunc(maps.Keys(e.Stats), func(a, b string) int { // those that failed first
			if x, y := e.Stats[a].bad(), e.Stats[b].bad(); x != y {
				return y - x
			}
			return strings.Compare(a, b)
		})
		stats := make(map[string]HostStats, limit/16)
		for _, h := range hosts[:limit/16] {
			stats[cutText(h, limit, false)] = e.Stats[h]
		}
		e.HostsLeftOut, e.Stats = len(hosts)-limit/16, stats
	}
	return e
}

func (s HostStats) bad() int { return s.Failed + s.Unreachable }

// cutText keeps limit bytes of s, or a few less so as not to cut a character in two, and says how many it left out.
func cutText(s string, limit int, tail bool) string {
	if len(s) <= limit {
		return s
	}
	if tail {
		at := len(s) - limit
		for at < len(s) && !utf8.RuneStart(s[at]) {
			at++
		}
		return fmt.Sprintf("[%d bytes left out] %s", at, s[at:])
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return fmt.Sprintf("%s [%d bytes left out]", s[:limit], len(s)-limit)
}

func cutList(l []string, limit int) []string {
	out := slices.Clone(l)
	if most := limit / 16; len(l) > most {
		out = append(out[:most], fmt.Sprintf("[%d more left out]", len(l)-most))
	}
	for i := range out {
		out[i] = cutText(out[i], limit, false)
	}
	return out
}

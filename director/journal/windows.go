package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/director-kaas/kaas/director/plan"
)

const (
	windowBytes = 4 << 20                 // of a window at most, so that long lines do not fill the memory
	searchTime  = 1500 * time.Millisecond // of one search; the next one continues it
	hitText     = 160                     // bytes around a hit that are shown
)

// LogQuery says which part of a step's log is wanted. Lines count from 1.
type LogQuery struct {
	Step    string
	Attempt int   // 0 is the latest
	From    int64 // 0 means Tail
	Tail    int64 // so many lines before the end
	Limit   int
}

// LogLine is a line of a log.
type LogLine struct {
	Line   int64
	Record json.RawMessage // an object; a line that is none is wrapped in one
}

// LogWindow is a part of a log.
type LogWindow struct {
	Lines   []LogLine
	Attempt int
	Total   int64 // whole lines that the log has now
	Next    int64 // the line to continue with
	Growing bool  // the attempt runs, and may write more
}

// LogSearch says what is looked for in a step's log.
type LogSearch struct {
	Step    string
	Attempt int
	Text    string // in any text of a line, in any case; empty for all lines
	Failed  bool   // only lines of what failed, see hasFailed
	From    int64  // the first line that is looked at; 0 is 1
	Limit   int
}

// Hit is a line that fits a search.
type Hit struct {
	Line int64
	Text string // what fits, with some text around it
}

// Hits is what a search has found.
type Hits struct {
	Items   []Hit
	Attempt int
	Total   int64 // whole lines that the log has now
	Next    int64 // the line to continue with; 0 if the search has come to the end
}

// openLog opens the log of an attempt. f is nil if nothing was written.
func (s *Service) openLog(
	ctx context.Context, id, step string, attempt int,
) (f *os.File, n int, grows bool, err error) {
	r, err := s.stepLog(ctx, id, step, attempt, 0)
	if err != nil {
		return nil, 0, false, err
	}
	if n = attempt; n == 0 {
		if n, err = s.Store.StepAttempt(ctx, id, step); err != nil {
			return nil, 0, false, errors.Join(err, r.Close())
		}
	}
	_, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return nil, 0, false, errors.Join(err, r.Close())
	}
	if st := state.Step(step); st != nil && st.Attempt == n {
		grows = st.Status == plan.Running || st.Status == plan.Undoing
	}
	f, _ = r.(*os.File)
	return f, n, grows, nil
}

// LogLines returns a window of a step's log.
func (s *Service) LogLines(ctx context.Context, id string, q LogQuery) (LogWindow, error) {
	w, err := s.logLines(ctx, id, q)
	if away, ok := s.away(err); ok {
		q.Attempt = away.attempt
		return s.Peers.LogLines(ctx, away.by, id, q)
	}
	return w, err
}

func (s *Service) logLines(ctx context.Context, id string, q LogQuery) (LogWindow, error) {
	f, attempt, grows, err := s.openLog(ctx, id, q.Step, q.Attempt)
	w := LogWindow{Attempt: attempt, Growing: grows, Next: 1}
	if err != nil || f == nil {
		return w, err
	}
	defer f.Close()
	index, err := s.logs.of(ctx, f)
	if err != nil {
		return w, err
	}
	defer index.mu.Unlock()
	w.Total = index.lines
	line := q.From - 1
	if q.From <= 0 {
		line = max(0, index.lines-q.Tail)
	}
	line = min(line, index.lines)
	r, err := index.reader(f, line)
	if err != nil {
		return w, err
	}
	for size := 0; len(w.Lines) < q.Limit && line < index.lines && size < windowBytes; line++ {
		text, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return w, err
		}
		size += len(text)
		w.Lines = append(w.Lines, LogLine{line + 1, record(text)})
	}
	w.Next = line + 1
	return w, nil
}

// record is the line as a JSON object.
func record(line []byte) json.RawMessage {
	line = bytes.TrimSpace(line)
	if len(line) > 0 && line[0] == '{' && json.Valid(line) {
		return line
	}
	text, _ := json.Marshal(map[string]string{"msg": strings.ToValidUTF8(string(line), "\uFFFD")}) // texts marshal
	return text
}

// SearchLog returns lines of a step's log that fit, in order. A search that takes long ends before its time, and says
// where to continue.
func (s *Service) SearchLog(ctx context.Context, id string, q LogSearch) (Hits, error) {
	hits, err := s.searchLog(ctx, id, q)
	if away, ok := s.away(err); ok {
		q.Attempt = away.attempt
		return s.Peers.SearchLog(ctx, away.by, id, q)
	}
	return hits, err
}

func (s *Service) searchLog(ctx context.Context, id string, q LogSearch) (Hits, error) {
	f, attempt, _, err := s.openLog(ctx, id, q.Step, q.Attempt)
	out := Hits{Attempt: attempt}
	if err != nil || f == nil {
		return out, err
	}
	defer f.Close()
	index, err := s.logs.of(ctx, f)
	if err != nil {
		return out, err
	}
	known := index.clone() // what is there does not change
	index.mu.Unlock()
	out.Total = known.lines
	return out, search(ctx, f, &known, q, &out)
}

// search looks through the lines of f that are known.
func search(ctx context.Context, f *os.File, known *lineMap, q LogSearch, out *Hits) error {
	m := newMatcher(q)
	until := time.Now().Add(searchTime)
	line := min(max(q.From-1, 0), known.lines)
	r, err := known.reader(f, line)
	if err != nil {
		return err
	}
	for ; line < known.lines; line++ {
		if line%markEvery == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if time.Now().After(until) {
				break
			}
			next := line
			if q.Failed {
				next = known.suspectFrom(line)
			}
			if next == known.lines {
				line = next
				break
			}
			if next > line {
				line = next
				if r, err = known.reader(f, line); err != nil {
					return err
				}
			}
		}
		text, err := wholeLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		hit, ok := m.match(text)
		if !ok {
			continue
		}
		if len(out.Items) == q.Limit {
			break
		}
		out.Items = append(out.Items, Hit{line + 1, hit})
	}
	if line < known.lines {
		out.Next = line + 1
	}
	return nil
}

// wholeLine returns the next line. It is good until the next call.
func wholeLine(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return text, err
	}
	text = bytes.Clone(text)
	rest, err := r.ReadBytes('\n')
	return append(text, rest...), err
}

// matcher looks for a text in lines of JSON. Most lines are left out by a look at their bytes.
type matcher struct {
	text   string // in lower case
	sure   []byte // part of the text that JSON writes as it is, in lower case; nil if there is none
	failed bool
	lower  []byte
}

func newMatcher(q LogSearch) *matcher {
	m := &matcher{text: strings.ToLower(q.Text), failed: q.Failed}
	// The longest run of characters that no writer of JSON escapes. A colon may stand between a host and its status,
	// which are two texts of JSON.
	for _, run := range strings.FieldsFunc(m.text, func(r rune) bool {
		return r < ' ' || r > '~' || strings.ContainsRune(`:"\/<>&'`, r)
	}) {
		if run = strings.TrimSpace(run); len(run) > len(m.sure) {
			m.sure = []byte(run)
		}
	}
	return m
}

// match returns what fits in the line, with some text around it.
func (m *matcher) match(line []byte) (string, bool) {
	if m.failed && !mayHaveFailed(line) {
		return "", false
	}
	if len(m.sure) > 0 {
		m.lower = append(m.lower[:0], line...)
		for i, c := range m.lower {
			if 'A' <= c && c <= 'Z' {
				m.lower[i] = c + 'a' - 'A'
			}
		}
		if !bytes.Contains(m.lower, m.sure) {
			return "", false
		}
	}
	var v any
	if err := json.Unmarshal(line, &v); err != nil {
		v = strings.ToValidUTF8(strings.TrimSpace(string(line)), "\uFFFD")
	}
	if m.failed && !hasFailed(v) {
		return "", false
	}
	return m.find(v)
}

// failureMarks are texts of which every line that failed has one. They do not begin with their quotation mark, which is
// everywhere: a search for it is four times slower.
var failureMarks = [][]byte{
	[]byte(`failed"`), []byte(`unreachable"`), []byte(`ERROR"`), []byte(`lost"`), []byte(`run_end"`),
}

const longestMark = len(`unreachable"`)

func mayHaveFailed(text []byte) bool {
	return slices.ContainsFunc(failureMarks, func(mark []byte) bool { return bytes.Contains(text, mark) })
}

// hasFailed reports whether the line is about a task that failed, a host that could not be reached, events that are
// missing, an error of the director itself, or a run that ended badly.
func hasFailed(v any) bool {
	o, _ := v.(map[string]any)
	if ignored, _ := o["ignored"].(bool); ignored {
		return false
	}
	switch o["type"] {
	case "run_end":
		return o["status"] != "ok"
	case "lost":
		return true
	}
	return o["status"] == "failed" || o["status"] == "unreachable" || o["level"] == "ERROR"
}

// find looks for the text in all texts of v.
func (m *matcher) find(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		if i := strings.Index(strings.ToLower(v), m.text); i >= 0 {
			return around(v, i, len(m.text)), true
		}
	case []any:
		for _, e := range v {
			if text, ok := m.find(e); ok {
				return text, true
			}
		}
	case map[string]any:
		if m.text == "" {
			text, _ := v["msg"].(string)
			return around(text, 0, 0), true
		}
		// the texts that people read come first
		for _, key := range []string{"msg", "stderr", "stdout", "task", "host"} {
			if text, ok := v[key].(string); ok {
				if hit, ok := m.find(text); ok {
					return hit, true
				}
			}
		}
		if host, ok := v["host"].(string); ok { // as pages and directorctl write it
			if status, ok := v["status"].(string); ok {
				if hit, ok := m.find(host + ": " + status); ok {
					return hit, true
				}
			}
		}
		for _, e := range v {
			if text, ok := m.find(e); ok {
				return text, true
			}
		}
	}
	return "", false
}

// around returns the text from at on with some text before and behind it, and no half characters.
func around(text string, at, length int) string {
	from, to := max(0, min(at, len(text))-hitText/4), min(len(text), at+length+hitText)
	for from > 0 && from < len(text) && !utf8.RuneStart(text[from]) {
		from--
	}
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	return strings.Join(strings.Fields(text[from:to]), " ")
}

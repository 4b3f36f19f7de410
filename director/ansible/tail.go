package ansible

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// sink takes the events of one run in order: numbered, redacted, folded into the result, logged and handed on. One
// goroutine at a time uses it, but for output.
type sink struct {
	n       int
	secrets *Redactor
	tree    string
	fold    *fold
	onEvent func(Event)
	out     *os.File
	log     *bufio.Writer
	broken  error // the log's first error; nothing more is written after it

	mu      sync.Mutex
	printed int      // lines so far
	queue   []Event  // printed lines that are not emitted yet
	tail    []string // the last lines of stderr, for a run that tells nothing else
}

// openSink opens the log, which only the director's user may read.
func openSink(logPath string, secrets *Redactor, tree string, onEvent func(Event)) (*sink, error) {
	s := &sink{secrets: secrets, tree: tree, fold: newFold(), onEvent: onEvent}
	if logPath == "" {
		s.log = bufio.NewWriter(io.Discard)
		return s, nil
	}
	if err := os.MkdirAll(filepath.Dir(logPath), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(logPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s.out, s.log = f, bufio.NewWriterSize(f, 64<<10)
	return s, nil
}

func (s *sink) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	e.sanitize(s.secrets, s.tree)
	s.n++
	e.N = s.n
	s.fold.add(e)
	if s.broken == nil {
		line, err := logLine(e)
		if err == nil {
			_, err = s.log.Write(line)
		}
		s.broken = err
	}
	if s.onEvent != nil {
		s.onEvent(e)
	}
}

// A run prints few lines other than its events: errors and warnings.
const maxPrinted = 2000

// output queues a line. It never waits, not even for a slow OnEvent: that would stop ansible-playbook at its next line.
func (s *sink) output(stream, line string, cut bool) {
	e := Event{Type: Output, Stream: stream, Msg: line, Time: time.Now().UTC()}
	if cut {
		e.Cut = []string{"msg"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stream == "stderr" {
		if s.tail = append(s.tail, s.secrets.Redact(line)); len(s.tail) > 40 {
			s.tail = s.tail[1:]
		}
	}
	s.printed++
	if s.printed == maxPrinted {
		e.Msg, e.Cut = "more lines were printed and are not shown", nil
	}
	if s.printed <= maxPrinted {
		s.queue = append(s.queue, e)
	}
}

// emitOutput emits the queued lines.
func (s *sink) emitOutput() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, e := range queue {
		s.emit(e)
	}
}

func (s *sink) flush() {
	if err := s.log.Flush(); err != nil && s.broken == nil {
		s.broken = err
	}
}

// close writes the log out. A log that could not be written does not fail the run.
func (s *sink) close(log *slog.Logger, id string) {
	s.flush()
	if s.out == nil {
		return
	}
	if err := s.out.Close(); err != nil && s.broken == nil {
		s.broken = err
	}
	if s.broken != nil {
		log.Warn("the log of a run is not complete", "play", id, "err", s.broken)
	}
}

// tailer follows the events file. The plugin appends to it and never waits for us.
type tailer struct {
	file *os.File
	sink *sink
	rest []byte // a line without its end
	skip bool   // within a line that is too long
	last int    // the plugin's number of the last event
	buf  []byte
}

// tailEvery is how late an event may be seen.
const tailEvery = 50 * time.Millisecond

// follow reads until ended is closed and then to the end of the file.
func (t *tailer) follow(ended <-chan struct{}) {
	t.buf = make([]byte, 64<<10)
	ticker := time.NewTicker(tailEvery)
	defer ticker.Stop()
	for last := false; ; {
		t.drain()
		t.sink.emitOutput()
		t.sink.flush()
		if last {
			return
		}
		select {
		case <-ended:
			last = true
		case <-ticker.C:
		}
	}
}

func (t *tailer) drain() {
	for {
		n, err := t.file.Read(t.buf)
		t.add(t.buf[:n])
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

func (t *tailer) add(data []byte) {
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			if t.rest = append(t.rest, data...); len(t.rest) > maxLine {
				t.rest, t.skip = t.rest[:0], true
			}
			return
		}
		line := data[:i]
		if len(t.rest) > 0 {
			line = append(t.rest, line...)
		}
		if !t.skip && len(line) <= maxLine {
			t.line(line)
		}
		t.rest, t.skip, data = t.rest[:0], false, data[i+1:]
	}
}

// line takes one line. What is not an event shows as a gap in the numbers of those that are.
func (t *tailer) line(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	e, err := decode(line)
	if err != nil {
		return
	}
	if missing := e.N - t.last - 1; missing > 0 && e.N > 0 {
		t.sink.emit(Event{Type: Lost, Count: missing})
	}
	t.last = max(t.last, e.N)
	t.sink.emit(e)
}

package simulate

import (
	"io"
	"strings"
	"sync"
)

// Shell is a shell on a machine that only pretends: it shows what is typed and does nothing. A line "exit" ends it.
type Shell struct {
	in   *io.PipeReader
	out  *io.PipeWriter
	typ  sync.Mutex
	line strings.Builder
}

// NewShell returns a shell on the machine with the name.
func NewShell(name string) *Shell {
	s := &Shell{}
	s.in, s.out = io.Pipe()
	go func() {
		_, _ = io.WriteString(s.out, name+" only pretends: what you type is shown, and does nothing.\r\n"+prompt)
	}()
	return s
}

const prompt = "$ "

// Read implements shell.Terminal.
func (s *Shell) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write implements shell.Terminal.
func (s *Shell) Write(p []byte) (int, error) {
	s.typ.Lock()
	defer s.typ.Unlock()
	for _, c := range string(p) {
		echo := string(c)
		switch {
		case c == '\r' || c == '\n':
			line := s.line.String()
			s.line.Reset()
			if strings.TrimSpace(line) == "exit" {
				return len(p), s.Close()
			}
			echo = "\r\n" + prompt
		case c < ' ' || c == 0x7f:
			echo = ""
		case s.line.Len() < 1000:
			s.line.WriteRune(c)
		}
		if _, err := io.WriteString(s.out, echo); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Resize implements shell.Terminal.
func (s *Shell) Resize(int, int) error { return nil }

// Close implements shell.Terminal.
func (s *Shell) Close() error { return s.out.Close() }

package main

import (
	"fmt"
	"io"
)

// say writes a formatted text. That a reader has gone is no error of the command: a pipe that breaks ends it by its
// signal.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// sayLine writes a line, as say does.
func sayLine(w io.Writer, args ...any) { _, _ = fmt.Fprintln(w, args...) }

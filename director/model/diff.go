package model

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// The limits of Diff. What is over them is not aligned, or not shown.
const (
	maxAligned = 20_000 // lines of both texts, without the beginning and the end that they share
	maxShown   = 1_000  // lines of a difference
	maxLine    = 500    // bytes of a line
)

// Diff returns the lines that differ between two texts, like diff -U1 without headers, or "" when they are equal.
// Memory grows with the length of the texts, and time with n log n. A difference of more than 1,000 lines ends with a
// line that says how many are left out.
func Diff(before, after string) string {
	if before == after {
		return ""
	}
	a, b := lines(before), lines(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	if head == len(a) && head == len(b) {
		return "" // only the line ends at the end of the texts differ
	}
	p := printer{}
	if head > 0 {
		p.add(' ', a[head-1])
	}
	if x, y := a[head:len(a)-tail], b[head:len(b)-tail]; len(x)+len(y) > maxAligned {
		for _, l := range x {
			p.add('-', l)
		}
		for _, l := range y {
			p.add('+', l)
		}
	} else {
		p.aligned(x, y)
	}
	if tail > 0 {
		p.add(' ', a[len(a)-tail])
	}
	if p.more > 0 {
		fmt.Fprintf(&p.out, "  ... %d more lines\n", p.more)
	}
	return p.out.String()
}

func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }

// printer writes what Diff returns.
type printer struct {
	out         strings.Builder
	shown, more int
}

func (p *printer) add(mark byte, line string) {
	if p.shown == maxShown {
		p.more++
		return
	}
	p.shown++
	p.out.WriteByte(mark)
	p.out.WriteByte(' ')
	if len(line) > maxLine {
		line = strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	p.out.WriteString(line)
	p.out.WriteByte('\n')
}

// aligned adds the difference of two lists of lines, with one line around each change.
func (p *printer) aligned(a, b []string) {
	// The library's form: three lines of header, then hunks that begin with @@; every other line begins with its mark.
	var all []string
	for text := range bytes.Lines(diff.Diff("a", joined(a), "b", joined(b))) {
		all = append(all, strings.TrimSuffix(string(text), "\n"))
	}
	changed := func(i int) bool {
		return i >= 3 && i < len(all) && (all[i][0] == '-' || all[i][0] == '+')
	}
	for i := 3; i < len(all); i++ {
		if changed(i) || (all[i][0] == ' ' && (changed(i-1) || changed(i+1))) {
			p.add(all[i][0], all[i][1:])
		}
	}
}

func joined(lines []string) []byte {
	if len(lines) == 0 {
		return nil
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

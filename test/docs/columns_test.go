package docs

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const columns = 120

// tooLong returns the lines of prose that are longer than an editor shows side by side. Tables and code have the lines
// that they have, and a line that is one long word, such as a link, cannot be broken.
func tooLong(p Page) []int {
	var long []int
	for _, line := range p.Lines {
		text := strings.TrimLeft(line.Text, " -*")
		if line.Code || strings.HasPrefix(text, "|") || !strings.Contains(text, " ") {
			continue
		}
		if utf8.RuneCountInString(line.Text) > columns {
			long = append(long, line.Number)
		}
	}
	return long
}

func TestColumnsOfProse(t *testing.T) {
	t.Parallel()
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, line := range tooLong(page) {
			t.Errorf("%s:%d: the line has more than %d columns", page.Path, line, columns)
		}
	}
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 30)
	page := Page{
		Lines: lines(
			strings.Join(
				[]string{long, "| " + long + "|", "```", long, "```", strings.Repeat("x", 200), "short", "- " + long},
				"\n",
			),
		),
	}
	if got := tooLong(page); len(got) != 2 || got[0] != 1 || got[1] != 8 {
		t.Errorf("lines %v are too long, want 1 and 8", got)
	}
}

package api

import (
	"testing"

	"github.com/director-kaas/kaas/director"
)

// A preview has the line of a value that cannot be read, its document and its pointer.
func TestLocatedValues(t *testing.T) {
	t.Parallel()
	l := locate([]byte("kind: Network\nmetadata: {name: a}\nspec:\n  cidr: x\n---\n" +
		"kind: Network\nmetadata: {name: a}\nspec:\n  cidr: y\n"))
	for _, c := range []struct {
		field      director.Field
		line       int
		place, ptr string
	}{
		{director.Field{Path: "text:4: spec.cidr", Document: "Network/a"}, 4, "spec.cidr", "/spec/cidr"},
		{director.Field{Path: "text:9: spec.cidr", Document: "Network/a"}, 9, "spec.cidr", "/spec/cidr"},
		{director.Field{Path: "Network/a: spec.cidr", Document: "Network/a"}, 9, "Network/a: spec.cidr", "/spec/cidr"},
	} {
		got := located(l, []director.Field{c.field})[0]
		if got.Line != c.line || got.Field != c.place || got.Pointer != c.ptr || got.Document != "Network/a" {
			t.Errorf("%s: %+v", c.field.Path, got)
		}
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	l := locate([]byte(`kind: Network
metadata: {name: net}
spec:
  cidr: 10.0.0.0/8
---
kind: Cluster
metadata:
  name: demo
spec:
  workers:
    - name: w
      count: 1
    - {name: x, memory: 1GiB}
--- [
`))
	for _, c := range []struct {
		document   string
		line       int
		pointer    string
		atLine, at int
	}{
		{"Cluster/demo", 0, "/spec/workers/0/count", 12, 7},
		{"Cluster/demo", 0, "/spec/workers/1/memory", 13, 17},
		{"Cluster/demo", 0, "/spec/workers/1", 13, 7},
		{"Cluster/demo", 0, "/spec/workers/7/memory", 10, 3}, // the nearest that is there
		{"Cluster/demo", 0, "", 6, 1},
		{"", 3, "/spec/cidr", 4, 3},
		{"", 9, "/metadata/name", 8, 3},
		{"", 9, "", 6, 1},
		{"Cluster/other", 0, "/spec", 0, 0},
		{"", 0, "/spec", 0, 0},
	} {
		if line, column := l.at(c.document, c.line, c.pointer); line != c.atLine || column != c.at {
			t.Errorf("%s %d %s: %d:%d, want %d:%d", c.document, c.line, c.pointer, line, column, c.atLine, c.at)
		}
	}
	if n := l.lineOf("line 14: did not find expected node content"); n != 14 {
		t.Errorf("line %d", n)
	}
	if n := l.lineOf("something else"); n != 0 {
		t.Errorf("line %d", n)
	}
}

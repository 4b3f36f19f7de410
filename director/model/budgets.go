package model

import (
	"bytes"
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// The budgets of one document as text. They bound the memory and the time that reading it takes, whatever it holds. The
// largest real documents, clusters with many pools and their scripts, need a tenth of them.
const (
	maxBytes   = 512 << 10
	maxMarks   = 40_000 // characters that may begin a value; counted before the text is parsed
	maxValues  = 8_000  // keys and values, with those of aliases counted each time
	maxAliases = 100
	maxDepth   = 32
	maxKey     = 1024
	maxPlain   = 200 // bytes of an address, a size or a duration
	// maxProblems bounds an answer. Who has more problems than this starts with these.
	maxProblems = 100
)

// overBudget returns what in the text is too large to be parsed. It splits the text into documents as YAML does: a line
// that begins with --- is never inside a document.
func overBudget(text []byte, source string) []director.Field {
	var problems []director.Field
	line, first, size, marks := 0, 1, 0, 0
	end := func() {
		at := director.Field{Path: fmt.Sprintf("%s:%d: document", source, first), Hint: "make several documents of it"}
		switch {
		case size > maxBytes:
			at.Msg = fmt.Sprintf("has %d bytes, and %d are allowed", size, maxBytes)
		case marks > maxMarks:
			at.Msg, at.Hint = fmt.Sprintf("has more than %d values", maxValues),
				fmt.Sprintf("%d are allowed: make several documents of it", maxValues)
		default:
			return
		}
		if len(problems) < maxProblems {
			problems = append(problems, at)
		}
	}
	for l := range bytes.Lines(text) {
		line++
		if bytes.HasPrefix(l, []byte("---")) {
			end()
			first, size, marks = line, 0, 0
		}
		size += len(l)
		marks += marksOf(l)
	}
	end()
	return problems
}

// marksOf counts the characters of a line that may begin a key or a value. It may count too many, in the text of a
// script for example, and never too few: each mark belongs to two values at most.
func marksOf(line []byte) int {
	n := 1
	for i, c := range line {
		switch c {
		case ',', '[', '{':
			n++
		case ':', '-', '?':
			if i+1 == len(line) || bytes.IndexByte([]byte(" \t\r\n,[]{}\"'"), line[i+1]) >= 0 ||
				(i > 0 && (line[i-1] == '"' || line[i-1] == '\'')) {
				n++
			}
		}
	}
	return n
}

// spent counts what a document has used of its budgets.
type spent struct{ values, aliases int }

// over returns the node where a budget ends, with what is wrong, or nil. Aliases are followed, as reading does.
func (s *spent) over(n *yaml.Node, depth int) (at *yaml.Node, msg, hint string) {
	if n.Kind == yaml.AliasNode {
		if s.aliases++; s.aliases > maxAliases {
			return n, fmt.Sprintf("has more than %d aliases", maxAliases), "write the values out"
		}
		n = n.Alias
	}
	if s.values++; s.values > maxValues {
		return n, fmt.Sprintf("has more than %d values", maxValues), "make several documents of it"
	}
	if depth > maxDepth {
		return n, fmt.Sprintf("is nested more than %d levels deep", maxDepth), ""
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case c.Kind != yaml.ScalarNode:
				return c, "has a key that is " + describe(c), "keys are text"
			case len(c.Value) > maxKey:
				return c, fmt.Sprintf("has a key of %d bytes, and %d are allowed", len(c.Value), maxKey), ""
			}
		}
		if at, msg, hint = s.over(c, depth+1); at != nil {
			return at, msg, hint
		}
	}
	return nil, "", ""
}

// short cuts what a message repeats of a value.
func short(value string) string {
	const most = 100
	if len(value) <= most {
		return value
	}
	return fmt.Sprintf("%s... (%d bytes)", value[:most], len(value))
}

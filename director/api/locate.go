package api

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// locator finds the places of fields in the text of documents.
type locator struct {
	lines int
	docs  []locatedDoc
}

type locatedDoc struct {
	ref  string // Kind/name
	root *yaml.Node
}

// locate reads the text of documents. Of a text that breaks off, what comes before is known.
func locate(text []byte) locator {
	l := locator{lines: bytes.Count(text, []byte("\n")) + 1}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		if err := dec.Decode(&node); err != nil {
			return l
		}
		if len(node.Content) == 0 || node.Content[0].Kind != yaml.MappingNode {
			continue
		}
		root := node.Content[0]
		d := locatedDoc{root: root}
		_, kind := entryOf(root, "kind")
		if _, meta := entryOf(root, "metadata"); kind != nil && meta != nil {
			if _, name := entryOf(meta, "name"); name != nil {
				d.ref = kind.Value + "/" + name.Value
			}
		}
		l.docs = append(l.docs, d)
	}
}

// entryOf returns the key and the value of a mapping's entry; nil if there is none.
func entryOf(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// at returns line and column, both from 1, of what the JSON pointer names: of its key, or of the nearest field around
// it that is there. The document is named by Kind/name, or by a line in it; 0 means that neither is known, and the only
// document is meant. Both results are 0 if the place is not known.
func (l locator) at(document string, line int, pointer string) (int, int) {
	var root *yaml.Node
	for _, d := range l.docs {
		switch {
		case document != "" && d.ref == document, document == "" && line > 0 && d.root.Line <= line,
			document == "" && line == 0 && len(l.docs) == 1:
			root = d.root
		}
	}
	if root == nil {
		return line, min(line, 1)
	}
	node := root
	for _, name := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		key, value := entryOf(node, name)
		if key != nil {
			root, node = key, value
			continue
		}
		i, err := strconv.Atoi(name)
		if err != nil || node.Kind != yaml.SequenceNode || i < 0 || i >= len(node.Content) {
			break
		}
		root, node = node.Content[i], node.Content[i]
	}
	return root.Line, root.Column
}

var yamlLine = regexp.MustCompile(`^line ([0-9]+): `)

// lineOf returns the line that a message of the YAML parser names; 0 if it names none.
func (l locator) lineOf(msg string) int {
	m := yamlLine.FindStringSubmatch(msg)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // it is a number
	return min(n, l.lines)
}

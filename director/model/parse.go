package model

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// Parse reads a stream of YAML documents, or JSON, which is YAML too. It is strict: unknown fields, wrong types and
// repeated keys are problems, and the problems of all documents, the first 100, come back in one invalid error, each
// with source, line and field path. A document has budgets: its bytes, values, aliases and depth. Defaults are filled
// in; Validate is not called. Empty documents are skipped.
func Parse(text []byte, source string) ([]Document, error) {
	if err := tooLarge(overBudget(text, source)); err != nil {
		return nil, err
	}
	return parse(text, &decoder{source: source, bounded: true})
}

// ParsePart is Parse for documents that are still being written: a field of a spec that is missing is no problem.
func ParsePart(text []byte, source string) ([]Document, error) {
	if err := tooLarge(overBudget(text, source)); err != nil {
		return nil, err
	}
	return parse(text, &decoder{source: source, bounded: true, part: true})
}

// ParseStored reads what EncodeJSON wrote. It has no budgets, so that documents of the time before a limit can still be
// read.
func ParseStored(text []byte) ([]Document, error) {
	if node, ok := jsonNode(text); ok {
		d := decoder{}
		return d.documents(node)
	}
	return parse(text, &decoder{})
}

// documents returns the one document of the node.
func (d *decoder) documents(n *yaml.Node) ([]Document, error) {
	doc, ok := d.document(n)
	if !ok {
		return nil, director.Invalid("model.parse", "the documents cannot be read", d.problems)
	}
	Default(&doc)
	return []Document{doc}, nil
}

func tooLarge(problems []director.Field) error {
	return director.Invalid("model.parse", "the documents are too large", problems)
}

func parse(text []byte, d *decoder) ([]Document, error) {
	var docs []Document
	source := d.source
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := dec.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.add(director.Field{
				Path: source, Msg: short(strings.TrimPrefix(err.Error(), "yaml: ")), Hint: "this is not YAML or JSON",
			})
			break
		}
		if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
			continue
		}
		if doc, ok := d.document(node.Content[0]); ok {
			Default(&doc)
			docs = append(docs, doc)
		}
	}
	if d.failed > len(d.problems) {
		d.problems = append(d.problems, director.Field{
			Path: source, Msg: fmt.Sprintf("has %d more problems", d.failed-len(d.problems)),
		})
	}
	if d.failed == 0 && len(docs) == 0 {
		d.problems = append(d.problems, director.Field{Path: source, Msg: "holds no document"})
	}
	if err := director.Invalid("model.parse", "the documents cannot be read", d.problems); err != nil {
		return nil, err
	}
	return docs, nil
}

type decoder struct {
	source   string
	root     *yaml.Node // of the document that is read
	bounded  bool
	part     bool // what is missing is no problem
	problems []director.Field
	failed   int // problems, with those that are not kept
}

func (d *decoder) add(f director.Field) {
	if d.failed++; len(d.problems) < maxProblems {
		d.problems = append(d.problems, f)
	}
}

func (d *decoder) fail(n *yaml.Node, path, msg, hint string) {
	at := path
	if d.source != "" {
		at = fmt.Sprintf("%s:%d: %s", d.source, n.Line, path)
	}
	f := director.Field{Path: at, Msg: msg, Hint: hint}
	if len(d.problems) < maxProblems { // what is not kept costs nothing
		f.Document = nameOf(d.root)
	}
	d.add(f)
}

// nameOf says which document the mapping is, as Kind/name; nothing if it has no kind that is known. The name is empty
// if it is not a text.
func nameOf(root *yaml.Node) string {
	kind := under(root, "kind")
	if kind == nil || !slices.Contains(Kinds(), Kind(kind.Value)) {
		return ""
	}
	out := Ref{Kind: Kind(kind.Value)}
	if name := under(under(root, "metadata"), "name"); name != nil && name.Tag == "!!str" {
		out.Name = short(name.Value)
	}
	return out.String()
}

// under returns what a mapping has for the key; nil if it has nothing, or is none.
func under(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// document reads the envelope first, because the kind says which type the spec has.
func (d *decoder) document(n *yaml.Node) (Document, bool) {
	d.root = n
	if n.Kind != yaml.MappingNode {
		d.fail(n, "document", "is not a mapping", "a document has apiVersion, kind, metadata and spec")
		return Document{}, false
	}
	if at, msg, hint := new(spent).over(n, 0); d.bounded && at != nil {
		d.fail(at, "document", msg, hint)
		return Document{}, false
	}
	var doc Document
	before := d.failed
	var spec *yaml.Node
	seen := d.keys(n, "", []string{"apiVersion", "kind", "metadata", "spec"}, func(key string, v *yaml.Node) {
		switch key {
		case "apiVersion":
			if v.Value != APIVersion {
				d.fail(v, "apiVersion", fmt.Sprintf("%q is not known", short(v.Value)), "write "+APIVersion)
			}
		case "kind":
			doc.Kind = Kind(v.Value)
			if doc.Spec() == nil {
				d.fail(v, "kind", fmt.Sprintf("%q is not known", short(v.Value)), "one of "+joinKinds())
			}
		case "metadata":
			d.value(v, "metadata", reflect.ValueOf(&doc.Metadata).Elem())
		case "spec":
			spec = v
		}
	})
	for _, key := range []string{"apiVersion", "kind", "metadata", "spec"} {
		if !seen[key] {
			d.fail(n, key, "is missing", "")
		}
	}
	if target := doc.Spec(); target != nil && spec != nil {
		d.value(spec, "spec", reflect.ValueOf(target).Elem())
	}
	return doc, d.failed == before
}

func joinKinds() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// keys calls visit for every known key of a mapping, and reports unknown and repeated ones. It returns the keys that
// were seen.
func (d *decoder) keys(
	n *yaml.Node, path string, known []string, visit func(key string, v *yaml.Node),
) map[string]bool {
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := join(path, short(k.Value))
		switch {
		case seen[k.Value]:
			d.fail(k, at, "is there twice", "keep one")
		case !contains(known, k.Value):
			d.fail(k, at, "is not a field here", suggest(k.Value, known))
		default:
			visit(k.Value, v)
		}
		seen[k.Value] = true
	}
	return seen
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value reads n into target, which is settable.
func (d *decoder) value(n *yaml.Node, path string, target reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		d.fail(n, path, "is empty", "give it a value or leave the field out")
		return
	}
	if target.Addr().Type().Implements(textUnmarshaler) {
		if n.Kind != yaml.ScalarNode {
			d.fail(n, path, "is "+describe(n)+" where one value is needed", "")
			return
		}
		if len(n.Value) > maxPlain {
			d.fail(n, path, fmt.Sprintf("is %d bytes long", len(n.Value)), fmt.Sprintf("at most %d bytes", maxPlain))
			return
		}
		if err := target.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			d.fail(n, path, plainError(err, n.Value), "")
		}
		return
	}
	switch target.Kind() {
	case reflect.Struct:
		d.structure(n, path, target)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, path, "is "+describe(n)+" where a list is needed", "")
			return
		}
		list := reflect.MakeSlice(target.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			d.value(item, path+"["+strconv.Itoa(i)+"]", list.Index(i))
		}
		target.Set(list)
	case reflect.Map:
		d.mapping(n, path, target)
	case reflect.Pointer:
		p := reflect.New(target.Type().Elem())
		d.value(n, path, p.Elem())
		target.Set(p)
	default:
		d.scalar(n, path, target)
	}
}

func (d *decoder) structure(n *yaml.Node, path string, target reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "is "+describe(n)+" where a mapping is needed", "")
		return
	}
	fields := fieldsOf(target.Type())
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	seen := d.keys(n, path, names, func(key string, v *yaml.Node) {
		f := fields[slices.Index(names, key)]
		d.value(v, join(path, key), target.FieldByIndex(f.index))
	})
	for _, f := range fields {
		if f.tag.Get("required") == "true" && !seen[f.name] && !d.part {
			d.fail(n, join(path, f.name), "is missing", "")
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, path string, target reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "is "+describe(n)+" where a mapping is needed", "")
		return
	}
	m := reflect.MakeMap(target.Type())
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if seen[k.Value] {
			d.fail(k, join(path, short(k.Value)), "is there twice", "keep one")
			continue
		}
		seen[k.Value] = true
		at := join(path, short(k.Value))
		elem := reflect.New(target.Type().Elem()).Elem()
		if elem.Kind() == reflect.Interface { // free values, such as inventory variables
			free, ok := d.free(v, at)
			if !ok {
				continue
			}
			elem.Set(reflect.ValueOf(&free).Elem())
		} else {
			d.value(v, at, elem)
		}
		m.SetMapIndex(reflect.ValueOf(k.Value), elem)
	}
	target.Set(m)
}

// needed is what values of a kind are called.
var needed = map[reflect.Kind]string{
	reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "a whole number",
	reflect.Int64: "a whole number",
}

func (d *decoder) scalar(n *yaml.Node, path string, target reflect.Value) {
	wrong := func() {
		d.fail(n, path, fmt.Sprintf("is %s where %s is needed", describe(n), needed[target.Kind()]), "")
	}
	if n.Kind != yaml.ScalarNode {
		wrong()
		return
	}
	switch target.Kind() {
	case reflect.String:
		if n.Tag != "!!str" {
			wrong()
			return
		}
		target.SetString(n.Value)
	case reflect.Bool:
		if n.Tag != "!!bool" {
			wrong()
			return
		}
		target.SetBool(n.Value == "true")
	case reflect.Int, reflect.Int64:
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Tag != "!!int" || err != nil {
			wrong()
			return
		}
		target.SetInt(v)
	default:
		// a programming error that every test of the type would show
		panic("model: no decoding for " + target.Type().String())
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + short(n.Value)
	case "!!bool":
		return "the truth value " + n.Value
	}
	return strconv.Quote(short(n.Value))
}

// plainError says what is wrong with a value in one sentence; the parsers of the standard library repeat their own
// name.
func plainError(err error, value string) string {
	msg := err.Error()
	if strings.HasPrefix(msg, "netip.Parse") || strings.HasPrefix(msg, "ParseAddr") {
		return strconv.Quote(value) + " is not an address or a range (10.88.0.10, 10.88.0.0/24)"
	}
	return msg
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// longestName is more than any field's name has.
const longestName = 40

// suggest names the known key that is nearest to a wrong one, or all of them.
func suggest(key string, known []string) string {
	best, bestDist := "", 3
	if len(key) > 2*longestName { // comparing costs the product of the lengths
		return ""
	}
	for _, k := range known {
		if dist := editDistance(strings.ToLower(key), strings.ToLower(k)); dist < bestDist {
			best, bestDist = k, dist
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	sorted := append([]string(nil), known...)
	sort.Strings(sorted)
	return "known: " + strings.Join(sorted, ", ")
}

// editDistance is Levenshtein's, in one row.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

type fieldInfo struct {
	name  string
	index []int
	tag   reflect.StructTag
	typ   reflect.Type
}

// fieldsKnown keeps the lists of fieldsOf by type: every document that is read asks for some dozen.
var fieldsKnown sync.Map

// fieldsOf lists the wire fields of a struct in order, with those of embedded structs in their place. The list is
// shared: callers must not change it.
func fieldsOf(t reflect.Type) []fieldInfo {
	if known, ok := fieldsKnown.Load(t); ok {
		return known.([]fieldInfo)
	}
	var out []fieldInfo
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				out = append(out, inner)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, fieldInfo{name: name, index: []int{i}, tag: f.Tag, typ: f.Type})
	}
	fieldsKnown.Store(t, out)
	return out
}

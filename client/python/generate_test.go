// Package python keeps the Python client true to the API's description, from which it is generated.
package python

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "write the client")

//go:embed client.py.tmpl
var text string

// target is the client. collection/stage.sh puts it into the collection, too.
const target = "director_client.py"

func TestClientIsGenerated(t *testing.T) {
	t.Parallel()
	want := generate(t)
	if *update {
		if err := os.WriteFile(target, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the description says; run: go test ./client/python -update", target)
	}
}

// description is what the generator reads of OpenAPI.
type description struct {
	Info  struct{ Version string }
	Paths map[string]map[string]struct {
		OperationID          string `yaml:"operationId"`
		Summary, Description string
		Parameters           []parameter
		RequestBody          *struct{ Content map[string]media } `yaml:"requestBody"`
		Responses            map[string]struct{ Content map[string]media }
		Security             []map[string][]string
	}
	Components struct{ Schemas map[string]schema }
}

type media struct{ Schema schema }

type parameter struct {
	Name, In string
	Required bool
	Schema   schema
}

type schema struct {
	Ref        string    `yaml:"$ref"`
	Type       yaml.Node // a text or a list of texts
	Enum       []string
	Items      *schema
	Properties map[string]schema
	Required   []string
	Additional yaml.Node `yaml:"additionalProperties"`
}

// types returns the types without null, and whether null is one of them.
func (s schema) types() (kind string, null bool) {
	for _, n := range append(s.Type.Content, &s.Type) {
		switch {
		case n.Value == "null":
			null = true
		case n.Value != "" && kind == "":
			kind = n.Value
		}
	}
	return kind, null
}

// python returns the type in Python.
func (s schema) python() string {
	kind, null := s.types()
	out := map[string]string{
		"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list[Any]",
		"object": "dict[str, Any]",
	}[kind]
	switch {
	case s.Ref != "":
		out = s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case kind == "array" && s.Items != nil:
		out = "list[" + s.Items.python() + "]"
	case kind == "object" && s.Additional.Kind == yaml.MappingNode:
		var of schema
		if err := s.Additional.Decode(&of); err == nil {
			out = "dict[str, " + of.python() + "]"
		}
	case out == "":
		out = "Any"
	}
	if null {
		out += " | None"
	}
	return out
}

// The template's view.
type (
	class struct {
		Name                    string
		Required, Optional, Odd []field // odd are optional, and have names that are words of Python
	}
	field  struct{ Name, Type string }
	method struct {
		Name, Doc, Verb, Path string
		In                    []string // path parameters in the order of the path
		Body, BodyKind        string   // type; json, yaml or bytes
		Query, Headers        []option
		Returns, Answer       string // type; json, text, bytes or none
		Login                 bool   // the request that gives a token has none
	}
	option struct{ Name, Wire, Type string }
)

// leftOut are operations for browsers, and connections that stay open.
var leftOut = regexp.MustCompile(`^(login-browser|open-shell|stream)$|provider-login`)

// headers are those that a caller sets. The client sets the others.
var headers = []string{"Idempotency-Key", "If-Match", "If-None-Match", "Upload-Offset"}

func generate(t *testing.T) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := yaml.Unmarshal(file, &d); err != nil {
		t.Fatal(err)
	}
	view := struct {
		Classes []class
		Methods []method
	}{classes(d), methods(d)}
	var out bytes.Buffer
	if err := template.Must(template.New("").Parse(text)).Execute(&out, view); err != nil {
		t.Fatal(err)
	}
	trimmed := append(bytes.TrimRight(out.Bytes(), "\n"), '\n')
	return regexp.MustCompile(`\n{4,}`).ReplaceAll(trimmed, []byte("\n\n\n"))
}

// Bases are what the class inherits from: fields that are always there, and those with odd names.
func (c class) Bases() string {
	out := "TypedDict"
	if len(c.Required) > 0 && len(c.Optional)+len(c.Odd) > 0 {
		out = "_" + c.Name
	}
	if len(c.Odd) > 0 {
		out = strings.TrimPrefix(out+", ", "TypedDict, ") + "_" + c.Name + "Odd"
	}
	return out
}

func classes(d description) []class {
	var out []class
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		c := class{Name: name}
		for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
			f := field{p, s.Properties[p].python()}
			switch {
			case slices.Contains(reserved, p):
				c.Odd = append(c.Odd, f)
			case slices.Contains(s.Required, p):
				c.Required = append(c.Required, f)
			default:
				c.Optional = append(c.Optional, f)
			}
		}
		out = append(out, c)
	}
	return out
}

func methods(d description) []method {
	var out []method
	for path, verbs := range d.Paths {
		for verb, o := range verbs {
			if leftOut.MatchString(o.OperationID) {
				continue
			}
			m := method{
				Name: strings.ReplaceAll(o.OperationID, "-", "_"), Doc: doc(o.Summary, o.Description),
				Verb: strings.ToUpper(verb), Path: path, Login: len(o.Security) == 0,
			}
			for _, p := range o.Parameters {
				add(&m, p)
			}
			if o.RequestBody != nil {
				m.Body, m.BodyKind = body(o.RequestBody.Content)
			}
			for status, r := range o.Responses {
				if strings.HasPrefix(status, "2") {
					m.Returns, m.Answer = answer(r.Content)
				}
			}
			slices.SortFunc(m.In, func(a, b string) int {
				return strings.Index(path, "{"+a+"}") - strings.Index(path, "{"+b+"}")
			})
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b method) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// doc is one line of a docstring, and the description wrapped below it.
func doc(summary, description string) string {
	out := strings.TrimSuffix(summary, ".") + "."
	if description == "" {
		return out
	}
	line := "\n\n       "
	for _, word := range strings.Fields(description) {
		if len(line)-strings.LastIndex(line, "\n")+len(word) > 118 {
			line += "\n       "
		}
		line += " " + word
	}
	return out + strings.ReplaceAll(line, `\`, `\\`) + "\n        "
}

// reserved are the keywords of Python 3.11 that may be names in the API, and names of methods' own.
var reserved = []string{
	"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
	"finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
	"return", "try", "while", "with", "yield", "body", "self",
}

func variable(wire string) string {
	name := strings.ToLower(strings.ReplaceAll(wire, "-", "_"))
	if slices.Contains(reserved, name) {
		name += "_"
	}
	return name
}

func add(m *method, p parameter) {
	kind := strings.TrimSuffix(p.Schema.python(), " | None")
	switch {
	case p.In == "path":
		m.In = append(m.In, p.Name)
	case p.In == "query":
		m.Query = append(m.Query, option{variable(p.Name), p.Name, kind})
	case p.In == "header" && slices.Contains(headers, p.Name):
		m.Headers = append(m.Headers, option{variable(p.Name), p.Name, kind})
	}
}

func body(content map[string]media) (kind, how string) {
	if _, ok := content["application/yaml"]; ok {
		return "str", "yaml"
	}
	if m, ok := content["application/json"]; ok {
		return m.Schema.python(), "json"
	}
	return "bytes", "bytes"
}

func answer(content map[string]media) (kind, how string) {
	if m, ok := content["application/json"]; ok {
		return m.Schema.python(), "json"
	}
	if _, ok := content["application/yaml"]; ok {
		return "str", "text"
	}
	if len(content) == 0 {
		return "None", "none"
	}
	return "bytes", "bytes"
}

// Params are the method's parameters behind self.
func (m method) Params() string {
	var out []string
	for _, name := range m.In {
		out = append(out, variable(name)+": str")
	}
	if m.Body != "" {
		out = append(out, "body: "+m.Body)
	}
	if options := append(slices.Clone(m.Query), m.Headers...); len(options) > 0 {
		out = append(out, "*")
		for _, o := range options {
			out = append(out, o.Name+": "+o.Type+" | None = None")
		}
	}
	lines := "self"
	for _, p := range out {
		lines += ", " + p
	}
	if len("    def "+m.Name+"("+lines+") -> "+m.Returns+":") <= 118 {
		return lines
	}
	return "\n        self,\n        " + strings.Join(out, ",\n        ") + ",\n    "
}

// Address is the expression of the path.
func (m method) Address() string {
	path := m.Path
	for _, name := range m.In {
		path = strings.ReplaceAll(path, "{"+name+"}", "{_quote("+variable(name)+")}")
	}
	if path == m.Path {
		return fmt.Sprintf("%q", path)
	}
	return fmt.Sprintf("f%q", path)
}

// Options are the keyword arguments of the request, a line each.
func (m method) Options() []string {
	var out []string
	dict := func(key string, of []option) {
		if len(of) == 0 {
			return
		}
		var parts []string
		for _, o := range of {
			parts = append(parts, fmt.Sprintf("%q: %s", o.Wire, o.Name))
		}
		if line := strings.Join(parts, ", "); len(line) < 90 {
			out = append(out, key+"={"+line+"},")
			return
		}
		out = append(out, key+"={")
		for _, p := range parts {
			out = append(out, "    "+p+",")
		}
		out = append(out, "},")
	}
	dict("query", m.Query)
	dict("headers", m.Headers)
	if m.Body != "" {
		out = append(out, fmt.Sprintf("body=body, kind=%q,", m.BodyKind))
	}
	if m.Login {
		out = append(out, "token=False,")
	}
	return append(out, fmt.Sprintf("answer=%q,", m.Answer))
}

package ansible

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// Remedy says what helps against a Cause.
type Remedy string

// The remedies.
const (
	Transient   Remedy = "transient" // trying again
	NotByTrying Remedy = "permanent" // a change to the model, the release or the playbooks
	Person      Remedy = "person"    // a person who repairs something outside of the plan
	Time        Remedy = "time"      // nothing but time: it is too early, and nothing is wrong
)

// Cause is a known reason why tasks fail.
type Cause struct {
	ID       string
	Match    string // on the message and the ends of the output
	Task     string // on "role : task"; empty matches all
	Class    Remedy
	Explain  string   // finishes "the task failed because ..."
	Hint     string   // what to do next
	Examples []string // messages that Match must find

	match, task *regexp.Regexp
}

//go:embed causes.yml
var builtIn []byte

var builtInCauses = sync.OnceValues(func() ([]Cause, error) { return ParseCauses("causes.yml", builtIn) })

// BuiltInCauses returns a copy of the causes that the director knows by itself.
func BuiltInCauses() []Cause {
	causes, err := builtInCauses()
	if err != nil {
		panic(err) // a test reads the same file
	}
	return append([]Cause(nil), causes...)
}

// ReadCauses reads an administrator's file of causes, for Config.Causes. Its form is that of causes.yml in this
// directory, which docs/reference/causes.md explains.
func ReadCauses(path string) ([]Cause, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, opCauses, "the causes cannot be read: %w", err).
			WithHint("create the file, or remove causesFile from the configuration")
	}
	return ParseCauses(path, data)
}

const opCauses = "ansible.causes"

// ParseCauses reads a document of causes. It is strict: an unknown key, a class that does not exist, a pattern that is
// no regular expression, an identifier that is there twice or an example that its own pattern does not match is an
// error, and all of them are named with line and field.
func ParseCauses(name string, data []byte) ([]Cause, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, director.Invalid(opCauses, "the causes are not valid", []director.Field{
			{Path: name, Msg: strings.TrimPrefix(err.Error(), "yaml: "), Hint: "this is not YAML"},
		})
	}
	r := causesReader{name: name, seen: map[string]bool{}}
	r.document(&doc)
	if err := director.Invalid(opCauses, "the causes are not valid", r.fields); err != nil {
		return nil, err
	}
	return r.causes, nil
}

type causesReader struct {
	name   string
	causes []Cause
	seen   map[string]bool
	fields []director.Field
}

func (r *causesReader) wrong(n *yaml.Node, path, hint, format string, args ...any) {
	r.fields = append(r.fields, director.Field{
		Path: fmt.Sprintf("%s:%d: %s", r.name, n.Line, path), Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (r *causesReader) document(doc *yaml.Node) {
	if len(doc.Content) == 0 {
		return // an empty file has no causes
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		r.wrong(top, "document", "it begins with causes:", "is not a mapping")
		return
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		switch {
		case key.Value != "causes":
			r.wrong(key, key.Value, "the only one is causes", "is not a field here")
		case value.Kind != yaml.SequenceNode && value.Tag != "!!null":
			r.wrong(value, "causes", "", "is not a list")
		default:
			for j, n := range value.Content {
				r.cause(n, fmt.Sprintf("causes[%d]", j))
			}
		}
	}
}

// cause reads one entry; at is its path.
func (r *causesReader) cause(n *yaml.Node, at string) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, at, "", "is not a mapping")
		return
	}
	var c Cause
	texts := map[string]*string{
		"id": &c.ID, "match": &c.Match, "task": &c.Task, "class": (*string)(&c.Class), "explain": &c.Explain,
		"hint": &c.Hint,
	}
	where := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := at + "." + key.Value
		target := texts[key.Value]
		switch {
		case where[key.Value] != nil:
			r.wrong(key, path, "keep one", "appears twice")
		case key.Value == "examples":
			if err := value.Decode(&c.Examples); err != nil {
				r.wrong(value, path, "", "is not a list of texts")
			}
		case target == nil:
			r.wrong(key, path, "known: id, match, task, class, explain, hint, examples", "is not a field here")
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			r.wrong(value, path, "", "is not a text")
		default:
			*target = value.Value
		}
		where[key.Value] = value
	}
	r.check(n, at, &c, where)
	r.causes = append(r.causes, c)
}

func (r *causesReader) check(n *yaml.Node, at string, c *Cause, where map[string]*yaml.Node) {
	line := func(key string) *yaml.Node {
		if v := where[key]; v != nil {
			return v
		}
		return n
	}
	for key, text := range map[string]string{"id": c.ID, "match": c.Match, "explain": c.Explain} {
		if text == "" {
			r.wrong(line(key), at+"."+key, "", "is missing")
		}
	}
	if r.seen[c.ID] && c.ID != "" {
		r.wrong(line("id"), at+".id", "keep one", "%q is there twice", c.ID)
	}
	r.seen[c.ID] = true
	switch c.Class {
	case Transient, NotByTrying, Person, Time:
	default:
		r.wrong(line("class"), at+".class", "transient, permanent, person or time", "is %q", c.Class)
	}
	var err error
	if c.match, err = regexp.Compile(c.Match); err != nil {
		r.wrong(line("match"), at+".match", "", "is not a regular expression: %v", err)
		return
	}
	if c.Task != "" {
		if c.task, err = regexp.Compile(c.Task); err != nil {
			r.wrong(line("task"), at+".task", "", "is not a regular expression: %v", err)
		}
	}
	for i, x := range c.Examples {
		if !c.match.MatchString(x) {
			r.wrong(
				line("examples"), fmt.Sprintf("%s.examples[%d]", at, i), "correct match, or the example",
				"is not matched by match",
			)
		}
	}
}

// mergeCauses puts an administrator's causes before the built-in ones. One with the id of a built-in cause takes its
// place.
func mergeCauses(own, builtIn []Cause) []Cause {
	replaced := map[string]bool{}
	for _, c := range own {
		replaced[c.ID] = true
	}
	out := slices.Clone(own)
	for _, c := range builtIn {
		if !replaced[c.ID] {
			out = append(out, c)
		}
	}
	return out
}

// causeOf returns the first cause that explains the failure, or nil.
func causeOf(causes []Cause, f Failure) *Cause {
	text, task := f.Msg+"\n"+f.Tail, taskName(f.Role, f.Task)
	for i := range causes {
		c := &causes[i]
		if c.match != nil && c.match.MatchString(text) && (c.task == nil || c.task.MatchString(task)) {
			return c
		}
	}
	return nil
}

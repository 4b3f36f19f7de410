package ansible

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/director-kaas/kaas/director"
)

// Remedy says what helps against a Cause.
type Remedy string

// The remedies.
const (
	Transient   Remedy = "transient" // trying again
	NotByTrying Remedy = "permanent" // a change to the model, the release or the playbooks
	Person      Remedy = "person"    // somebody who mends something outside of the plan
)

// Cause is a known reason why tasks fail.
type Cause struct {
	ID       string   `yaml:"id"`
	Match    string   `yaml:"match"` // on the message and the ends of the output
	Task     string   `yaml:"task"`  // on "role : task"; empty matches all
	Class    Remedy   `yaml:"class"`
	Explain  string   `yaml:"explain"` // finishes "the task failed because ..."
	Hint     string   `yaml:"hint"`    // what to do next
	Examples []string `yaml:"examples"`

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

// ReadCauses reads an administrator's file of causes, for Config.Causes. Its form is that of causes.yml in this directory.
func ReadCauses(path string) ([]Cause, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "ansible.causes", "the causes cannot be read: %w", err)
	}
	return ParseCauses(path, data)
}

// ParseCauses reads a document of causes. It is strict: an unknown key, a class that does not exist, a pattern that is no
// regular expression or an identifier that is there twice is an error, and all of them are named.
func ParseCauses(name string, data []byte) ([]Cause, error) {
	const op = "ansible.causes"
	var doc struct {
		Causes []Cause `yaml:"causes"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&doc); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a document of causes: %w", name, err)
	}
	var fields []director.Field
	wrong := func(i int, key, format string, args ...any) {
		fields = append(fields, director.Field{
			Path: fmt.Sprintf("%s: causes[%d].%s", name, i, key), Msg: fmt.Sprintf(format, args...),
		})
	}
	seen := map[string]bool{}
	for i := range doc.Causes {
		c := &doc.Causes[i]
		switch {
		case c.ID == "":
			wrong(i, "id", "is missing")
		case seen[c.ID]:
			wrong(i, "id", "%q is there twice", c.ID)
		}
		seen[c.ID] = true
		switch c.Class {
		case Transient, NotByTrying, Person:
		default:
			wrong(i, "class", "is %q and not transient, permanent or person", c.Class)
		}
		if c.Explain == "" {
			wrong(i, "explain", "is missing")
		}
		if c.Match == "" {
			wrong(i, "match", "is missing")
		}
		var err error
		if c.match, err = regexp.Compile(c.Match); err != nil {
			wrong(i, "match", "is not a regular expression: %v", err)
		}
		if c.Task != "" {
			if c.task, err = regexp.Compile(c.Task); err != nil {
				wrong(i, "task", "is not a regular expression: %v", err)
			}
		}
	}
	return doc.Causes, director.Invalid(op, "the causes are not valid", fields)
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

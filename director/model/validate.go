package model

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
)

var (
	labelPattern   = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)
	releasePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	versionPattern = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
	sha256Pattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	taintPattern   = regexp.MustCompile(`^[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$`)
	machinePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	domainPattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// Validate returns every problem of the document by itself, as one invalid error, or nil. Default must have been
// called. Warnings are advice that does not stop anything.
func Validate(d *Document) (warnings []string, err error) {
	v := validator{ref: Ref{Kind: d.Kind, Name: short(d.Metadata.Name)}}
	v.sizes("metadata", reflect.ValueOf(&d.Metadata).Elem())
	v.sizes("spec", reflect.ValueOf(d.Spec()).Elem())
	if len(v.problems) > 0 { // what follows compares the entries of lists with one another
		return nil, v.invalid()
	}
	about := d.Kind.about()
	if about.versioned {
		v.match("metadata.name", d.Metadata.Name, releasePattern, "letters a-z, digits, dots and dashes", 63)
	} else {
		v.match(
			"metadata.name", d.Metadata.Name, labelPattern, "letters a-z, digits and dashes, beginning with a letter",
			40,
		)
	}
	v.content().contents(d)
	v.tags("spec", reflect.ValueOf(d.Spec()).Elem())
	if about.validate != nil {
		about.validate(&v, d)
	}
	return v.warnings, v.invalid()
}

type validator struct {
	ref      Ref
	problems []director.Field
	warnings []string
	failed   int // problems, with those that are not kept
}

// vmValidator validates what documents say of VMs: sizes, adapters, and what is on them.
type vmValidator struct{ *validator }

func (v *validator) invalid() error {
	if more := v.failed - len(v.problems); more > 0 {
		v.problems = append(v.problems, director.Field{
			Path: v.ref.String(), Msg: fmt.Sprintf("has %d more problems", more),
		})
	}
	return director.Invalid("model.validate", v.ref.String()+" is not valid", v.problems)
}

func (v *validator) fail(path, hint, format string, args ...any) {
	if v.failed++; len(v.problems) >= maxProblems {
		return
	}
	v.problems = append(v.problems, director.Field{
		Path: v.ref.String() + ": " + path, Document: v.ref.String(), Msg: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (v *validator) warn(path, format string, args ...any) {
	v.warnings = append(v.warnings, v.ref.String()+": "+path+" "+fmt.Sprintf(format, args...))
}

func (v *validator) match(path, value string, pattern *regexp.Regexp, want string, most int) {
	if len(value) > most {
		v.fail(path, fmt.Sprintf("at most %d characters", most), "is %d characters long", len(value))
	} else if !pattern.MatchString(value) {
		v.fail(path, want, "%q is not allowed", value)
	}
}

func (v *validator) absolute(path, value string) {
	if value != "" && !strings.HasPrefix(value, "/") {
		v.fail(path, "write the whole path, beginning with /", "%q is not an absolute path", value)
	}
}

// words asks for a reason and not for a yes, because others will read it.
func (v *validator) words(path, text string) {
	if text != "" && len(strings.Fields(text)) < 3 {
		v.fail(path, "say in three words or more why it is used without a signature", "%q is no reason", text)
	}
}

// tags checks what the tags of the types say: enum, min and max. Zero values of optional fields were left out.
func (v *validator) tags(path string, val reflect.Value) {
	for _, f := range fieldsOf(val.Type()) {
		field, at := val.FieldByIndex(f.index), join(path, f.name)
		if field.IsZero() && f.tag.Get("required") != "true" {
			continue
		}
		if enum := f.tag.Get("enum"); enum != "" {
			if got := fmt.Sprint(field.Interface()); !contains(strings.Split(enum, ","), got) {
				v.fail(at, "one of "+strings.ReplaceAll(enum, ",", ", "), "%q is not allowed", got)
			}
		}
		v.bounds(at, f.tag, field)
		switch {
		case field.Addr().Type().Implements(textUnmarshaler):
		case field.Kind() == reflect.Struct:
			v.tags(at, field)
		case field.Kind() == reflect.Pointer && !field.IsNil():
			v.tags(at, field.Elem())
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for i := range field.Len() {
				if !field.Index(i).Addr().Type().Implements(textUnmarshaler) {
					v.tags(at+"["+strconv.Itoa(i)+"]", field.Index(i))
				}
			}
		}
	}
}

func (v *validator) bounds(at string, tag reflect.StructTag, field reflect.Value) {
	lo, hi := tag.Get("min"), tag.Get("max")
	if lo == "" && hi == "" {
		return
	}
	number := func(s string) int64 {
		n := reflect.New(field.Type()).Elem()
		setDefault(n, s)
		return n.Int()
	}
	if lo != "" && field.Int() < number(lo) {
		v.fail(at, "at least "+lo, "%v is too small", field.Interface())
	}
	if hi != "" && field.Int() > number(hi) {
		v.fail(at, "at most "+hi, "%v is too large", field.Interface())
	}
}

func invalid(v validator) error {
	return director.Invalid("model.check", v.ref.String()+" does not fit the other documents", v.problems)
}

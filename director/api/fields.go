package api

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// chosen is a list of items of which the answer has some fields alone. It is written field by field: picking them out
// of the whole text of each item took longer than finding a fleet's items.
type chosen[T any] struct {
	items  []T
	fields []field
}

// field is one that a struct has in JSON.
type field struct {
	name    string
	index   []int
	leftOut func(reflect.Value) bool // tells whether the value is not written
}

// choose returns the items with the named fields alone.
func choose[T any](items []T, names []string) (chosen[T], error) {
	known := jsonFields(reflect.TypeFor[T]())
	has := func(name string) func(field) bool { return func(f field) bool { return f.name == name } }
	for _, name := range names {
		if !slices.ContainsFunc(known, has(name)) {
			var all []string
			for _, f := range known {
				all = append(all, f.name)
			}
			return chosen[T]{}, invalidQuery("fields", "there is no "+name, "some of "+strings.Join(all, ", "))
		}
	}
	unasked := func(f field) bool { return !slices.Contains(names, f.name) }
	return chosen[T]{items, slices.DeleteFunc(known, unasked)}, nil
}

// MarshalJSONTo writes the list with the options of the whole answer.
func (c chosen[T]) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for i := range c.items {
		if err := c.writeItem(enc, reflect.ValueOf(&c.items[i]).Elem()); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndArray)
}

func (c chosen[T]) writeItem(enc *jsontext.Encoder, item reflect.Value) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, f := range c.fields {
		v := item.FieldByIndex(f.index)
		if f.leftOut(v) {
			continue
		}
		if err := enc.WriteToken(jsontext.String(f.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, v.Addr().Interface()); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// jsonFields lists the fields that a struct has in JSON, those of embedded structs too.
func jsonFields(t reflect.Type) []field {
	var out []field
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" { // an embedded struct has no name: its fields stand for it
			continue
		}
		out = append(out, field{name, f.Index, leavesOut(f.Type, strings.Split(options, ","))})
	}
	return out
}

// leavesOut returns what tells whether encoding/json leaves out a value of the type.
func leavesOut(t reflect.Type, options []string) func(reflect.Value) bool {
	switch {
	case slices.Contains(options, "omitzero"):
		return reflect.Value.IsZero
	case !slices.Contains(options, "omitempty"), t.Kind() == reflect.Struct:
		return func(reflect.Value) bool { return false }
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		return func(v reflect.Value) bool { return v.Len() == 0 }
	}
	return reflect.Value.IsZero
}

package model

import (
	"fmt"
	"reflect"
)

// Effect is what a change of a field means while machines exist that the document is about.
type Effect string

// The effects.
const (
	Refused Effect = "refused" // the machines depend on what it was, and apply says so
	Planned Effect = "planned" // the next plan of the cluster brings it about
	Later   Effect = "later"   // it holds for what is made or done from then on; what exists stays as it is
)

// FieldEffect is the effect of a field's change, with the reason.
type FieldEffect struct {
	Effect
	Why string
}

const (
	whyNew      = "VMs that are made from then on have it"
	whyUnsigned = "the next plan reads it"
	whyChecked  = "it is checked when VMs are made"
	whyLogin    = "it is how the director reaches the same provider"
	whyHosts    = "the director would not find the VMs any more"
	whyCluster  = "nodes and certificates are made with it"
)

func of(e Effect, why string, paths ...string) map[string]FieldEffect {
	out := make(map[string]FieldEffect, len(paths))
	for _, p := range paths {
		out[p] = FieldEffect{e, why}
	}
	return out
}

// ofNodes is of for fields that masters and pools of workers have alike.
func ofNodes(e Effect, why string, names ...string) map[string]FieldEffect {
	var paths []string
	for _, n := range names {
		paths = append(paths, "spec.masters."+n, "spec.workers[]."+n)
	}
	return of(e, why, paths...)
}

func merged(tables ...map[string]FieldEffect) map[string]FieldEffect {
	out := map[string]FieldEffect{}
	for _, t := range tables {
		for p, e := range t {
			if _, twice := out[p]; twice {
				panic("model: two effects of " + p)
			}
			out[p] = e
		}
	}
	return out
}

// EffectOf returns what a change of the field means, and false if the table does not say. field is a path with [] for
// the items of lists, such as spec.libvirt.hosts[].uri.
func EffectOf(k Kind, field string) (FieldEffect, bool) {
	e, ok := k.about().effects[field]
	return e, ok
}

// FieldChange is a field that differs between two documents.
type FieldChange struct {
	Field   string // as EffectOf wants it
	At      string // the same with the item's number in the newer document; its number in the older if it is gone
	Item    string // name of the list's item that it is in, if it is in one
	Was, Is any
}

// Changes returns the fields in which two documents of one kind differ, in the order of the type's fields. Items of
// lists that have a name are compared with the item of the same name; other lists are compared as a whole.
func Changes(was, is Document) []FieldChange {
	return changes(
		nil, FieldChange{Field: "spec", At: "spec"}, reflect.ValueOf(was.Spec()).Elem(),
		reflect.ValueOf(is.Spec()).Elem(),
	)
}

func changes(out []FieldChange, at FieldChange, was, is reflect.Value) []FieldChange {
	for _, f := range fieldsOf(was.Type()) {
		a, b := was.FieldByIndex(f.index), is.FieldByIndex(f.index)
		if f.typ.Kind() == reflect.Pointer {
			a, b = reflect.Indirect(orZero(a)), reflect.Indirect(orZero(b))
		}
		next := FieldChange{Field: join(at.Field, f.name), At: join(at.At, f.name), Item: at.Item}
		switch {
		case a.Kind() == reflect.Struct && !isText(a.Type()):
			out = changes(out, next, a, b)
		case named(f.typ):
			out = items(out, next, a, b)
		case !alike(a, b):
			next.Was, next.Is = a.Interface(), b.Interface()
			out = append(out, next)
		}
	}
	return out
}

func orZero(p reflect.Value) reflect.Value {
	if p.IsNil() {
		return reflect.New(p.Type().Elem())
	}
	return p
}

// named reports whether the list's items are found by their names, and have effects of their own.
func named(t reflect.Type) bool {
	return t == reflect.TypeFor[[]LibvirtHost]() || t == reflect.TypeFor[[]SimHost]() ||
		t == reflect.TypeFor[[]WorkerPool]()
}

func items(out []FieldChange, at FieldChange, was, is reflect.Value) []FieldChange {
	number := func(list reflect.Value) map[string]int {
		of := map[string]int{}
		for i := range list.Len() {
			of[list.Index(i).FieldByName("Name").String()] = i
		}
		return of
	}
	before, after := number(was), number(is)
	for i := range was.Len() {
		name := was.Index(i).FieldByName("Name").String()
		next := FieldChange{Field: at.Field + "[]", Item: name}
		j, there := after[name]
		if !there {
			next.At, next.Was = fmt.Sprintf("%s[%d]", at.At, i), name
			out = append(out, next)
			continue
		}
		next.At = fmt.Sprintf("%s[%d]", at.At, j)
		out = changes(out, next, was.Index(i), is.Index(j))
	}
	for j := range is.Len() {
		name := is.Index(j).FieldByName("Name").String()
		if _, there := before[name]; !there {
			out = append(out, FieldChange{
				Field: at.Field + "[]", At: fmt.Sprintf("%s[%d]", at.At, j), Item: name, Is: name,
			})
		}
	}
	return out
}

func alike(a, b reflect.Value) bool {
	if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// Leaves returns the fields of documents of the kind that hold no further fields with effects of their own, in order,
// and with them the lists of named items with [] at the end.
func Leaves(k Kind) []string {
	d := Document{Kind: k}
	return leaves(nil, "spec", reflect.TypeOf(d.Spec()).Elem())
}

func leaves(out []string, at string, t reflect.Type) []string {
	for _, f := range fieldsOf(t) {
		path, inner := join(at, f.name), deref(f.typ)
		switch {
		case inner.Kind() == reflect.Struct && !isText(inner):
			out = leaves(out, path, inner)
		case named(f.typ):
			out = leaves(append(out, path+"[]"), path+"[]", inner.Elem())
		default:
			out = append(out, path)
		}
	}
	return out
}

package model

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The limits of fields without the tags maxItems and maxLength.
const (
	defaultLength  = 1024 // bytes of a text
	defaultItems   = 256  // entries of a list
	defaultEntries = 64   // entries of a mapping
	freeLength     = 64 << 10
)

// limit is how large a field may be: items for lists and mappings, length for texts, and for the texts that lists and
// mappings hold.
type limit struct{ items, length int }

func limitOf(f fieldInfo) limit {
	l := limit{items: defaultItems, length: defaultLength}
	switch t := deref(f.typ); {
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Interface:
		l = limit{items: 1000, length: freeLength}
	case t.Kind() == reflect.Map:
		l.items = defaultEntries
	}
	for tag, to := range map[string]*int{"maxItems": &l.items, "maxLength": &l.length} {
		if s := f.tag.Get(tag); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil {
				panic("model: " + f.name + ": " + tag + " is no number") // every test of the type would show it
			}
			*to = n
		}
	}
	return l
}

// sizes checks how long the texts, lists and mappings of a struct are.
func (v *validator) sizes(path string, val reflect.Value) {
	for _, f := range fieldsOf(val.Type()) {
		v.sizeOf(join(path, f.name), val.FieldByIndex(f.index), limitOf(f))
	}
}

func (v *validator) sizeOf(at string, val reflect.Value, l limit) {
	if isText(val.Type()) {
		return // its parser has bounded it
	}
	switch val.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !val.IsNil() {
			v.sizeOf(at, val.Elem(), l)
		}
	case reflect.Struct:
		v.sizes(at, val)
	case reflect.String:
		v.textSize(at, "", val.String(), l.length)
	case reflect.Slice:
		if v.count(at, val.Len(), l.items) {
			for i := range val.Len() {
				v.sizeOf(at+"["+strconv.Itoa(i)+"]", val.Index(i), l)
			}
		}
	case reflect.Map:
		if v.count(at, val.Len(), l.items) {
			keys := make([]string, 0, val.Len())
			for _, k := range val.MapKeys() {
				keys = append(keys, k.String())
			}
			slices.Sort(keys)
			for _, key := range keys {
				v.textSize(at, "a key ", key, min(l.length, maxKey))
				v.sizeOf(join(at, short(key)), val.MapIndex(reflect.ValueOf(key)), l)
			}
		}
	}
}

func (v *validator) textSize(at, what, text string, most int) {
	if len(text) > most {
		v.fail(at, fmt.Sprintf("at most %d bytes", most), "%sis %d bytes long", whose(what), len(text))
	} else if !utf8.ValidString(text) {
		v.fail(at, "", "%sis not UTF-8", whose(what))
	}
}

func whose(what string) string {
	if what == "" {
		return ""
	}
	return "has " + what + "that "
}

func (v *validator) count(at string, n, most int) bool {
	if n > most {
		v.fail(at, fmt.Sprintf("at most %d", most), "has %d entries", n)
	}
	return n <= most
}

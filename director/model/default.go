package model

import (
	"encoding"
	"reflect"
	"strconv"
)

// Default fills in every field that was left out and has a default, in place. It is idempotent.
func Default(d *Document) {
	if d.Cluster != nil {
		d.Cluster.preset() // before the defaults of its numbers
	}
	if spec := d.Spec(); spec != nil {
		fill(reflect.ValueOf(spec).Elem())
	}
	if n := d.Network; n != nil && !n.Gateway.IsValid() && n.CIDR.IsValid() && n.Mode != "bridge" &&
		n.Mode != modePortGroup {
		n.Gateway = n.CIDR.Masked().Addr().Next()
	}
}

func fill(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		field := v.FieldByIndex(f.index)
		if def := f.tag.Get("default"); def != "" && field.IsZero() {
			setDefault(field, def)
		}
		switch {
		case field.Type().Implements(textUnmarshaler) || field.Addr().Type().Implements(textUnmarshaler):
		case field.Kind() == reflect.Struct:
			fill(field)
		case field.Kind() == reflect.Pointer && !field.IsNil():
			fill(field.Elem())
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			for i := range field.Len() {
				if _, isText := field.Index(i).Addr().Interface().(encoding.TextUnmarshaler); !isText {
					fill(field.Index(i))
				}
			}
		}
	}
}

func setDefault(field reflect.Value, def string) {
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(def)); err != nil {
			panic("model: default " + def + ": " + err.Error()) // a wrong tag; every test of the type would show it
		}
		return
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(def)
	case reflect.Int:
		n, err := strconv.Atoi(def)
		if err != nil {
			panic("model: default " + def + ": " + err.Error())
		}
		field.SetInt(int64(n))
	default:
		panic("model: no default for " + field.Type().String())
	}
}

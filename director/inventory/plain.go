package inventory

import (
	"fmt"
	"reflect"
	"sort"

	"github.com/director-kaas/kaas/director"
)

// checkPlain refuses an input with a text that is more than a line. (What Ansible would evaluate is marked unsafe.)
// Documents are checked when they are applied; this also holds for what an earlier director has stored.
func checkPlain(in Input) []director.Field {
	var fields []director.Field
	look := func(at, text, allowed string) {
		if err := director.CheckPrintable(text, allowed); err != nil {
			fields = append(fields, director.Field{
				Path: at, Msg: err.Error(), Hint: "correct it in the cluster's document, and apply that",
			})
		}
	}
	var walk func(at string, v reflect.Value)
	walk = func(at string, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			allowed := ""
			if at == "RegistryCA" || at == "Vars.registry_ca" { // certificates
				allowed = "\n\r\t"
			}
			look(at, v.String(), allowed)
		case reflect.Interface, reflect.Pointer:
			if !v.IsNil() {
				walk(at, v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				if at != "" {
					name = at + "." + name
				}
				walk(name, v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", at, i), v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				look(at, fmt.Sprint(key.Interface()), "")
				walk(at+"."+fmt.Sprint(key.Interface()), v.MapIndex(key))
			}
		}
	}
	walk("", reflect.ValueOf(in))
	sort.Slice(fields, func(i, j int) bool { return fields[i].Path < fields[j].Path })
	return fields
}

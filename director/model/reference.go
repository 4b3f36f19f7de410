package model

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Reference renders docs/reference/models.md from the types.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Model reference

This page is generated from ` + "`director/model`" + ` by ` + "`make generate`" + `; do not edit it.
[JSON Schemas](schemas) of the same types are next to this page.

Every document has the same envelope:

` + "```yaml\napiVersion: " + APIVersion + `
kind: Cluster          # or another kind of this page
metadata:
  name: demo           # unique among documents of the kind
  labels: {team: a}    # optional
spec: {}               # see below
` + "```" + `

Sizes are whole numbers with a binary unit (512MiB, 4GiB, 1TiB), durations are written 250ms, 30s or 5m. An unknown
field is an error.

A text holds at most ` + fmt.Sprint(
		defaultLength,
	) + ` bytes, a list at most ` + fmt.Sprint(
		defaultItems,
	) + ` entries and a mapping of texts at most ` + fmt.Sprint(defaultEntries) + `, unless the field says
another number. A document has at most ` + fmt.Sprint(
		maxBytes>>10,
	) + ` KiB, ` + fmt.Sprint(
		maxValues,
	) + ` keys and values, ` + fmt.Sprint(maxAliases) + ` aliases and ` + fmt.Sprint(maxDepth) + ` levels.

A change of a field that is marked *Fixed while machines depend on it* is refused as long as they exist, in a dry run
too. A field that is marked *A change is planned* takes effect with the next plan of the cluster. All other changes hold
for what is made from then on; what exists stays as it is.
`)
	for _, k := range Kinds() {
		d := Document{Kind: k}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", k, k.about().meaning)
		b.WriteString("| field | type | default | meaning |\n|---|---|---|---|\n")
		referenceRows(&b, k, "spec", reflect.TypeOf(d.Spec()).Elem())
	}
	return b.String()
}

func referenceRows(b *strings.Builder, k Kind, path string, t reflect.Type) {
	for _, f := range fieldsOf(t) {
		at := join(path, f.name)
		def := f.tag.Get("default")
		if f.tag.Get("required") == "true" {
			def = "**required**"
		} else if def != "" {
			def = "`" + def + "`"
		}
		doc := f.tag.Get("doc")
		if enum := f.tag.Get("enum"); enum != "" {
			doc += " One of `" + strings.ReplaceAll(enum, ",", "`, `") + "`."
		}
		doc += largest(f) + whileUsed(k, at)
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", at, typeName(f.typ), def, doc)
		switch inner := deref(f.typ); {
		case isText(inner):
		case inner.Kind() == reflect.Struct:
			referenceRows(b, k, at, inner)
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct && !isText(inner.Elem()):
			referenceRows(b, k, at+"[]", inner.Elem())
		}
	}
}

// whileUsed says what a change of the field means while machines exist, unless that is nothing.
func whileUsed(k Kind, at string) string {
	switch e, _ := EffectOf(k, at); e.Effect {
	case Refused:
		return " *Fixed while machines depend on it.*"
	case Planned:
		return " *A change is planned.*"
	case Later:
	}
	return ""
}

// largest says what the tags say of the size of the field.
func largest(f fieldInfo) string {
	var out string
	if n := f.tag.Get("maxItems"); n != "" {
		out += " At most " + n + " entries."
	}
	if n := f.tag.Get("maxLength"); n != "" {
		out += " At most " + n + " bytes in a text."
	}
	return out
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(textUnmarshaler) }

func typeName(t reflect.Type) string {
	t = deref(t)
	switch t {
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[netip.Prefix]():
		return "range"
	case reflect.TypeFor[netip.Addr]():
		return "address"
	case reflect.TypeFor[AddressRange]():
		return "addresses"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "mapping"
	case reflect.Struct:
		return "object"
	case reflect.Int, reflect.Int64:
		return "number"
	case reflect.Bool:
		return "true or false"
	case reflect.Interface:
		return "any"
	}
	return "text"
}

// Schema returns the JSON Schema (draft 2020-12) of documents of the kind, indented, with a final newline.
func Schema(k Kind) string {
	d := Document{Kind: k}
	schema := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": string(k), "description": k.about().meaning,
		"type": "object", "additionalProperties": false, "required": []string{"apiVersion", "kind", "metadata", "spec"},
		"properties": map[string]any{
			"apiVersion": map[string]any{"const": APIVersion},
			"kind":       map[string]any{"const": string(k)},
			"metadata":   schemaOf(reflect.TypeFor[Metadata]()),
			"spec":       schemaOf(reflect.TypeOf(d.Spec()).Elem()),
		},
	}
	b, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic("model: " + err.Error()) // maps and strings of our own
	}
	return string(b) + "\n"
}

func schemaOf(t reflect.Type) map[string]any {
	t = deref(t)
	switch {
	case t == reflect.TypeFor[Size]():
		return map[string]any{"type": "string", "pattern": "^[0-9]+ ?(MiB|GiB|TiB|Mi|Gi|Ti)$"}
	case isText(t):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return structSchema(t)
	}
	return map[string]any{"type": "string"}
}

func structSchema(t reflect.Type) map[string]any {
	props, required := map[string]any{}, []string{}
	for i, f := range fieldsOf(t) {
		s := schemaOf(f.typ)
		sizeSchema(s, f)
		s["title"], s[orderKey] = title(f.name), i+1
		if kind := f.tag.Get("of"); kind != "" {
			s[namesKey] = kind
		}
		s["description"] = f.tag.Get("doc")
		if def := f.tag.Get("default"); def != "" {
			s["default"] = literal(f.typ, def)
		}
		if enum := f.tag.Get("enum"); enum != "" {
			var values []any
			for _, v := range strings.Split(enum, ",") {
				values = append(values, literal(f.typ, v))
			}
			s["enum"] = values
		}
		if f.typ.Kind() == reflect.Int {
			for tag, key := range map[string]string{"min": "minimum", "max": "maximum"} {
				if v := f.tag.Get(tag); v != "" {
					s[key] = literal(f.typ, v)
				}
			}
		}
		if f.tag.Get("required") == "true" {
			required = append(required, f.name)
		}
		props[f.name] = s
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// What the schemas have in addition to JSON Schema, for programs that make forms of them.
const (
	orderKey = "x-order" // place of the field among its neighbours, from 1, in the order of the reference
	namesKey = "x-names" // the kind of the documents that the field names
)

// inTitles are words whose capitals are not at their beginning alone.
var inTitles = map[string]string{
	"api": "API", "apis": "APIs", "bps": "bytes/s", "ca": "CA", "cidr": "CIDR", "cpu": "CPU", "cpus": "CPUs",
	"dhcp": "DHCP", "dns": "DNS", "id": "ID", "io": "I/O", "ip": "IP", "ldap": "LDAP", "mac": "MAC", "mtu": "MTU",
	"nic": "NIC", "nics": "NICs", "ntp": "NTP", "numa": "NUMA", "oidc": "OIDC", "s3": "S3", "sha256": "SHA-256",
	"ssh": "SSH", "tls": "TLS", "uri": "URI", "url": "URL", "vip": "VIP", "vlan": "VLAN", "vm": "VM", "vms": "VMs",
	"vrid": "VRID", "vsphere": "vSphere", "vxlan": "VXLAN",
}

// title is the name of a field as people read it: "dataDisk" is "Data disk".
func title(name string) string {
	words := strings.Fields(wordEnds.ReplaceAllString(strings.ReplaceAll(name, "_", " "), "$1$3 $2$4"))
	for i, w := range words {
		w = strings.ToLower(w)
		switch capital, ok := inTitles[w]; {
		case ok:
			w = capital
		case i == 0:
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}

var wordEnds = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z]+)([A-Z][a-z])`)

// sizeSchema puts the limits of the field into its schema. JSON Schema counts characters where the director counts
// bytes, so a text that the schema takes may still be too long.
func sizeSchema(s map[string]any, f fieldInfo) {
	l := limitOf(f)
	t := deref(f.typ)
	switch {
	case isText(t):
	case t.Kind() == reflect.String:
		s["maxLength"] = l.length
	case t.Kind() == reflect.Slice:
		s["maxItems"] = l.items
		if inner := t.Elem(); inner.Kind() == reflect.String && !isText(inner) {
			s["items"] = map[string]any{"type": "string", "maxLength": l.length}
		}
	case t.Kind() == reflect.Map:
		s["maxProperties"] = l.items
	}
}

func literal(t reflect.Type, s string) any {
	if t.Kind() == reflect.Int {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	return s
}

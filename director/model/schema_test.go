package model

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTitlesAreForPeople(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"dataDisk": "Data disk", "apiVersion": "API version", "cidr": "CIDR", "publicURL": "Public URL",
		"maxUnhealthyPercent": "Max unhealthy percent", "certificate_seconds": "Certificate seconds",
		"sha256":  "SHA-256",
		"sshKeys": "SSH keys", "vsphere": "vSphere",
	} {
		if got := title(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// What a field says that it names is what its schema says, and is a kind.
func TestSchemasSayWhatFieldsName(t *testing.T) {
	t.Parallel()
	var look func(k Kind, at string, typ reflect.Type)
	look = func(k Kind, at string, typ reflect.Type) {
		for _, f := range fieldsOf(typ) {
			of, doc := f.tag.Get("of"), f.tag.Get("doc")
			if of != "" && !slices.Contains(Kinds(), Kind(of)) {
				t.Errorf("%s %s.%s names %q, which is no kind", k, at, f.name, of)
			}
			for _, kind := range Kinds() {
				if strings.HasPrefix(doc, "Name of the "+string(kind)) && of != string(kind) {
					t.Errorf("%s %s.%s names a %s, and its tag says %q", k, at, f.name, kind, of)
				}
			}
			inner := deref(f.typ)
			if inner.Kind() == reflect.Slice {
				inner = deref(inner.Elem())
			}
			if inner.Kind() == reflect.Struct && !isText(inner) {
				look(k, at+"."+f.name, inner)
			}
		}
	}
	for _, k := range Kinds() {
		d := Document{Kind: k}
		look(k, "spec", reflect.TypeOf(d.Spec()).Elem())
	}
	var cluster struct {
		Properties struct {
			Spec struct {
				Properties map[string]struct {
					Title string `json:"title"`
					Order int    `json:"x-order"`
					Names string `json:"x-names"`
				} `json:"properties"`
			} `json:"spec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal([]byte(Schema(KindCluster)), &cluster); err != nil {
		t.Fatal(err)
	}
	provider := cluster.Properties.Spec.Properties["provider"]
	if provider.Names != "Provider" || provider.Title != "Provider" || provider.Order != 2 {
		t.Errorf("provider of a cluster: %+v", provider)
	}
}

package model

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// storedDemo returns the documents of the demo as they are stored.
func storedDemo(tb testing.TB) (stored [][]byte) {
	tb.Helper()
	docs, err := Parse([]byte(read(tb, "testdata/demo.yaml")), "")
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range docs {
		text, err := EncodeJSON(d)
		if err != nil {
			tb.Fatal(err)
		}
		stored = append(stored, text)
	}
	return stored
}

// What is stored is read by the parser of JSON, and means what it means to that of YAML.
func TestStoredDocumentsMeanTheSame(t *testing.T) {
	t.Parallel()
	const head = `{"apiVersion":"kaas/v1","kind":"Cluster","metadata":{"name":"c"},"spec":{"release":"r",` +
		`"provider":"p","image":"i","network":"n",`
	texts := append(storedDemo(t),
		[]byte(head+`"vars":{"a":1,"b":1.5,"c":1e3,"d":18446744073709551615,"e":null,"f":true,`+
			`"g":"2026-01-01","h":["1",{"<<":"x","y":"\u003c\u2028é"}],"i":80.0,"j":"yes","k":-0.5,`+
			`"l":100000000000000000000,"m":-10000000000000000000,"n":-9,"o":-0}}}`),
		[]byte(head+`"masters":{"count":"three"}}}`), []byte(head+`"masters":{"count":1.5}}}`),
		[]byte(head+`"masters":null}}`), []byte(head+`"masters":[]}}`), []byte(head+`"image":"twice"}}`),
		[]byte(head+`"unknown":1}}`), []byte(`{"kind":"Nothing"}`), []byte(`{}`), []byte(`{"a":1`),
	)
	for _, text := range texts {
		got, err := ParseStored(text)
		want, wantErr := parse(text, &decoder{})
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s (-YAML +JSON):\n%s", text, diff)
		}
		if problems(err) != problems(wantErr) {
			t.Errorf("%s: %s, and as YAML %s", text, problems(err), problems(wantErr))
		}
	}
	for text, want := range map[string]bool{
		`{"a": 1} `: true, ` {"a": 1}`: true, `{"a": 1} {"b": 2}`: false, `{a: 1}`: false, "a: 1": false, "": false,
		`{"a": 1`: false, `["a"]`: false,
	} {
		if _, ok := jsonNode([]byte(text)); ok != want {
			t.Errorf("%q is JSON: %v", text, ok)
		}
	}
}

// BenchmarkParseStored reads the demo's cluster as it is stored.
func BenchmarkParseStored(b *testing.B) {
	var cluster []byte
	for _, text := range storedDemo(b) {
		if docs, err := ParseStored(text); err == nil && docs[0].Kind == KindCluster {
			cluster = text
		}
	}
	for name, read := range map[string]func([]byte) ([]Document, error){
		"json": ParseStored, "yaml": func(text []byte) ([]Document, error) { return parse(text, &decoder{}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if docs, err := read(cluster); err != nil || len(docs) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}

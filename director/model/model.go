// Package model holds the documents that administrators write, the only types with wire tags.
//
// Parse reads YAML or JSON strictly and reports every problem with its line; Default fills in what was left out;
// Validate checks one document, and Check checks a document against the others that it names. The model reference in
// docs/reference/models.md is generated from these types and their doc tags.
package model

// APIVersion is the version of all documents.
const APIVersion = "kaas/v1"

// Kind names a kind of document.
type Kind string

// Metadata identifies a document.
type Metadata struct {
	Name   string            `json:"name" doc:"Unique among documents of the kind: a DNS label of at most 40 characters." required:"true"`
	Labels map[string]string `json:"labels,omitempty" doc:"Free labels, kept and shown." maxLength:"317"`
}

// Ref names a document.
type Ref struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// String renders Kind/name.
func (r Ref) String() string { return string(r.Kind) + "/" + r.Name }

// Ref returns the document's name and kind.
func (d *Document) Ref() Ref { return Ref{Kind: d.Kind, Name: d.Metadata.Name} }

// Spec returns a pointer to the spec of the document's kind, making it if it is not set, or nil for an unknown kind.
func (d *Document) Spec() any {
	if k := d.Kind.about(); k.spec != nil {
		return k.spec(d)
	}
	return nil
}

func ensure[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

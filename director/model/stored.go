package model

import "time"

// Stored is a document as the director keeps it.
type Stored struct {
	Document
	UID        string // of this incarnation: a document deleted and made again has another
	Generation int64  // counts changes of the spec, from 1
	Created    time.Time
	Updated    time.Time
	UpdatedBy  string
}

// Change is what an apply did, or would do, to one document.
type Change struct {
	Ref    Ref
	Action string // created, changed, unchanged
	Diff   string // line diff of the YAML form for changed; empty otherwise
}

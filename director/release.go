package director

import "time"

// ReleaseFile is a release bundle that was imported. Its digest is the SHA-256 of its release.yaml, which pins
// everything in it.
type ReleaseFile struct {
	Digest     string            `json:"digest"`
	Name       string            `json:"name"`
	Kubernetes string            `json:"kubernetes"`
	Arch       string            `json:"arch"`
	Components map[string]string `json:"components"` // versions of the other parts by name
	Images     int               `json:"images"`
	Size       int64             `json:"size"`               // of all files, in bytes
	Upload     string            `json:"upload"`             // SHA-256 of the archive that it came in
	Unsigned   string            `json:"unsigned,omitempty"` // why it was imported without a signature
	At         time.Time         `json:"at"`
	By         string            `json:"by"`
}

// ReleaseFetch is an archive of a release bundle on a mirror.
type ReleaseFetch struct {
	URL string // with https
	CA  string // certificates in PEM form that the mirror may be from; empty for those of the system
	// User and Password are for the mirror, and are not stored; empty for none.
	User     string
	Password Secret
	By       string
}

// ReleaseImport is what to make of an uploaded archive of a release bundle.
type ReleaseImport struct {
	Upload   string
	Unsigned string // why it has no signature, in words
	By       string
}

// ReleaseLeft is an imported release bundle that nothing needs.
type ReleaseLeft struct {
	Digest string
	Name   string
	Size   int64
}

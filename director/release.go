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

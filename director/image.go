package director

import (
	"strings"
	"time"
)

// ImageFile is a node image that was imported: a qcow2 that needs nothing else.
type ImageFile struct {
	SHA256     string      `json:"sha256"`
	Size       int64       `json:"size"`
	Virtual    int64       `json:"virtual"` // of the disk
	Compat     string      `json:"compat"`  // of qcow2: 0.10 or 1.1
	Kubernetes string      `json:"kubernetes"`
	Told       bool        `json:"told"` // a person said which Kubernetes it carries; the image did not
	Arch       string      `json:"arch"`
	Origin     ImageOrigin `json:"origin"`
	Signed     Signed      `json:"signed,omitzero"`    // the origin, by who made it
	Unsigned   string      `json:"unsigned,omitempty"` // why it was imported without a signature
	At         time.Time   `json:"at"`
	By         string      `json:"by"`
}

// ImageOrigin is the file that an image was made from; the image itself if it was not converted.
type ImageOrigin struct {
	Name   string `json:"name"` // the name that its importer gave it
	Format string `json:"format"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Signed is a small text that pins something by its digests, with its signature as minisign writes it.
type Signed struct {
	Text      string `json:"text"`
	Signature string `json:"signature"`
}

// Sum is the checksum that the line names; empty if it is no such line.
func (s Signed) Sum() string {
	const digits = 64
	if len(s.Text) < digits || strings.Trim(s.Text[:digits], "0123456789abcdef") != "" {
		return ""
	}
	return s.Text[:digits]
}

// ImageUpload is a file that arrives: of an image, or an archive of a release bundle. Its id is the SHA-256 that it
// shall have, so that everyone who has the file finds its upload again.
type ImageUpload struct {
	ID     string
	Name   string // of the file, for people
	Size   int64
	Offset int64 // how much has arrived
	By     string
	// Release tells that the file is an archive of a release bundle.
	Release bool
	// Unchecked is whether the ID is not the checksum yet: the upload was begun without one, and not all has arrived.
	Unchecked bool
}

// ImageRequest is what is known of a file before it is sent.
type ImageRequest struct {
	SHA256 string // empty if the sender does not know it
	// ID is that of an upload without a checksum, 64 hexadecimal digits by which its sender finds it again; a random
	// one if it is empty.
	ID     string
	Name   string
	Size   int64
	Format string // as the sender sees it; empty if it does not
	Compat string // that the image shall have; empty for as it is
	By     string
	// Release tells that the file is an archive of a release bundle, and no image.
	Release bool
	// Signed is the line that sha256sum writes of the file, with its signature; Unsigned is why there is none.
	Signed   Signed
	Unsigned string
}

// ImageImport is what to make of an upload.
type ImageImport struct {
	Upload     string
	Kubernetes string // that the image carries; empty if the image says so itself
	Compat     string // of the qcow2: 0.10, 1.1, or empty for as it is
	Signed     Signed // the line that sha256sum writes of the upload, with its signature
	Unsigned   string // why there is none
	By         string
}

// ProviderImage is an image that was brought to a provider, or is about to be. A document that moves on to another file
// leaves the old one there as long as VMs are linked to it.
type ProviderImage struct {
	Provider string
	Name     string // on the provider: that of the document with the beginning of the checksum
	Image    string // the document
	SHA256   string
	At       time.Time
}

// ImageLeft is a part of an image that nothing needs, or seems to need.
type ImageLeft struct {
	Provider string // where it is; empty for a file on the director
	Name     string // on the provider
	SHA256   string
	Size     int64  // of a file
	Kept     string // why it stays; empty if it goes
}

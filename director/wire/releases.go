package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// ReleaseFetch is an archive of a release bundle that the director fetches from a mirror.
type ReleaseFetch struct {
	URL string `json:"url" doc:"Address of the archive, with https and without an account. A redirect is not followed." minLength:"9" maxLength:"2048"`
	CA  string `json:"ca,omitempty" doc:"Certificates in PEM form that the mirror may be from. Left out, those that the director's system trusts." maxLength:"65536"`
	// User and Password are for the mirror.
	User     string `json:"user,omitempty" doc:"Account at the mirror." maxLength:"256"`
	Password string `json:"password,omitempty" doc:"Its password. The director keeps it in memory until the fetch has ended, and stores it nowhere." maxLength:"4096" format:"password"`
}

// ReleaseFetchAt names a fetch of the caller.
type ReleaseFetchAt struct {
	URL string `json:"url" doc:"Address of the archive." maxLength:"2048"`
}

// ReleaseFetchJob is a fetch.
type ReleaseFetchJob struct {
	ID      string   `json:"id"`
	Stage   string   `json:"stage" doc:"checking, fetching, done or failed."`
	Done    int64    `json:"done,omitempty" doc:"How much has arrived, in bytes."`
	Total   int64    `json:"total,omitempty" doc:"How long the file is; absent if that is not known."`
	Upload  *Upload  `json:"upload,omitempty" doc:"When it is done: what can be imported."`
	Problem *Problem `json:"problem,omitempty" doc:"When it failed. What has arrived stays for a day."`
}

// ReleaseImport is what to make of an uploaded archive of a release bundle.
type ReleaseImport struct {
	Upload   string `json:"upload" doc:"Id of an upload of the kind release that has wholly arrived." maxLength:"64"`
	Unsigned string `json:"unsigned,omitempty" doc:"Why the bundle is used without a signature, in three words or more." maxLength:"200"`
}

// ReleaseJob is work on a release bundle.
type ReleaseJob struct {
	ID      string       `json:"id"`
	Stage   string       `json:"stage" doc:"checking, unpacking, done or failed."`
	Done    int64        `json:"done,omitempty" doc:"How far the stage is."`
	Total   int64        `json:"total,omitempty" doc:"Where its end is; absent if that is not known."`
	File    *ReleaseFile `json:"file,omitempty" doc:"When it is done."`
	Problem *Problem     `json:"problem,omitempty" doc:"When it failed."`
}

// ReleaseFile is an imported release bundle.
type ReleaseFile struct {
	Digest     string    `json:"digest" doc:"SHA-256 of its release.yaml, which pins everything in it."`
	Name       string    `json:"name"`
	Kubernetes string    `json:"kubernetes"`
	Arch       string    `json:"arch"`
	Images     int       `json:"images" doc:"How many container images it has."`
	Size       int64     `json:"size" doc:"Of all files, in bytes."`
	ImportedAt time.Time `json:"imported_at"`
	ImportedBy string    `json:"imported_by,omitempty"`
}

// Release is a document of a release with what is known of its bundle, or an imported bundle that no document names.
type Release struct {
	Name       string            `json:"name,omitempty" doc:"Of the document; absent for a bundle that none names."`
	Digest     string            `json:"digest,omitempty" doc:"SHA-256 of its release.yaml; absent if that cannot be read."`
	Kubernetes string            `json:"kubernetes"`
	Directory  string            `json:"directory,omitempty" doc:"Path on the director, of a bundle that was not imported."`
	Components map[string]string `json:"components,omitempty" doc:"Versions of the other parts by name."`
	File       *ReleaseFile      `json:"file,omitempty" doc:"Absent for a bundle that was not imported into this director."`
	Clusters   []string          `json:"clusters,omitempty" doc:"Whose documents name it."`
	SignedBy   string            `json:"signed_by,omitempty" doc:"Id of the trusted key that signed it."`
	Unsigned   string            `json:"unsigned,omitempty" doc:"Why it is used without a signature."`
	Refused    string            `json:"refused,omitempty" doc:"Why it is not used."`
}

// Releases is a list of releases.
type Releases struct {
	Items []Release `json:"items" nullable:"false"`
}

// ReleaseLeft is an imported bundle that is not needed.
type ReleaseLeft struct {
	Digest string `json:"digest"`
	Name   string `json:"name"`
	Size   int64  `json:"size" doc:"In bytes."`
}

// ReleasesPruned is what was removed, or would be.
type ReleasesPruned struct {
	DryRun bool          `json:"dry_run"`
	Items  []ReleaseLeft `json:"items" nullable:"false"`
}

// ReleaseFileOf converts a file; nil stays nil.
func ReleaseFileOf(f *director.ReleaseFile) *ReleaseFile {
	if f == nil {
		return nil
	}
	return &ReleaseFile{
		Digest: f.Digest, Name: f.Name, Kubernetes: f.Kubernetes, Arch: f.Arch, Images: f.Images, Size: f.Size,
		ImportedAt: f.At.UTC(), ImportedBy: f.By,
	}
}

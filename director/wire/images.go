package wire

import (
	"time"

	"github.com/director-kaas/kaas/director"
)

// TypeUpload is the media type of a piece of an upload.
const TypeUpload = "application/offset+octet-stream"

// UploadRequest is what is known of a file before it is sent.
type UploadRequest struct {
	SHA256 string `json:"sha256,omitempty" doc:"Of the whole file, 64 hexadecimal digits in lower case. It is the id of the upload. Left out, the director computes it when all has arrived." maxLength:"64"`
	Size   int64  `json:"size" doc:"Of the whole file, in bytes." minimum:"0"`
	Name   string `json:"name,omitempty" doc:"Of the file, for people." maxLength:"255"`
	Kind   string `json:"kind,omitempty" doc:"What the file is: an image, or an archive of a release bundle. Left out, an image." enum:"image,release"`
	Format string `json:"format,omitempty" doc:"qcow2, raw, vmdk or ova as the sender sees it, so that what cannot be converted here is refused before it is sent." enum:"qcow2,raw,vmdk,ova"`
	Compat string `json:"compat,omitempty" doc:"Version of qcow2 that the image shall have." enum:"0.10,1.1"`
	// What follows says of a file that is to be an image that it may be, before it is sent.
	Checksum  string `json:"checksum,omitempty" doc:"The line that sha256sum wrote of the file: what is signed." maxLength:"4096"`
	Signature string `json:"signature,omitempty" doc:"Signature of checksum, as minisign writes it." maxLength:"4096"`
	Unsigned  string `json:"unsigned,omitempty" doc:"Why the image is used without a signature, in three words or more." maxLength:"200"`
}

// Upload is a file that arrives.
type Upload struct {
	ID     string `json:"id" doc:"The SHA-256 that the whole file shall have. Of an upload that was begun without it a random id, until all has arrived."`
	Name   string `json:"name,omitempty"`
	Size   int64  `json:"size" doc:"Of the whole file, in bytes."`
	Offset int64  `json:"offset" doc:"How much has arrived: the next piece begins here."`
	By     string `json:"by,omitempty" doc:"Who began it."`
	Kind   string `json:"kind" doc:"What the file is: image or release." enum:"image,release"`
	// Unchecked uploads get their checksum as their id with the last piece.
	Unchecked bool `json:"unchecked,omitempty" doc:"The id is not the checksum: not all has arrived yet."`
}

// Kinds of uploads.
const (
	UploadImage   = "image"
	UploadRelease = "release"
)

// ImageImport is what to make of an upload.
type ImageImport struct {
	Upload     string `json:"upload" doc:"Id of an upload that has wholly arrived." maxLength:"64"`
	Kubernetes string `json:"kubernetes,omitempty" doc:"Version that the image carries, such as v1.37.2. Left out, the image must say so itself, in /etc/kaas-release." maxLength:"20"`
	Compat     string `json:"compat,omitempty" doc:"Version of qcow2 that the image shall have: 0.10 for hosts that know no newer one. Left out, a qcow2 stays as it is." enum:"0.10,1.1"`
	Checksum   string `json:"checksum,omitempty" doc:"The line that sha256sum wrote of the file: what is signed." maxLength:"4096"`
	Signature  string `json:"signature,omitempty" doc:"Signature of checksum, as minisign writes it." maxLength:"4096"`
	Unsigned   string `json:"unsigned,omitempty" doc:"Why the image is used without a signature, in three words or more." maxLength:"200"`
}

// ImageConversion is what to make of an imported image.
type ImageConversion struct {
	Compat string `json:"compat" doc:"Version of qcow2 that the new image has." enum:"0.10,1.1"`
}

// Stages of jobs that their callers show.
const (
	JobChecking   = "checking"
	JobConverting = "converting"
	JobUnpacking  = "unpacking"
	JobFetching   = "fetching"
)

// ImageJob is work on an image.
type ImageJob struct {
	ID      string     `json:"id"`
	Stage   string     `json:"stage" doc:"checking, converting, done or failed."`
	Done    int64      `json:"done,omitempty" doc:"How far the stage is."`
	Total   int64      `json:"total,omitempty" doc:"Where its end is; absent if that is not known."`
	File    *ImageFile `json:"file,omitempty" doc:"When it is done."`
	Problem *Problem   `json:"problem,omitempty" doc:"When it failed."`
}

// ImageFile is an imported image.
type ImageFile struct {
	SHA256       string    `json:"sha256"`
	Size         int64     `json:"size" doc:"Of the file, in bytes."`
	Virtual      int64     `json:"virtual" doc:"Of its disk, in bytes."`
	Compat       string    `json:"compat" doc:"Version of qcow2: 0.10 or 1.1."`
	Kubernetes   string    `json:"kubernetes"`
	Told         bool      `json:"told" doc:"A person said which Kubernetes it carries; the image did not."`
	Arch         string    `json:"arch"`
	OriginName   string    `json:"origin_name,omitempty" doc:"The file that was imported."`
	OriginFormat string    `json:"origin_format,omitempty"`
	OriginSHA256 string    `json:"origin_sha256"`
	OriginSize   int64     `json:"origin_size"`
	ImportedAt   time.Time `json:"imported_at"`
	ImportedBy   string    `json:"imported_by,omitempty"`
}

// Image is a document of an image with what is known of its file, or an imported file that no document names.
type Image struct {
	Name       string     `json:"name,omitempty" doc:"Of the document; absent for a file that none names."`
	SHA256     string     `json:"sha256"`
	Kubernetes string     `json:"kubernetes"`
	Source     string     `json:"source,omitempty" doc:"Path on the director, of an image that was not imported."`
	File       *ImageFile `json:"file,omitempty" doc:"Absent for an image that was not imported into this director."`
	Clusters   []string   `json:"clusters,omitempty" doc:"Whose documents name it."`
	Providers  []string   `json:"providers,omitempty" doc:"Where it was brought."`
	Old        int        `json:"old,omitempty" doc:"How many earlier contents of the document are left on providers."`
	SignedBy   string     `json:"signed_by,omitempty" doc:"Id of the trusted key that signed it."`
	Unsigned   string     `json:"unsigned,omitempty" doc:"Why it is used without a signature."`
	Refused    string     `json:"refused,omitempty" doc:"Why it is not used."`
}

// Images is a list of images.
type Images struct {
	Items []Image `json:"items"`
}

// ImageLeft is something of an image that is not needed.
type ImageLeft struct {
	Provider string `json:"provider,omitempty" doc:"Where it is; absent for a file on the director."`
	Name     string `json:"name,omitempty" doc:"On the provider."`
	SHA256   string `json:"sha256"`
	Size     int64  `json:"size,omitempty" doc:"Of a file."`
	Kept     string `json:"kept,omitempty" doc:"Why it stays."`
}

// ImagesPruned is what was removed, or would be.
type ImagesPruned struct {
	DryRun bool        `json:"dry_run"`
	Items  []ImageLeft `json:"items"`
}

// UploadOf converts an upload.
func UploadOf(u director.ImageUpload) Upload {
	kind := UploadImage
	if u.Release {
		kind = UploadRelease
	}
	return Upload{
		ID: u.ID, Name: u.Name, Size: u.Size, Offset: u.Offset, By: u.By, Kind: kind, Unchecked: u.Unchecked,
	}
}

// ImageFileOf converts a file; nil stays nil.
func ImageFileOf(f *director.ImageFile) *ImageFile {
	if f == nil {
		return nil
	}
	return &ImageFile{
		SHA256: f.SHA256, Size: f.Size, Virtual: f.Virtual, Compat: f.Compat, Kubernetes: f.Kubernetes, Told: f.Told,
		Arch:       f.Arch,
		OriginName: f.Origin.Name, OriginFormat: f.Origin.Format, OriginSHA256: f.Origin.SHA256,
		OriginSize: f.Origin.Size,
		ImportedAt: f.At.UTC(), ImportedBy: f.By,
	}
}

// ImagesLeftOf converts what a clean-up found.
func ImagesLeftOf(left []director.ImageLeft) []ImageLeft {
	out := make([]ImageLeft, len(left))
	for i, l := range left {
		out[i] = ImageLeft(l)
	}
	return out
}

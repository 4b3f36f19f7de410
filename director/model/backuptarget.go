package model

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
)

// The types of backup targets.
const (
	BackupDirectory = "directory"
	BackupNFS       = "nfs"
	BackupS3        = "s3"
)

// BackupTarget is a place where backups of clusters are kept.
type BackupTarget struct {
	Type       string    `json:"type" doc:"directory for one of the director's own, nfs for a file system that is mounted there, s3 for a bucket." enum:"directory,nfs,s3" required:"true"`
	Directory  string    `json:"directory,omitempty" doc:"With directory and nfs: directory on the director, below one of backupDirs of its configuration. With nfs, nothing is written while no NFS is mounted there."`
	S3         *S3Bucket `json:"s3,omitempty" doc:"With s3: the bucket."`
	Recipients []string  `json:"recipients,omitempty" doc:"Public keys of age, such as age1..., that can open the backups too. The director can always open them; without a recipient, no one can when its sealing key is lost." maxItems:"20"`
	Retention  Retention `json:"retention,omitzero" doc:"Which backups of each cluster are kept."`
}

// S3Bucket is a bucket of a server that speaks the protocol of S3, which has to be there.
type S3Bucket struct {
	URL         string `json:"url" doc:"Address of the server, such as https://s3.example.org:9000." required:"true" maxLength:"255"`
	Bucket      string `json:"bucket" doc:"Name of the bucket. It has to be there." required:"true"`
	Prefix      string `json:"prefix,omitempty" doc:"What the names of all backups begin with, such as clusters/site-a." maxLength:"200"`
	Region      string `json:"region,omitempty" doc:"Region that requests are signed for." default:"us-east-1"`
	Credentials string `json:"credentials" doc:"Name of the credentials: the user is the id of the access key, and the password is its secret." required:"true"`
	CA          string `json:"ca,omitempty" doc:"Certificates in PEM that the server's is trusted by, instead of those of the system." text:"lines" maxLength:"65536"`
}

// Retention says which backups of a cluster are kept. A backup goes when neither bound keeps it.
type Retention struct {
	Count int `json:"count,omitempty" doc:"The newest so many are always kept." default:"14" min:"1" max:"1000"`
	Days  int `json:"days,omitempty" doc:"Those that are at most so many days old are kept, too. Zero: the count decides alone." min:"1" max:"3650"`
}

// ClusterBackup says where backups of a cluster go.
type ClusterBackup struct {
	Targets []string `json:"targets,omitempty" of:"BackupTarget" doc:"Names of BackupTargets. A backup is made in each of them, and before each plan that works on masters." maxItems:"5"`
	MaxAge  Duration `json:"maxAge,omitempty" doc:"Age at which the newest backup is late. Default: 26h." min:"1h" max:"8760h"`
	Drill   Drill    `json:"drill,omitzero" doc:"How it is tried that backups of the cluster can be restored."`
}

// Drill says where the VM of a restore drill is made, and how often a drill has to succeed.
type Drill struct {
	Network string   `json:"network,omitempty" of:"Network" doc:"Name of the Network of the VM that a backup is restored into: on the cluster's provider, and none that its nodes are on. Without one there are no drills."`
	MaxAge  Duration `json:"maxAge,omitempty" doc:"Age at which the last drill that succeeded is late. Default: 192h." min:"1h" max:"8760h"`
}

// usualDrillAge is a week, with a day for a drill that had to wait.
const usualDrillAge = 8 * 24 * time.Hour

// backupTargetKind is what the model knows of the kind BackupTarget.
var backupTargetKind = kind{
	name:    KindBackupTarget,
	meaning: "A place where backups of clusters are kept; see [backups of clusters](../use/backups.md).",
	spec:    func(d *Document) any { return ensure(&d.BackupTarget) },
	validate: func(v *validator, d *Document) {
		v.backupTarget(d.BackupTarget)
	},
	credentials: func(d *Document) []string { return []string{d.BackupTarget.credentials()} },
	columns:     [][2]string{{"TYPE", "type"}, {"DIRECTORY", "directory"}, {"BUCKET", "s3.bucket"}},
	effects: of(Later, "no machine depends on it; later backups follow it", "spec.type", "spec.directory",
		"spec.s3.url", "spec.s3.bucket", "spec.s3.prefix", "spec.s3.region", "spec.s3.credentials", "spec.s3.ca",
		"spec.recipients", "spec.retention.count", "spec.retention.days"),
}

// Late returns the age at which the last drill of the cluster that succeeded is late.
func (d Drill) Late() time.Duration {
	if d.MaxAge > 0 {
		return time.Duration(d.MaxAge)
	}
	return usualDrillAge
}

// usualBackupAge is a day, with time for a backup that takes long.
const usualBackupAge = 26 * time.Hour

// Late returns the age at which the newest backup of the cluster is late.
func (b ClusterBackup) Late() time.Duration {
	if b.MaxAge > 0 {
		return time.Duration(b.MaxAge)
	}
	return usualBackupAge
}

func (b ClusterBackup) references() []Ref {
	refs := make([]Ref, len(b.Targets))
	for i, name := range b.Targets {
		refs[i] = Ref{KindBackupTarget, name}
	}
	if b.Drill.Network != "" {
		refs = append(refs, Ref{KindNetwork, b.Drill.Network})
	}
	return refs
}

var (
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]+$`)
)

// Problems returns what is wrong with the address, the bucket's name, the prefix and the region, at the path of b.
func (b S3Bucket) Problems(at string) []director.Field {
	var v validator
	v.place(at, &b)
	for i, p := range v.problems {
		v.problems[i].Path = strings.TrimPrefix(p.Path, v.ref.String()+": ")
	}
	return v.problems
}

func (v *validator) place(at string, b *S3Bucket) {
	u, err := url.Parse(b.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		v.fail(at+".url", "an address such as https://s3.example.org:9000, without path and account",
			"is not the address of a server")
	}
	v.match(at+".bucket", b.Bucket, bucketPattern, "3 to 63 of a-z, 0-9, dots and dashes", 63)
	if b.Prefix != "" {
		v.match(
			at+".prefix", b.Prefix, prefixPattern, "words with slashes between them, such as clusters/site-a", 200,
		)
	}
	v.match(at+".region", b.Region, regionPattern, "a region such as us-east-1", 40)
}

func (v *validator) bucket(b *S3Bucket) {
	v.place("spec.s3", b)
	v.match("spec.s3.credentials", b.Credentials, labelPattern,
		"the name of credentials: letters a-z, digits and dashes, beginning with a letter", 40)
	if b.CA != "" {
		v.content().pem("spec.s3.ca", b.CA)
	}
}

func (v *validator) backupTarget(t *BackupTarget) {
	switch s3 := t.Type == BackupS3; {
	case s3 && t.S3 == nil:
		v.fail("spec.s3", "name the bucket: url, bucket and credentials", "is missing")
	case s3 && t.Directory != "":
		v.fail("spec.directory", "leave it out, or use the type directory", "is not for the type s3")
	case s3:
		v.bucket(t.S3)
	case t.S3 != nil:
		v.fail("spec.s3", "leave it out, or use the type s3", "is not for the type %s", t.Type)
	case t.Directory == "":
		v.fail("spec.directory", "name a directory of the director", "is missing")
	default:
		v.absolute("spec.directory", t.Directory)
	}
	seen := map[string]bool{}
	for i, r := range t.Recipients {
		at := fmt.Sprintf("spec.recipients[%d]", i)
		if _, err := age.ParseX25519Recipient(r); err != nil {
			v.fail(at, "a public key as age-keygen prints it, beginning with age1", "is not a public key of age")
		}
		if seen[r] {
			v.fail(at, "leave it out", "is there twice")
		}
		seen[r] = true
	}
	if len(t.Recipients) == 0 {
		v.warn("spec.recipients", "is empty: no one can open these backups when the director's sealing key is lost")
	}
}

// credentials returns the name of those of the bucket, or "" if there are none.
func (t *BackupTarget) credentials() string {
	if t.S3 == nil {
		return ""
	}
	return t.S3.Credentials
}

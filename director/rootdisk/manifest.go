// Package rootdisk has what the director and the root of its appliance tell each other: what an upgrade is made of,
// what is asked for, and how far it is. It knows nothing of the VM that it runs on.
package rootdisk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/director-kaas/kaas/director"
)

// Root is which director a root has.
type Root struct {
	Version string `json:"version" yaml:"version"`
	Built   int64  `json:"built" yaml:"built"`   // when its source was changed last, in seconds since 1970
	Schema  string `json:"schema" yaml:"schema"` // of the database, such as 0054
}

// BuiltAt is when the root's source was changed last.
func (r Root) BuiltAt() time.Time { return time.Unix(r.Built, 0).UTC() }

// Manifest is appliance.yaml of an upgrade: what is signed. It pins the root by its checksum.
type Manifest struct {
	Root
	SHA256 string // of the file system, uncompressed
	Size   int64
}

// mostRoot bounds a root: a partition for one has 3 GiB.
const mostRoot = 64 << 30

var (
	versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,62}$`)
	schemaForm  = regexp.MustCompile(`^[0-9]{4}$`)
	sumForm     = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// document is the form of appliance.yaml.
type document struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Root `yaml:",inline"`
		Arch string `yaml:"arch"`
		Disk struct {
			SHA256 string `yaml:"sha256"`
			Size   int64  `yaml:"size"`
		} `yaml:"root"`
	} `yaml:"spec"`
}

// ParseManifest reads appliance.yaml. Errors: invalid, with every wrong place.
func ParseManifest(text []byte) (Manifest, error) {
	const op = "rootdisk.manifest"
	var d document
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&d); err != nil {
		return Manifest{}, director.Errorf(director.KindInvalid, op, "%s cannot be read: %w", ManifestName, err)
	}
	if err := dec.Decode(&document{}); !errors.Is(err, io.EOF) {
		return Manifest{}, director.Errorf(director.KindInvalid, op, "%s has more than one document", ManifestName)
	}
	var wrong []director.Field
	check := func(ok bool, path, msg string) {
		if !ok {
			wrong = append(wrong, director.Field{Path: path, Msg: msg})
		}
	}
	s := d.Spec
	check(d.APIVersion == "kaas/v1", "apiVersion", "is not kaas/v1")
	check(d.Kind == "Appliance", "kind", "is not Appliance")
	check(versionForm.MatchString(s.Version), "spec.version", "is no version")
	check(d.Metadata.Name == s.Version, "metadata.name", "is not the version")
	check(s.Built > 0, "spec.built", "is no time in seconds since 1970")
	check(schemaForm.MatchString(s.Schema), "spec.schema", "is no number with four digits")
	check(s.Arch == "amd64", "spec.arch", "is not amd64")
	check(sumForm.MatchString(s.Disk.SHA256), "spec.root.sha256", "is no SHA-256")
	check(s.Disk.Size > 0 && s.Disk.Size <= mostRoot, "spec.root.size", "is no size of a root")
	if err := director.Invalid(op, ManifestName+" is wrong", wrong); err != nil {
		return Manifest{}, err
	}
	return Manifest{Root: s.Root, SHA256: s.Disk.SHA256, Size: s.Disk.Size}, nil
}

// ParseRoot reads what a root says of itself.
func ParseRoot(text []byte) (Root, error) {
	var r Root
	if err := json.Unmarshal(text, &r); err != nil || !versionForm.MatchString(r.Version) ||
		!schemaForm.MatchString(r.Schema) {
		return Root{}, director.Errorf(director.KindInternal, "rootdisk.root", "the root does not say which it is")
	}
	return r, nil
}

// Newer returns nil if next may replace now. Errors: conflict, with the reason.
func Newer(now, next Root) error {
	const op = "rootdisk.newer"
	refuse := func(hint, format string, args ...any) error {
		return director.Errorf(director.KindConflict, op, format, args...).WithHint("%s", hint)
	}
	const back = "to go back to the version before the last upgrade: directorctl appliance rollback"
	switch {
	case next.Schema < now.Schema:
		return refuse(
			back, "version %s would be a downgrade: it knows the database up to %s, and this director, %s, uses %s",
			next.Version, next.Schema, now.Version, now.Schema,
		)
	case next.Built < now.Built:
		return refuse(
			back, "version %s would be a downgrade: it is of %s, and this director, %s, of %s", next.Version,
			next.BuiltAt().Format(time.RFC3339), now.Version, now.BuiltAt().Format(time.RFC3339),
		)
	case next == now:
		return refuse("there is nothing to do", "version %s runs already", now.Version)
	}
	return nil
}

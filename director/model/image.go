package model

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Image is a node image: a disk that VMs are cloned from.
type Image struct {
	Source     string `json:"source,omitempty" doc:"Path of the file on the director, below one of its imageDirs. Left out for an image that was imported: its checksum finds it." maxLength:"4096"`
	Format     string `json:"format,omitempty" doc:"Format of the file. Files of other formats are converted when they are imported." enum:"qcow2" default:"qcow2"`
	SHA256     string `json:"sha256" doc:"SHA-256 of the file, 64 hexadecimal digits." required:"true"`
	Kubernetes string `json:"kubernetes" doc:"Kubernetes version whose binaries the image carries, such as v1.37.2." required:"true"`
	Arch       string `json:"arch,omitempty" doc:"CPU architecture." enum:"amd64" default:"amd64"`
	// CleanUp is last, so that images without it look as they always did.
	CleanUp CleanUp `json:"cleanUp,omitzero" doc:"What each VM takes off its disk at its first boot, of what the maker of a foreign image left there."`
	// Unsigned is what lets an image in without a signature.
	Unsigned string `json:"unsigned,omitempty" doc:"Why the image is used without a signature, in words. Without them an image that is not signed is refused. A signature that is there must be right all the same." maxLength:"200"`
}

// The groups of things that a clean-up knows.
const (
	CleanCloud        = "cloud"
	CleanRepositories = "repositories"
	CleanKeys         = "keys"
)

// CleanUp says what a foreign image carries that nodes do not want.
type CleanUp struct {
	What  []string `json:"what,omitempty" doc:"Groups of things. cloud: data, settings and agents of other clouds. repositories: package repositories. keys: SSH keys that let others in."`
	Paths []string `json:"paths,omitempty" doc:"Further files and directories; the last part of a path may hold * and ?."`
}

// imageKind is what the model knows of the kind Image.
var imageKind = kind{
	name:      KindImage,
	meaning:   "A node image: the disk that VMs are cloned from.",
	spec:      func(d *Document) any { return ensure(&d.Image) },
	versioned: true,
	validate: func(v *validator, d *Document) {
		v.image(d.Image)
	},
	columns: [][2]string{{"KUBERNETES", "kubernetes"}, {"ARCH", "arch"}, {"SOURCE", "source"}},
	effects: merged(
		of(Planned, "nodes that are recreated in an upgrade are made of it", "spec.sha256"),
		of(
			Later, "it is where the file is read, or what it holds", "spec.source", "spec.format", "spec.arch",
			"spec.kubernetes",
		),
		of(Later, whyUnsigned, "spec.unsigned"),
		of(Later, whyNew, "spec.cleanUp.what", "spec.cleanUp.paths"),
	),
}

func (v *validator) image(i *Image) {
	v.match("spec.sha256", i.SHA256, sha256Pattern, "64 hexadecimal digits, as sha256sum prints them", 64)
	v.match("spec.kubernetes", i.Kubernetes, versionPattern, "a version such as v1.37.2", 20)
	v.absolute("spec.source", i.Source)
	v.cleanUp(i.CleanUp)
	v.words("spec.unsigned", i.Unsigned)
}

// NameOnProviders is how hypervisors know the image of a document: by its name and the beginning of its checksum. So a
// document may move on to another file while VMs are linked to the old one.
func (i *Image) NameOnProviders(document string) string {
	return document + "-" + i.SHA256[:min(12, len(i.SHA256))]
}

// keptDirectories are what no clean-up may take away: a node would not start without them, or is told by them what it
// is.
var keptDirectories = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/etc/cloud", "/etc/ssh", "/etc/systemd", "/home", "/lib", "/lib64", "/proc",
	"/root", "/run", "/sbin", "/sys", "/usr", "/usr/bin",
	"/usr/lib", "/usr/local", "/usr/local/bin", "/usr/sbin", "/var", "/var/lib", "/var/lib/cloud", "/var/lib/kaas",
}

func (v *validator) cleanUp(c CleanUp) {
	groups := []string{CleanCloud, CleanRepositories, CleanKeys}
	for i, what := range c.What {
		if !slices.Contains(groups, what) {
			v.fail(
				fmt.Sprintf("spec.cleanUp.what[%d]", i), "one of "+strings.Join(groups, ", "), "%q is not known", what,
			)
		}
	}
	for i, p := range c.Paths {
		at := fmt.Sprintf("spec.cleanUp.paths[%d]", i)
		dir, last := path.Split(p)
		switch {
		case !strings.HasPrefix(p, "/") || path.Clean(p) != p:
			v.fail(
				at, "write the whole path, beginning with / and without a / at its end",
				"%q is not a clean absolute path", p,
			)
		case slices.Contains(keptDirectories, p) ||
			(strings.Trim(last, "*?") == "" && slices.Contains(keptDirectories, path.Clean(dir))):
			v.fail(at, "name what is below it", "a node cannot do without %s", p)
		case strings.ContainsAny(dir, "*?") || !plainPath(p):
			v.fail(at, "letters, digits and . _ - @ +, with * and ? in the last part alone", "%q is not allowed", p)
		}
	}
}

// plainPath tells whether a shell sees nothing in the path but a pattern.
func plainPath(p string) bool {
	for _, c := range p {
		ok := strings.ContainsRune("/._-@+*?", c) || ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') ||
			('A' <= c && c <= 'Z')
		if !ok {
			return false
		}
	}
	return true
}

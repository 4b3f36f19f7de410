package model

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

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

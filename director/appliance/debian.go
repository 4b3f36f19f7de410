package appliance

import (
	"bufio"
	"io"
	"regexp"
	"strings"

	"pault.ag/go/debian/version"
)

// debianVersion is the form of a package's version (deb-version(7)).
var debianVersion = regexp.MustCompile(`^[0-9][0-9A-Za-z.+~:-]{0,127}$`)

// debianPackage is the form of a package's name.
var debianPackage = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]{1,127}$`)

// mostStanza bounds a line of a list of packages.
const mostStanza = 1 << 20

// debianPackages calls found for each stanza of a list of packages with name, version and what else is asked for: the
// form of dpkg's status and of an archive's Packages. Names and versions of another form are left out.
func debianPackages(r io.Reader, found func(name, version, status string)) error {
	var name, version, status string
	end := func() {
		if debianPackage.MatchString(name) && debianVersion.MatchString(version) {
			found(name, version, status)
		}
		name, version, status = "", "", ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostStanza)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimSpace(value); key {
		case "":
			end()
		case "Package":
			name = value
		case "Version":
			version = value
		case "Status":
			status = value
		}
	}
	end()
	return lines.Err()
}

// compareDebian orders versions of a package as dpkg does (deb-version(7)). Versions that cannot be read are equal to
// all.
func compareDebian(a, b string) int {
	va, errA := version.Parse(a)
	vb, errB := version.Parse(b)
	if errA != nil || errB != nil {
		return 0
	}
	return version.Compare(va, vb)
}

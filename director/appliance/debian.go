package appliance

import (
	"bufio"
	"cmp"
	"io"
	"regexp"
	"strconv"
	"strings"
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

// compareDebian orders versions of a package as dpkg does (deb-version(7)).
func compareDebian(a, b string) int {
	epoch := func(v string) (int, string) {
		before, after, found := strings.Cut(v, ":")
		n, err := strconv.Atoi(before)
		if !found || err != nil {
			return 0, v
		}
		return n, after
	}
	revision := func(v string) (upstream, revision string) {
		if i := strings.LastIndexByte(v, '-'); i >= 0 {
			return v[:i], v[i+1:]
		}
		return v, ""
	}
	ea, a := epoch(a)
	eb, b := epoch(b)
	ua, ra := revision(a)
	ub, rb := revision(b)
	return cmp.Or(cmp.Compare(ea, eb), comparePart(ua, ub), comparePart(ra, rb))
}

// comparePart compares text and numbers in turn, from the left.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		for a != "" && !isDigit(a[0]) || b != "" && !isDigit(b[0]) {
			if c := cmp.Compare(debianOrder(a), debianOrder(b)); c != 0 {
				return c
			}
			a, b = a[min(1, len(a)):], b[min(1, len(b)):]
		}
		na, nb := digits(a), digits(b)
		va, vb := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
		if c := cmp.Or(cmp.Compare(len(va), len(vb)), cmp.Compare(va, vb)); c != 0 {
			return c
		}
		a, b = a[na:], b[nb:]
	}
	return 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// debianOrder is the weight of the first character: a tilde is before the end, which is before letters, which are
// before all else.
func debianOrder(s string) int {
	switch {
	case s == "" || isDigit(s[0]):
		return 0
	case s[0] == '~':
		return -1
	case 'a' <= s[0]|0x20 && s[0]|0x20 <= 'z':
		return int(s[0])
	}
	return int(s[0]) + 256
}

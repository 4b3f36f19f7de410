package appliance

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

const opPackages = "appliance.packages"

// archiveFile has a line for each archive that the root's packages are from: its name, and its date (RFC 1123).
// images/common/debian.sh writes it.
const archiveFile = "usr/share/kaas/archives"

// securityFile keeps the security updates that an administrator brought, on the data disk: a securityList.
const securityFile = "security.json"

// debianKeys are the keys of Debian's archives.
const debianKeys = "usr/share/keyrings/debian-archive-keyring.gpg"

// Bounds of what an administrator brings.
const (
	mostRelease = 4 << 20
	mostUpdates = 64 << 20
)

// Packages are the Debian packages of the running root.
type Packages struct{ Place }

// securityList is the newest version of each package in Debian's archive of security updates.
type securityList struct {
	Codename string            `json:"codename"`
	Date     time.Time         `json:"date"`
	Versions map[string]string `json:"versions"`
}

// Read takes Debian's list of security updates from two files of a mirror: InRelease of
// dists/CODENAME-security, and the Packages of amd64 that it names, unpacked. It keeps the list and compares the
// running root with it. Errors: invalid for files that Debian did not sign, of another release of Debian, or older than
// the list that is kept.
func (p Packages) Read(ctx context.Context, release, packages string) (rootdisk.Packages, error) {
	var none rootdisk.Packages
	if _, err := readBounded("InRelease", release, mostRelease); err != nil {
		return none, err
	}
	signed, err := p.verified(ctx, release)
	if err != nil {
		return none, err
	}
	text, err := readBounded("Packages", packages, mostUpdates)
	if err != nil {
		return none, err
	}
	list, err := readSecurity(signed, text)
	if err != nil {
		return none, err
	}
	if want := p.codename() + "-security"; list.Codename != want {
		return none, badList("InRelease", "bring the one of dists/"+want, "is of %s", printable(list.Codename))
	}
	kept, err := p.security()
	if err != nil {
		return none, err
	}
	if kept.Codename == list.Codename && list.Date.Before(kept.Date) {
		return none, badList(
			"InRelease", "bring the newest one", "is of %s, and the list that is kept is of %s",
			list.Date.Format(time.DateOnly), kept.Date.Format(time.DateOnly),
		)
	}
	out, err := json.Marshal(list)
	if err == nil {
		err = writeFile(p.roots().upgrade(securityFile), append(out, '\n'), 0o644)
	}
	if err != nil {
		return none, err
	}
	return p.Compare()
}

func badList(field, hint, format string, args ...any) error {
	return director.Invalid(opPackages, "the list of security updates cannot be used", []director.Field{
		{Path: field, Msg: fmt.Sprintf(format, args...), Hint: hint},
	})
}

// readBounded reads a regular file.
func readBounded(field, path string, most int64) ([]byte, error) {
	const hint = "see docs/operate/appliance.md for the two files"
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, badList(field, hint, "cannot be read: %v", err)
	case !info.Mode().IsRegular():
		return nil, badList(field, hint, "%s is no regular file", printable(path))
	case info.Size() > most:
		return nil, badList(field, hint, "has more than %d MiB", most>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badList(field, hint, "cannot be read: %v", err)
	}
	return text, nil
}

// verified returns the part of the file that Debian signed.
func (p Packages) verified(ctx context.Context, path string) ([]byte, error) {
	path, err := filepath.Abs(path) // no option of gpgv
	if err != nil {
		return nil, director.Errorf(director.KindInternal, opPackages, "%w", err)
	}
	keys := filepath.Join(p.Root, "/", debianKeys)
	text, err := command(ctx, nil, "gpgv", "--keyring", keys, "--output", "-", path)
	if err != nil {
		return nil, badList(
			"InRelease", "bring it from a mirror of Debian, unchanged", "has no signature of Debian that is valid",
		)
	}
	return text, nil
}

var packagesLine = regexp.MustCompile(`(?m)^ ([0-9a-f]{64}) +[0-9]+ (?:[a-z-]+/)?main/binary-amd64/Packages$`)

// readSecurity reads a list that belongs to the signed text.
func readSecurity(signed, text []byte) (securityList, error) {
	l := securityList{Versions: map[string]string{}}
	head, sums, found := bytes.Cut(signed, []byte("\nSHA256:"))
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "Codename":
			l.Codename = value
		case "Date":
			l.Date = archiveDate(value)
		}
	}
	sum := packagesLine.FindSubmatch(sums)
	if !found || sum == nil || l.Date.IsZero() {
		return l, badList("InRelease", "bring the one next to main/", "names no date, or no Packages of amd64")
	}
	if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != string(sum[1]) {
		return l, badList(
			"Packages", "bring main/binary-amd64/Packages.xz of the same moment, and unpack it: xz -d Packages.xz",
			"is not the one that InRelease names",
		)
	}
	err := debianPackages(bytes.NewReader(text), func(name, version, _ string) {
		if was := l.Versions[name]; was == "" || compareDebian(was, version) < 0 {
			l.Versions[name] = version
		}
	})
	if err != nil {
		return l, badList("Packages", "bring it again", "cannot be read: %v", err)
	}
	return l, nil
}

// archiveDate reads a date as archives write it; zero if it is none.
func archiveDate(text string) time.Time {
	for _, form := range []string{time.RFC1123, "Mon, _2 Jan 2006 15:04:05 MST"} {
		if at, err := time.Parse(form, text); err == nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

// codename is the release of Debian that the root is made of.
func (p Packages) codename() string {
	text, err := os.ReadFile(p.etc("os-release"))
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(text)) {
		if name, is := strings.CutPrefix(line, "VERSION_CODENAME="); is {
			if raw, err := strconv.Unquote(strings.TrimSpace(name)); err == nil {
				return raw
			}
			return strings.TrimSpace(name)
		}
	}
	return "?"
}

// security returns the list that is kept; an empty one without.
func (p Packages) security() (securityList, error) {
	var l securityList
	text, err := os.ReadFile(p.roots().upgrade(securityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return l, director.Errorf(director.KindInternal, opPackages, "the kept list of security updates: %w", err).
			WithHint("remove %s, and bring the list again", p.roots().upgrade(securityFile))
	}
	return l, nil
}

// Compare says how the packages of the running root are, and keeps it for the director. It is called at each
// start, because the root may be another one.
func (p Packages) Compare() (rootdisk.Packages, error) {
	var out rootdisk.Packages
	var err error
	if out.Of, err = p.packagesOf(); err != nil {
		return out, err
	}
	list, err := p.security()
	if err != nil {
		return out, err
	}
	if list.Codename == p.codename()+"-security" { // a root of the next Debian has no use for it
		out.List = list.Date
		if out.Missing, err = p.missing(list.Versions); err != nil {
			return out, err
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return out, director.Errorf(director.KindInternal, opPackages, "%w", err)
	}
	return out, writeFile(p.roots().upgrade(rootdisk.PackagesFile), append(text, '\n'), 0o644)
}

// packagesOf returns the date of the archive of security updates that the root's packages are from, or of the newest
// one if that is not among them; zero if the root does not say.
func (p Packages) packagesOf() (newest time.Time, err error) {
	text, err := os.ReadFile(filepath.Join(p.Root, "/", archiveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return newest, nil
	}
	if err != nil {
		return newest, director.Errorf(director.KindInternal, opPackages, "%w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, date, _ := strings.Cut(strings.TrimSpace(line), " ")
		at := archiveDate(date)
		if strings.HasSuffix(name, "-security") && !at.IsZero() {
			return at, nil
		}
		if at.After(newest) {
			newest = at
		}
	}
	return newest, nil
}

// missing compares the installed packages with the newest versions.
func (p Packages) missing(newest map[string]string) ([]rootdisk.Fix, error) {
	f, err := os.Open(filepath.Join(p.Root, "/var/lib/dpkg/status"))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, opPackages, "%w", err)
	}
	defer f.Close()
	found := map[string]rootdisk.Fix{}
	err = debianPackages(io.LimitReader(f, mostUpdates), func(name, version, status string) {
		fixed := newest[name]
		if strings.HasSuffix(status, " installed") && fixed != "" && compareDebian(version, fixed) < 0 {
			found[name] = rootdisk.Fix{Package: name, Installed: version, Fixed: fixed}
		}
	})
	if err != nil {
		return nil, director.Errorf(director.KindInternal, opPackages, "%w", err)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b rootdisk.Fix) int {
		return cmp.Compare(a.Package, b.Package)
	}), nil
}

// CheckPackages says how old the packages of the root are, and which security updates it has not.
func CheckPackages(s rootdisk.Packages, now time.Time) []Finding {
	const what = "root disk"
	const next = "upgrade to an image with newer packages: directorctl appliance upgrade director-upgrade.tar"
	all := []Finding{}
	age, of := now.Sub(s.Of), "packages of Debian of "+s.Of.Format(time.DateOnly)
	days := int(age / (24 * time.Hour))
	switch {
	case s.Of.IsZero():
		all = append(all, wrong(what, next, "does not say of when its packages are"))
	case age < 0:
		const clock = "set the clock, as root: chronyc makestep"
		all = append(all, wrong(what, clock, "has %s: the clock is behind that", of))
	case age > rootdisk.PackagesAge:
		all = append(all, wrong(what, next, "has %s, %d days old", of, days))
	default:
		all = append(all, Finding{What: what, Good: fmt.Sprintf("has %s, %d days old", of, days)})
	}
	return append(all, checkUpdates(s, next)...)
}

// checkUpdates says which security updates the root has not. next is what to do if there are some.
func checkUpdates(s rootdisk.Packages, next string) []Finding {
	const updates = "security updates"
	list := "the list of " + s.List.Format(time.DateOnly)
	if s.List.IsZero() {
		return []Finding{{
			What: updates, Good: "are not known: director setup updates compares the root with a list of Debian",
		}}
	}
	var all []Finding
	if len(s.Missing) > 0 {
		names := make([]string, 0, len(s.Missing))
		for _, f := range s.Missing {
			names = append(names, f.Package+" "+f.Installed+" (fixed in "+f.Fixed+")")
		}
		all = append(all, wrong(updates, next, "are missing, by %s: %s", list, strings.Join(names, ", ")))
	}
	if s.ListOutdated() {
		old := wrong(
			updates, "bring a newer list: director setup updates",
			"since %s are not known: %s is older than the packages of the root disk, and names no newer updates",
			s.List.Format(time.DateOnly), list,
		)
		old.Warning = true
		return append(all, old)
	}
	if len(all) == 0 {
		all = append(all, Finding{What: updates, Good: "are all there, by " + list})
	}
	return all
}

package appliance

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

// TestVersionsOfDebian compares the order with dpkg's own.
func TestVersionsOfDebian(t *testing.T) {
	t.Parallel()
	all := []string{
		"1.0", "1.0-0", "1.0-1", "1.0~rc1-1", "1:0.9", "0:1.0", "1.0-1~deb12u1", "1.0-1+deb12u1", "1.0-1+deb12u10",
		"1.0-1+deb12u9", "1.00", "1.0a", "1.0.1", "1.0+b1", "2.36-9+deb12u7", "2.36-9+deb12u10", "1.0-1-1", "09", "9",
		"1.0~", "1.0~~", "1a", "1A", "6.1.137-1", "6.1.99-1", "123456789012345678901234567890",
		"123456789012345678901234567891", "1.0-1build1", "1.0-1.1",
	}
	for _, a := range all {
		for _, b := range all {
			err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", a, "lt", b).Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
				t.Fatal(err)
			}
			if got := compareDebian(a, b) < 0; got != (err == nil) {
				t.Errorf("%s < %s: %v, and dpkg says %v", a, b, got, err == nil)
			}
		}
	}
}

const installed = `Package: openssl
Status: install ok installed
Version: 3.0.17-1~deb12u2

Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u10
Description: a library
 Version: 9

Package: firefox-esr
Status: deinstall ok config-files
Version: 128.0-1
`

// debianRoot is an appliance whose root is made of Debian 12, with the packages above. Its key of Debian is of a test.
func debianRoot(t *testing.T) Packages {
	t.Helper()
	p := Packages{somewhere(t)}
	keys, err := os.ReadFile("testdata/security/archive.gpg")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"etc/os-release":      "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=bookworm\n",
		"var/lib/dpkg/status": installed,
		archiveFile: "bookworm Sat, 16 May 2026 10:54:28 UTC\n" +
			"bookworm-security Wed, 13 May 2026 16:28:12 UTC\n",
		debianKeys: string(keys),
	} {
		path = filepath.Join(p.Root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func security(name string) string { return filepath.Join("testdata/security", name) }

func said(s rootdisk.Packages, now time.Time) string {
	var all []string
	for _, f := range CheckPackages(s, now) {
		text := f.What + " " + f.Good
		switch {
		case f.Err != nil && f.Warning:
			text = "WARNING " + f.What + " " + director.MessageOf(f.Err)
		case f.Err != nil:
			text = "FAILED " + f.What + " " + director.MessageOf(f.Err)
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

func TestPackagesOfTheRoot(t *testing.T) {
	t.Parallel()
	p := debianRoot(t)
	at := func(days int) time.Time { return time.Date(2026, 5, 14, 0, 0, 0, 0, time.UTC).AddDate(0, 0, days) }
	s, err := p.Compare()
	if got := said(s, at(8)); err != nil ||
		!strings.Contains(got, "root disk has packages of Debian of 2026-05-13, 8 days old") ||
		!strings.Contains(got, "security updates are not known") || strings.Contains(got, "FAILED") {
		t.Errorf("%s, %v", got, err)
	}
	for days, want := range map[int]string{
		61: "FAILED root disk has packages of Debian of 2026-05-13, 61 days old", -700: "the clock is behind that",
	} {
		if got := said(s, at(days)); !strings.Contains(got, want) {
			t.Errorf("after %d days: %s", days, got)
		}
	}

	if s, err = p.Read(t.Context(), security("InRelease"), security("Packages")); err != nil {
		t.Fatal(err)
	}
	missing := []rootdisk.Fix{{Package: "openssl", Installed: "3.0.17-1~deb12u2", Fixed: "3.0.17-1~deb12u3"}}
	if !slices.Equal(s.Missing, missing) || s.List.Format(time.DateOnly) != "2026-05-20" {
		t.Errorf("%+v", s)
	}
	if got := said(s, at(8)); !strings.Contains(got, "FAILED security updates are missing, by the list of 2026-05-20: "+
		"openssl 3.0.17-1~deb12u2 (fixed in 3.0.17-1~deb12u3)") {
		t.Error(got)
	}

	// The list stays: the next root is compared with it.
	status := filepath.Join(p.Root, "var/lib/dpkg/status")
	if err := os.WriteFile(status, []byte(strings.ReplaceAll(installed, "deb12u2", "deb12u3")), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = p.Compare(); err != nil ||
		!strings.Contains(said(s, at(8)), "are all there, by the list of 2026-05-20") {
		t.Errorf("%+v, %v", s, err)
	}
	// A root without the file, of an older image, and one of the next Debian, to which the list says nothing.
	err = errors.Join(
		os.Remove(filepath.Join(p.Root, archiveFile)),
		os.WriteFile(p.etc("os-release"), []byte("VERSION_CODENAME=\"trixie\"\n"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = p.Compare(); err != nil || !s.Of.IsZero() || !s.List.IsZero() ||
		!strings.Contains(said(s, at(8)), "FAILED root disk does not say of when its packages are") {
		t.Errorf("%+v, %v", s, err)
	}
}

// A list that is older than the packages of the root is compared, and does not say that nothing is missing.
func TestListThatIsOlderThanTheRoot(t *testing.T) {
	t.Parallel()
	p := debianRoot(t)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(p.Root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 5, 30, 0, 0, 0, 0, time.UTC)
	const older = "WARNING security updates since 2026-05-20 are not known: the list of 2026-05-20 is older than the " +
		"packages of the root disk"
	write(archiveFile, "bookworm-security Thu, 21 May 2026 10:00:00 UTC\n")
	s, err := p.Read(t.Context(), security("InRelease"), security("Packages"))
	if err != nil {
		t.Fatal(err)
	}
	got := said(s, now)
	if !s.ListOutdated() || !strings.Contains(got, older) ||
		!strings.Contains(got, "FAILED security updates are missing") {
		t.Errorf("with an update that is missing all the same: %s", got)
	}
	write("var/lib/dpkg/status", strings.ReplaceAll(installed, "deb12u2", "deb12u3"))
	if s, err = p.Compare(); err != nil {
		t.Fatal(err)
	}
	if got = said(s, now); !strings.Contains(got, older) || strings.Contains(got, "all there") ||
		strings.Contains(got, "FAILED") {
		t.Errorf("with none: %s", got)
	}
	write(archiveFile, "bookworm-security "+s.List.Format(time.RFC1123)+"\n")
	if s, err = p.Compare(); err != nil || s.ListOutdated() || !strings.Contains(said(s, now), "are all there") {
		t.Errorf("a list of the same moment: %s, %v", said(s, now), err)
	}
}

func TestListsOfSecurityUpdatesThatAreRefused(t *testing.T) {
	t.Parallel()
	p := debianRoot(t)
	good, err := os.ReadFile(security("InRelease"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(t.Context(), security("InRelease"), security("Packages")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	huge := file("huge", "")
	if err := os.Truncate(huge, mostUpdates+1); err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct{ release, packages, field, msg string }{
		"changed": {
			release: file("changed", strings.ReplaceAll(string(good), "Version: 12", "Version: 13")),
			field:   "InRelease", msg: "has no signature of Debian",
		},
		"unsigned": {
			release: file("unsigned", "Codename: bookworm-security\n"), field: "InRelease", msg: "has no signature",
		},
		"of another Debian": {
			release: security("InRelease.trixie"), field: "InRelease", msg: "is of trixie-security",
		},
		"older": {
			release: security("InRelease.older"), field: "InRelease", msg: "the list that is kept is of 2026-05-20",
		},
		"another list": {packages: file("other", "Package: a\n"), field: "Packages", msg: "is not the one"},
		"none":         {release: filepath.Join(dir, "none"), field: "InRelease", msg: "cannot be read"},
		"a directory":  {packages: dir, field: "Packages", msg: "is no regular file"},
		"too large":    {packages: huge, field: "Packages", msg: "has more than 64 MiB"},
		"an option":    {release: "--help", field: "InRelease", msg: "cannot be read"},
	} {
		_, err := p.Read(
			t.Context(), cmp.Or(tt.release, security("InRelease")), cmp.Or(tt.packages, security("Packages")),
		)
		fields := director.FieldsOf(err)
		if director.KindOf(err) != director.KindInvalid || len(fields) != 1 || fields[0].Path != tt.field ||
			!strings.Contains(fields[0].Msg, tt.msg) || fields[0].Hint == "" {
			t.Errorf("%s: %v, %+v", what, err, fields)
		}
	}
	if list, err := p.security(); err != nil || len(list.Versions) != 3 {
		t.Errorf("the kept list is another one: %+v, %v", list, err)
	}
}

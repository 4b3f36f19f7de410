package appliance

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
)

// unpack returns the files of a bundle.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// Secrets that got into a file of the bundle are not in the bundle, and what explains a fault still is.
func TestSupportHasNoSecret(t *testing.T) {
	t.Parallel()
	p := somewhere(t)
	s, err := Read(good())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := pair(t)
	s.Certificate, s.Key = cert, key
	if err := errors.Join(p.Save(s), p.Write(t.Context(), s, nil)); err != nil {
		t.Fatal(err)
	}
	sealing := "c2VhbGluZy1rZXktb2YtdGhlLWRpcmVjdG9y"
	provider, metrics := "vcenter-canary-password", "metrics-canary-token"
	for name, text := range map[string]string{
		"director/sealing.key": sealing + "\n", "etc/providers/vc.password": provider,
		"director/metrics.token": metrics,
	} {
		if err := os.WriteFile(p.data(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	canaries := []string{
		sealing, provider, metrics, s.PasswordHash, s.ConsoleHash, key, strings.Split(key, "\n")[1],
		"kaas_" + strings.Repeat("t0ken", 5), "AGE-SECRET-KEY-1" + strings.Repeat("QPZRY", 8),
		"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJlLWhlcmU", auth.HashPassword("another password"),
	}
	var own strings.Builder
	own.WriteString("forks: 7\n")
	for _, c := range canaries {
		own.WriteString("# " + c + "\n# in the middle:" + c + ", of a line\n")
	}
	for _, form := range []string{
		"password: %s", `"password":"%s"`, "api_key=%s", "Authorization: Bearer %s", "secret: '%s'",
		"postgres://director:%s@db.example.org/x",
	} {
		own.WriteString("# " + strings.ReplaceAll(form, "%s", "keyed-canary") + "\n")
	}
	if err := os.WriteFile(p.data(OwnConfig), []byte(own.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "support.tar.gz")
	if err := p.WriteSupport(t.Context(), path, time.Unix(1750000000, 0)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	files := unpack(t, path)
	for name, text := range files {
		for _, c := range append(canaries, password, "keyed-canary") {
			for line := range strings.Lines(c) {
				if line = strings.TrimSpace(line); len(line) >= leastSecret && !strings.HasPrefix(line, "-----") &&
					strings.Contains(text, line) {
					t.Errorf("%s holds %q", name, line)
				}
			}
		}
	}
	kept := files["director-support/config/own.yaml"]
	for _, want := range []string{"forks: 7", "postgres://director:" + redacted + "@db.example.org", "of a line"} {
		if !strings.Contains(kept, want) {
			t.Errorf("own.yaml lost %q:\n%s", want, kept)
		}
	}
	if !strings.Contains(files["director-support/config/director.yaml"], "address: 192.0.2.10") {
		t.Errorf("director.yaml: %s", files["director-support/config/director.yaml"])
	}
	if len(files) != len(p.parts()) {
		t.Errorf("%d files of %d", len(files), len(p.parts()))
	}
	if err := p.WriteSupport(t.Context(), path, time.Now()); director.KindOf(err) != director.KindConflict {
		t.Errorf("over a file that exists: %v", err)
	}
}

func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("an old line\n", mostPart/8)+"the newest\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	got := string(part{file: path}.read(t.Context()))
	if len(got) > mostPart+100 || !strings.HasSuffix(got, "the newest\n") ||
		!strings.HasPrefix(got, "# the beginning") {
		t.Errorf("%d bytes, %.40q ... %.20q", len(got), got, got[len(got)-20:])
	}
	if got := string(part{command: []string{"false"}}.read(t.Context())); !strings.Contains(got, "# ") {
		t.Errorf("a command that fails: %q", got)
	}
}

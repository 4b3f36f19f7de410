package provenance_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/simulate"
)

const words = "made on my own machine"

func signer(t *testing.T) signature.Signer {
	t.Helper()
	s, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func gate(t *testing.T, signers ...signature.Signer) *provenance.Gate {
	t.Helper()
	var entries []string
	for _, s := range signers {
		entries = append(entries, s.Public())
	}
	keys, problems := signature.ReadKeys("trustedKeys", entries)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &provenance.Gate{Keys: keys}
}

func sign(t *testing.T, s signature.Signer, text string, subject signature.Subject) string {
	t.Helper()
	sig, err := s.Sign([]byte(text), subject)
	if err != nil {
		t.Fatal(err)
	}
	return string(sig)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signed makes a bundle that is signed as it is.
func signed(t *testing.T, key signature.Signer) string {
	t.Helper()
	dir, err := simulate.Bundle(t.Context(), t.TempDir(), "k8s-1.37.1", "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	subject := signature.Subject{Kind: signature.KindRelease, Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64"}
	write(t, filepath.Join(dir, bundle.SignatureName), sign(t, key, string(b.Text()), subject))
	return dir
}

func TestRelease(t *testing.T) {
	t.Parallel()
	key := signer(t)
	edit := func(t *testing.T, dir, name, from, to string) {
		t.Helper()
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s has no %q, %v", text, from, err)
		}
		write(t, path, strings.Replace(string(text), from, to, 1))
	}
	gone := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, bundle.SignatureName)); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		change func(t *testing.T, dir string)
		gate   func(g *provenance.Gate)
		words  string
		want   string // of the error
	}{
		"signed":                {},
		"signed, words too":     {words: words},
		"its signature is gone": {change: gone, want: "has no signature"},
		"unsigned, in words":    {change: gone, words: words},
		"unsigned, and never": {
			change: gone, words: words, gate: func(g *provenance.Gate) { g.Never = true },
			want: "uses nothing without one",
		},
		"a key that is not ours": {gate: func(g *provenance.Gate) { g.Keys = nil }, words: words, want: "not trusted"},
		"one byte changed": {change: func(t *testing.T, dir string) {
			t.Helper()
			edit(t, dir, bundle.DocumentName, "arch: amd64", "arch: amd64 ")
		}, words: words, want: "does not match"},
		"an older signature": {change: func(t *testing.T, dir string) {
			t.Helper()
			write(
				t, filepath.Join(dir, bundle.SignatureName),
				sign(t, key, "older", signature.Subject{
					Kind: signature.KindRelease, Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
				}),
			)
		}, want: "does not match"},
		"an image's signature": {change: func(t *testing.T, dir string) {
			t.Helper()
			b, err := bundle.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			write(
				t, filepath.Join(dir, bundle.SignatureName),
				sign(t, key, string(
					b.Text(),
				), signature.Subject{Kind: signature.KindImage, Kubernetes: "v1.37.1", Arch: "amd64"}),
			)
		}, want: "for another thing"},
		"an empty signature": {
			change: func(t *testing.T, dir string) {
				t.Helper()
				write(t, filepath.Join(dir, bundle.SignatureName), "")
			},
			words: words, want: "not in minisign's format",
		},
		"a huge signature": {change: func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, bundle.SignatureName), strings.Repeat("untrusted comment: x\n", 1<<20))
		}, words: words, want: "more than 4096 bytes"},
		"a directory as signature": {change: func(t *testing.T, dir string) {
			t.Helper()
			gone(t, dir)
			if err := os.Mkdir(filepath.Join(dir, bundle.SignatureName), 0o700); err != nil {
				t.Fatal(err)
			}
		}, words: words, want: "not a regular file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, g := signed(t, key), gate(t, signer(t), key)
			if c.change != nil {
				c.change(t, dir)
			}
			if c.gate != nil {
				c.gate(g)
			}
			b, err := bundle.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			reason, err := g.Release(b, c.words)
			check(t, reason, err, c.want, c.words)
		})
	}
}

// check looks at what a gate said.
func check(t *testing.T, reason provenance.Reason, err error, want, words string) {
	t.Helper()
	switch {
	case want != "":
		if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "is not used") || director.HintOf(err) == "" {
			t.Errorf("error = %v, hint %q, want %q", err, director.HintOf(err), want)
		}
	case err != nil || (reason.Key == "") != (reason.Words == words && words != ""):
		t.Errorf("got %+v, %v", reason, err)
	}
}

// The signature of a bundle that was opened may be replaced by a FIFO: nobody waits for it.
func TestReleaseWaitsForNothing(t *testing.T) {
	t.Parallel()
	key := signer(t)
	dir := signed(t, key)
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	sig := filepath.Join(dir, bundle.SignatureName)
	if err := errors.Join(os.Remove(sig), syscall.Mkfifo(sig, 0o600)); err != nil {
		t.Fatal(err)
	}
	reason, err := gate(t, key).Release(b, words)
	check(t, reason, err, "not a regular file", words)
	if _, err := bundle.Open(dir); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a bundle with a FIFO opened: %v", err)
	}
	if err := errors.Join(os.Remove(sig), os.Symlink("/etc/passwd", sig)); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Open(dir); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a bundle with a link as signature opened: %v", err)
	}
}

func TestImage(t *testing.T) {
	t.Parallel()
	key := signer(t)
	sum := strings.Repeat("ab", 32)
	line := sum + "  node.qcow2\n"
	subject := signature.Subject{Kind: signature.KindImage, Kubernetes: "v1.37.1", Arch: "amd64"}
	good := sign(t, key, line, subject)
	other := subject
	other.Kubernetes = "v1.36.4"
	cases := map[string]struct {
		text, sig string // nothing is written if empty
		words     string
		change    func(t *testing.T, path string)
		want      string
	}{
		"signed":       {text: line, sig: good},
		"no signature": {text: line, want: "has no signature"},
		"in words":     {words: words},
		"no text":      {sig: good, words: words, want: "does not match"},
		"another file's": {
			text: strings.Repeat("cd", 32) + "  node.qcow2\n",
			sig:  sign(t, key, strings.Repeat("cd", 32)+"  node.qcow2\n", subject), want: "is for the file",
		},
		"another version's": {text: line, sig: sign(t, key, line, other), want: "for another thing"},
		"text changed":      {text: sum + "  other.qcow2\n", sig: good, words: words, want: "does not match"},
		"not signed by us":  {text: line, sig: sign(t, signer(t), line, subject), words: words, want: "not trusted"},
		"a link out of there": {
			text: line, words: words,
			change: func(t *testing.T, path string) { t.Helper(); link(t, "/etc/passwd", path+".sha256.minisig") },
			want:   "outside of the allowed",
		},
		"a FIFO": {text: line, words: words, change: func(t *testing.T, path string) {
			t.Helper()
			if err := syscall.Mkfifo(path+".sha256.minisig", 0o600); err != nil {
				t.Fatal(err)
			}
		}, want: "not a regular file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "node.qcow2")
			if c.text != "" {
				write(t, path+".sha256", c.text)
			}
			if c.sig != "" {
				write(t, path+".sha256.minisig", c.sig)
			}
			if c.change != nil {
				c.change(t, path)
			}
			g := gate(t, key)
			g.Images = confine.Dirs{dir}
			reason, err := g.Image(
				model.Image{Source: path, SHA256: sum, Kubernetes: "v1.37.1", Unsigned: c.words}, path,
			)
			check(t, reason, err, c.want, c.words)

			// The same with an imported image, which the director converted.
			if c.change != nil || c.sig == "" && c.text != "" && c.words != "" {
				return
			}
			g.File = func(string) (director.ImageFile, error) {
				return director.ImageFile{
					Origin: director.ImageOrigin{SHA256: sum}, Signed: director.Signed{Text: c.text, Signature: c.sig},
				}, nil
			}
			reason, err = g.Image(
				model.Image{SHA256: strings.Repeat("ef", 32), Kubernetes: "v1.37.1", Unsigned: c.words}, "/nowhere",
			)
			check(t, reason, err, c.want, c.words)
		})
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	key := signer(t)
	sum := strings.Repeat("ab", 32)
	line := sum + "  node.vmdk\n"
	sigOf := func(s signature.Subject) director.Signed {
		return director.Signed{Text: line, Signature: sign(t, key, line, s)}
	}
	image := signature.Subject{Kind: signature.KindImage, Kubernetes: "v1.37.1", Arch: "amd64"}
	cases := map[string]struct {
		request    director.ImageImport
		kubernetes string // of the result
		want       string
	}{
		"signed":          {director.ImageImport{Signed: sigOf(image)}, "v1.37.1", ""},
		"same version":    {director.ImageImport{Signed: sigOf(image), Kubernetes: "v1.37.1"}, "v1.37.1", ""},
		"another version": {director.ImageImport{Signed: sigOf(image), Kubernetes: "v1.36.4"}, "", "for another thing"},
		"another upload": {
			director.ImageImport{Signed: sigOf(image), Upload: strings.Repeat("cd", 32)}, "", "is for the file",
		},
		"a release's": {
			director.ImageImport{
				Signed: sigOf(signature.Subject{
					Kind: signature.KindRelease, Name: "x", Kubernetes: "v1.37.1", Arch: "amd64",
				}),
			},
			"", "for another thing",
		},
		"nothing":         {director.ImageImport{}, "", "has no signature"},
		"text alone":      {director.ImageImport{Signed: director.Signed{Text: line}}, "", "not in minisign's format"},
		"words":           {director.ImageImport{Unsigned: words, Kubernetes: "v1.37.1"}, "v1.37.1", ""},
		"a yes":           {director.ImageImport{Unsigned: "yes"}, "", "is no reason"},
		"words and lines": {director.ImageImport{Unsigned: "made on\nmy own machine"}, "", "is no reason"},
		"both":            {director.ImageImport{Unsigned: words, Signed: sigOf(image)}, "", "there is a signature"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := c.request
			if r.Upload == "" {
				r.Upload = sum
			}
			got, err := gate(t, key).Upload(r)
			if c.want == "" && (err != nil || got.Kubernetes != c.kubernetes) ||
				c.want != "" &&
					(director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// A director that simulates has no gate.
func TestNoGate(t *testing.T) {
	t.Parallel()
	var g *provenance.Gate
	b, err := bundle.Open(signed(t, signer(t)))
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := g.Release(b, "")
	_, err2 := g.Image(model.Image{}, "/nowhere")
	_, err3 := g.Upload(director.ImageImport{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Error(err)
	}
}

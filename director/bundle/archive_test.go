package bundle_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
)

func trustAll(bundle.Release, []byte, []byte) error { return nil }

func packed(t *testing.T, dir string) []byte {
	t.Helper()
	a, err := open(t, dir).Archive()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.NewSectionReader(a, 0, a.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestArchiveAndUnpack(t *testing.T) {
	t.Parallel()
	from := sealed(t)
	write(t, filepath.Join(from, bundle.SignatureName), "a signature", 0o644)
	a, err := open(t, from).Archive()
	if err != nil {
		t.Fatal(err)
	}
	text := packed(t, from)
	if err := iotest.TestReader(io.NewSectionReader(a, 0, a.Size()), text); err != nil {
		t.Errorf("reading in pieces: %v", err)
	}
	to, asked := t.TempDir(), ""
	b, err := bundle.Unpack(t.Context(), bytes.NewReader(text), to, func(r bundle.Release, _, sig []byte) error {
		asked = r.Name + ", " + string(sig)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked != "k8s-1.37.1, a signature" {
		t.Errorf("trust was asked about %q", asked)
	}
	if diff := cmp.Diff(open(t, from).Release(), b.Release()); diff != "" {
		t.Errorf("release (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(names(t, text), names(t, packed(t, to))); diff != "" {
		t.Errorf("files of the archive of what was unpacked (-want +got):\n%s", diff)
	}
	if !bytes.Equal(packed(t, to), text) {
		t.Error("the archive of what was unpacked is another one")
	}
}

func names(t *testing.T, archive []byte) (out []string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for h, err := r.Next(); !errors.Is(err, io.EOF); h, err = r.Next() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %04o %d", h.Name, h.Mode, h.Size))
	}
	return out
}

// entry is a file of an archive that was made by hand.
type entry struct {
	name string
	text string
	kind byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}
		if e.kind != tar.TypeReg {
			h.Linkname, h.Size, e.text = e.text, 0, ""
		}
		_, err := w.Write(nil)
		if err = errors.Join(err, w.WriteHeader(h)); err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	dir := sealed(t)
	whole := packed(t, dir)
	document, err := os.ReadFile(filepath.Join(dir, bundle.DocumentName))
	if err != nil {
		t.Fatal(err)
	}
	head := entry{bundle.DocumentName, string(document), tar.TypeReg}
	kubelet := entry{"bin/kubelet", "a kubelet", tar.TypeReg}
	for name, tt := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":          {nil, "does not begin with release.yaml"},
		"another file":     {tarOf(t, kubelet), "does not begin with release.yaml"},
		"no tar":           {bytes.Repeat([]byte("x"), 4096), "does not begin with release.yaml"},
		"document is link": {tarOf(t, entry{bundle.DocumentName, "/etc/passwd", tar.TypeSymlink}), "is not a file"},
		"document is none": {tarOf(t, entry{bundle.DocumentName, "a: [", tar.TypeReg}), "is not valid"},
		"long signature": {
			tarOf(t, head, entry{bundle.SignatureName, strings.Repeat("x", 5000), tar.TypeReg}), "at most 4096 bytes",
		},
		"path leads out": {tarOf(t, head, entry{"../../etc/cron.d/x", "x", tar.TypeReg}), "is not listed"},
		"absolute path":  {tarOf(t, head, entry{"/etc/cron.d/x", "x", tar.TypeReg}), "is not listed"},
		"in the layout":  {tarOf(t, head, entry{"images/blobs/sha256/../../x", "x", tar.TypeReg}), "is not listed"},
		"link":           {tarOf(t, head, entry{"bin/kubelet", "/etc/passwd", tar.TypeSymlink}), "not a regular file"},
		"hard link":      {tarOf(t, head, entry{"bin/kubelet", "/etc/passwd", tar.TypeLink}), "not a regular file"},
		"device":         {tarOf(t, head, entry{"bin/kubelet", "", tar.TypeBlock}), "not a regular file"},
		"twice":          {tarOf(t, head, kubelet, kubelet), "is in the archive twice"},
		"document again": {tarOf(t, head, kubelet, head), "is in the archive twice"},
		"other size":     {tarOf(t, head, entry{"bin/kubelet", "another", tar.TypeReg}), "has 7 bytes in the archive"},
		"other contents": {tarOf(t, head, entry{"bin/kubelet", "a kubeleT", tar.TypeReg}), "has other contents"},
		"other blob": {
			tarOf(t, head, entry{"images/blobs/sha256/" + strings.Repeat("0", 64), "x", tar.TypeReg}),
			"has other contents",
		},
		"large index": {
			tarOf(t, head, entry{"images/index.json", strings.Repeat("x", 65<<20), tar.TypeReg}),
			"larger than",
		},
		"files missing":   {tarOf(t, head), "is not an OCI image layout"},
		"cut in a file":   {whole[:len(whole)/2], ""},
		"cut in a header": {whole[:1024+100], ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Unpack(t.Context(), bytes.NewReader(tt.archive), t.TempDir(), trustAll)
			if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want invalid with %q", err, tt.want)
			}
		})
	}
}

func TestUnpackAsksBeforeItWrites(t *testing.T) {
	t.Parallel()
	to, no := t.TempDir(), errors.New("no")
	_, err := bundle.Unpack(t.Context(), bytes.NewReader(packed(t, sealed(t))), to,
		func(bundle.Release, []byte, []byte) error { return no })
	if !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(to); len(left) > 0 {
		t.Errorf("it wrote %v", left)
	}
}

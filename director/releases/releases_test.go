package releases_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/releases"
	"github.com/director-kaas/kaas/director/releasestore"
	"github.com/director-kaas/kaas/director/scratch"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/snapshot"
)

// site is the service on real stores, with one trusted key.
type site struct {
	*releases.Service
	lab     *servicetest.Lab
	dir     string
	uploads *imagestore.Store
	files   *releasestore.Store
	key     signature.Signer
}

func open(t *testing.T) *site {
	t.Helper()
	s := &site{lab: servicetest.Open(t, 0, 0), dir: t.TempDir()}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if s.key, err = signature.Generate(); err != nil {
		t.Fatal(err)
	}
	keys, problems := signature.ReadKeys("trustedKeys", []string{s.key.Public()})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s.uploads, err = imagestore.Open(imagestore.Config{Dir: filepath.Join(s.dir, "images"), Log: quiet, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.files, err = releasestore.Open(releasestore.Config{
		Dir: filepath.Join(s.dir, "releases"), Log: quiet, Reserve: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.files.Close(context.Background()) })
	gate := &provenance.Gate{Keys: keys}
	s.Service = releases.New(releases.Config{
		Store: s.lab.Store, Uploads: s.uploads, Files: s.files, Gate: gate,
		Places: snapshot.Bundles{Imported: s.files.Path, Gate: gate}, Now: time.Now,
	})
	return s
}

// bundle makes a release bundle, signed or not.
func (s *site) bundle(t *testing.T, signed bool) *bundle.Bundle {
	t.Helper()
	dir, err := simulate.Bundle(t.Context(), t.TempDir(), "k8s-1.37.1", "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !signed {
		return b
	}
	sig, err := s.key.Sign(b.Text(), signature.Subject{
		Kind: signature.KindRelease, Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, bundle.SignatureName), sig, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func packed(t *testing.T, b *bundle.Bundle) []byte {
	t.Helper()
	a, err := b.Archive()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.NewSectionReader(a, 0, a.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// upload sends the archive and returns the id of the upload.
func (s *site) upload(t *testing.T, archive []byte) string {
	t.Helper()
	sum := sha256.Sum256(archive)
	id := hex.EncodeToString(sum[:])
	_, err := s.uploads.Begin(t.Context(), director.ImageRequest{SHA256: id, Size: int64(len(archive)), Release: true})
	if err == nil {
		_, err = s.uploads.Write(t.Context(), id, 0, bytes.NewReader(archive))
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// imports runs an import to its end.
func (s *site) imports(t *testing.T, id, words string) (director.ReleaseFile, error) {
	t.Helper()
	j, err := s.Import(t.Context(), director.ReleaseImport{Upload: id, Unsigned: words, By: "ann"})
	for err == nil && !j.Ended() {
		j, err = s.Job(t.Context(), j.ID)
	}
	if err == nil {
		err = j.Err
	}
	if err != nil {
		return director.ReleaseFile{}, err
	}
	return *j.Result, nil
}

func TestImportSigned(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := s.bundle(t, true)
	id := s.upload(t, packed(t, b))
	f, err := s.imports(t, id, "")
	if err != nil {
		t.Fatal(err)
	}
	want := director.ReleaseFile{
		Digest: b.Digest(), Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
		Components: b.Release().Components, Images: len(b.Images()), Size: f.Size, Upload: id, At: f.At, By: "ann",
	}
	if diff := cmp.Diff(want, f); diff != "" || f.Size == 0 {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if _, err := s.uploads.Upload(id); director.KindOf(err) != director.KindNotFound {
		t.Errorf("the upload stays: %v", err)
	}
	if again, err := s.imports(t, id, ""); err != nil || again.Digest != f.Digest {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	views, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := views[len(views)-1]
	if last.Digest != b.Digest() || last.SignedBy == "" || last.Refused != "" || last.File == nil {
		t.Errorf("list: %+v", last)
	}
	if _, err := s.Verify(t.Context(), f.Digest); err != nil {
		t.Errorf("verify: %v", err)
	}
	damage(t, filepath.Join(s.files.Path(f.Digest), "images"))
	_, err = s.Verify(t.Context(), f.Digest)
	servicetest.WantKind(t, err, director.KindInvalid, "damaged or was changed")
}

// damage changes the contents of every blob of the layout.
func damage(t *testing.T, layout string) {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(layout, "blobs", "sha256", "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatal(blobs, err)
	}
	for _, name := range blobs {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("x")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportUnsigned(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.upload(t, packed(t, s.bundle(t, false)))
	_, err := s.imports(t, id, "")
	servicetest.WantKind(t, err, director.KindInvalid, "has no signature")
	if u, err := s.uploads.Upload(id); err != nil || u.Offset != u.Size {
		t.Errorf("the archive has to be sent again: %+v, %v", u, err)
	}
	if _, err := s.imports(t, id, "made by a test"); err != nil {
		t.Fatal(err)
	}
	// Signed later: the bundle is the same, and has the signature now.
	id = s.upload(t, packed(t, s.bundle(t, true)))
	f, err := s.imports(t, id, "")
	if err != nil {
		t.Fatal(err)
	}
	views, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := views[len(views)-1]; last.Digest != f.Digest || last.SignedBy == "" || last.Unsigned != "" {
		t.Errorf("list: %+v", last)
	}
}

// A bundle for another CPU is refused before it is unpacked, whatever its signature.
func TestImportForAnotherCPU(t *testing.T) {
	t.Parallel()
	s := open(t)
	archive := packed(t, s.bundle(t, true))
	other := bytes.Replace(archive, []byte("arch: amd64"), []byte("arch: arm64"), 1)
	if bytes.Equal(archive, other) {
		t.Fatal("the archive does not say for which CPU it is")
	}
	id := s.upload(t, other)
	_, err := s.imports(t, id, "made by a test")
	servicetest.WantKind(t, err, director.KindInvalid, "spec.arch", "amd64")
	if _, err := s.uploads.Upload(id); director.KindOf(err) != director.KindNotFound {
		t.Errorf("the wrong archive stays: %v", err)
	}
}

func TestImportDamaged(t *testing.T) {
	t.Parallel()
	s := open(t)
	archive := packed(t, s.bundle(t, true))
	archive[len(archive)-2000] ^= 1
	id := s.upload(t, archive)
	_, err := s.imports(t, id, "")
	servicetest.WantKind(t, err, director.KindInvalid)
	if _, err := s.uploads.Upload(id); director.KindOf(err) != director.KindNotFound {
		t.Errorf("the wrong archive stays: %v", err)
	}
	files, err := s.files.Files()
	if err != nil || len(files) > 0 {
		t.Errorf("there are %v, %v", files, err)
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "releases", "tmp", "alone"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestImportOfAnImage(t *testing.T) {
	t.Parallel()
	s := open(t)
	text := bytes.Repeat([]byte{0}, 600)
	sum := sha256.Sum256(text)
	id := hex.EncodeToString(sum[:])
	_, err := s.uploads.Begin(t.Context(), director.ImageRequest{SHA256: id, Size: 600})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.imports(t, id, "")
	servicetest.WantKind(t, err, director.KindInvalid, "is an image")
	_, err = s.uploads.Begin(t.Context(), director.ImageRequest{SHA256: id, Size: 600, Release: true})
	servicetest.WantKind(t, err, director.KindConflict, "being uploaded as an image")
}

func TestDeleteAndPrune(t *testing.T) {
	t.Parallel()
	s := open(t)
	f, err := s.imports(t, s.upload(t, packed(t, s.bundle(t, true))), "")
	if err != nil {
		t.Fatal(err)
	}
	s.lab.Put(t, "apiVersion: kaas/v1\nkind: Release\nmetadata: {name: stable}\nspec: {digest: "+f.Digest+
		", kubernetes: v1.37.1}\n")
	servicetest.WantKind(t, s.Delete(t.Context(), "ann", f.Digest), director.KindConflict, "Release/stable names it")
	later := time.Now().Add(time.Hour)
	if left, err := s.Prune(t.Context(), "ann", later, false); err != nil || len(left) > 0 {
		t.Errorf("pruned what is named: %v, %v", left, err)
	}
	s.lab.Put(t, "apiVersion: kaas/v1\nkind: Release\nmetadata: {name: stable}\nspec: {bundle: /nowhere, "+
		"kubernetes: v1.37.1}\n")
	left, err := s.Prune(t.Context(), "ann", later, true)
	if diff := cmp.Diff([]director.ReleaseLeft{{Digest: f.Digest, Name: f.Name, Size: f.Size}}, left); diff != "" ||
		err != nil {
		t.Errorf("dry run (-want +got):\n%s%v", diff, err)
	}
	if err := s.Delete(t.Context(), "ann", f.Digest); err != nil {
		t.Fatal(err)
	}
	if _, err := s.files.File(f.Digest); director.KindOf(err) != director.KindNotFound {
		t.Errorf("it is there: %v", err)
	}
	if err := s.Delete(t.Context(), "ann", f.Digest); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestWhatADeadProcessLeaves(t *testing.T) {
	t.Parallel()
	s := open(t)
	f, err := s.imports(t, s.upload(t, packed(t, s.bundle(t, true))), "")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.dir, "releases")
	if err := os.MkdirAll(filepath.Join(dir, "tmp", "import-1", "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.files.Path(f.Digest), filepath.Join(dir, "tmp", f.Digest)); err != nil { // a deletion, cut
		t.Fatal(err)
	}
	later := func() time.Time { return time.Now().Add(2 * scratch.Life) }
	_, err = releasestore.Open(releasestore.Config{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: later})
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	records, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(left)+len(records) > 0 {
		t.Errorf("left behind: %v %v, %v", left, records, err)
	}
}

// TestDirectorsShareAStore has two directors on one directory: one that was idle for long while the other one started,
// and one that died in the middle of an import.
func TestDirectorsShareAStore(t *testing.T) {
	t.Parallel()
	s := open(t)
	releasesDir, imagesDir := filepath.Join(s.dir, "releases"), filepath.Join(s.dir, "images")
	quiet, long := slog.New(slog.DiscardHandler), time.Now().Add(-2*scratch.Life)
	dead := func() string {
		t.Helper()
		half := filepath.Join(releasesDir, "tmp", "dead", "import-1")
		err := os.MkdirAll(half, 0o700)
		for _, dir := range []string{half, filepath.Dir(half)} {
			err = errors.Join(err, os.Chtimes(dir, long, long))
		}
		if err != nil {
			t.Fatal(err)
		}
		return half
	}
	for _, dir := range []string{releasesDir, imagesDir} {
		if err := os.Chtimes(filepath.Join(dir, "tmp", "alone"), long, long); err != nil {
			t.Fatal(err)
		}
	}
	second, err := releasestore.Open(releasestore.Config{Dir: releasesDir, Owner: "second", Log: quiet, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close(context.Background()) })
	_, err = imagestore.Open(imagestore.Config{Dir: imagesDir, Owner: "second", Log: quiet, Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}

	half, id := dead(), s.upload(t, packed(t, s.bundle(t, true)))
	f, err := s.imports(t, id, "")
	if err != nil {
		t.Fatalf("the director that was idle imports nothing any more: %v", err)
	}
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a dead director left stays: %v", err)
	}
	if got, err := second.File(f.Digest); err != nil || got.Name != f.Name {
		t.Errorf("the other director sees %+v, %v", got, err)
	}

	// While one director works on the bundle, another one neither deletes nor imports it.
	release, err := scratch.Hold(releasesDir, f.Digest)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.WantKind(t, second.Delete(f.Digest), director.KindConflict, "another director works on this release")
	id = s.upload(t, packed(t, s.bundle(t, false)))
	_, err = s.imports(t, id, "made by a test")
	servicetest.WantKind(t, err, director.KindConflict, "another director works on this release")
	release()
	if _, err := s.imports(t, id, "made by a test"); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := errors.Join(second.Delete(f.Digest), second.Delete(f.Digest)); err != nil {
		t.Error(err)
	}
	if files, err := s.files.Files(); err != nil || len(files) > 0 {
		t.Errorf("after the other director deleted it: %+v, %v", files, err)
	}
}

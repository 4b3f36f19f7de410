package imagestore_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/imagestore"
)

// A file whose checksum nobody has computed gets it from the director when all has arrived: as its id.
func TestUploadWithoutChecksum(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.1"), "qcow2")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := diskimagetest.SHA256(t, path)
	begin := func() imagestore.Upload {
		t.Helper()
		u, err := b.store.Begin(t.Context(), imagestore.Request{Name: "node.qcow2", Size: int64(len(text)), By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u := begin()
	if !u.Unchecked || u.ID == sum || u.Offset != 0 {
		t.Fatalf("got %+v", u)
	}
	half := len(text) / 2
	if u, err = b.store.Write(t.Context(), u.ID, 0, bytes.NewReader(text[:half])); err != nil || !u.Unchecked {
		t.Fatalf("got %+v, %v", u, err)
	}
	old := u.ID
	_, err = b.store.Import(t.Context(), imagestore.Import{Upload: old, Kubernetes: "v1.37.1"})
	b.fails(err, director.KindConflict, "have arrived")
	_, err = b.store.Begin(t.Context(), imagestore.Request{SHA256: old, Size: int64(len(text))})
	b.fails(err, director.KindConflict, "and not a checksum")
	b.open(imagestore.Config{}) // the director is started again
	u, err = b.store.Write(t.Context(), old, int64(half), bytes.NewReader(text[half:]))
	if err != nil || u.Unchecked || u.ID != sum || u.Offset != int64(len(text)) {
		t.Fatalf("got %+v, %v", u, err)
	}
	// Who did not hear of it finds it all the same.
	if again, err := b.store.Upload(old); err != nil || again != u {
		t.Errorf("got %+v, %v", again, err)
	}
	// The same file once more, from someone else.
	twin := begin()
	if twin, err = b.store.Write(t.Context(), twin.ID, 0, bytes.NewReader(text)); err != nil || twin.ID != sum {
		t.Fatalf("got %+v, %v", twin, err)
	}
	j := b.imported(imagestore.Import{Upload: sum, Kubernetes: "v1.37.1", By: "ann"})
	if j.Err != nil || j.Result == nil || j.Result.Origin.SHA256 != sum {
		t.Errorf("got %+v", j)
	}
}

// A director that died between the move and the record, or before the checksum, is helped by an empty piece.
func TestUploadIdentifiedAfterCrash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.1"), "qcow2")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := diskimagetest.SHA256(t, path)
	u, err := b.store.Begin(t.Context(), imagestore.Request{Name: "node.qcow2", Size: int64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{u.ID, sum} { // where the crash may leave it
		dir := filepath.Join(b.dir, "uploads", id)
		if id == sum {
			t.Logf("as if it died in the move")
			if err := os.Rename(filepath.Join(b.dir, "uploads", u.ID), dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "data"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = b.store.Import(t.Context(), imagestore.Import{Upload: id, Kubernetes: "v1.37.1"})
		b.fails(err, director.KindConflict, "is not computed yet")
	}
	got, err := b.store.Write(t.Context(), sum, int64(len(text)), bytes.NewReader(nil))
	if err != nil || got.ID != sum || got.Unchecked {
		t.Errorf("got %+v, %v", got, err)
	}
}

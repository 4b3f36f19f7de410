package imagestore_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/imagestore"
)

const mib = 1 << 20

// disk pretends that the store's directory is on a disk of that size, which also holds others' bytes.
func (b *bundle) disk(size int64, others *atomic.Int64) func(string) (int64, error) {
	return func(dir string) (int64, error) {
		used := others.Load()
		err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil
			}
			if info, err := e.Info(); err == nil {
				used += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		return size - used, err
	}
}

func request(i int, size int64) imagestore.Request {
	return imagestore.Request{SHA256: fmt.Sprintf("%064x", i), Size: size, By: "ann"}
}

// Uploads that begin at once cannot promise the same room twice.
func TestUploadsReserveTheirRoom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var others atomic.Int64
	b.open(imagestore.Config{Free: b.disk(40*mib, &others)})
	var wait sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wait.Go(func() { _, errs[i] = b.store.Begin(t.Context(), request(i, 9*mib)) })
	}
	wait.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else {
			b.fails(err, director.KindExhausted, "has room for")
		}
	}
	if taken != 4 {
		t.Errorf("%d uploads of 9 MiB have room on 40 MiB", taken)
	}
	// A restart knows them, and who gives one up makes room.
	b.open(imagestore.Config{Free: b.disk(40*mib, &others)})
	_, err := b.store.Begin(t.Context(), request(99, 9*mib))
	b.fails(err, director.KindExhausted, "has room for")
	for i, err := range errs {
		if err == nil {
			if err := b.store.Abort(t.Context(), request(i, 0).SHA256); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := b.store.Begin(t.Context(), request(99, 9*mib)); err != nil {
		t.Error(err)
	}
}

func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open(imagestore.Config{Uploads: 3, UploadBytes: 10 * mib})
	for i := range 3 {
		for range 2 { // one that is asked for again counts once
			if _, err := b.store.Begin(t.Context(), request(i, 3*mib)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := b.store.Begin(t.Context(), request(3, mib))
	b.fails(err, director.KindExhausted, "3 uploads are open, and 3 are allowed")
	if err := b.store.Abort(t.Context(), request(0, 0).SHA256); err != nil {
		t.Fatal(err)
	}
	_, err = b.store.Begin(t.Context(), request(3, 5*mib))
	b.fails(err, director.KindExhausted, "11 MiB together, and 10 MiB are allowed")
	if _, err := b.store.Begin(t.Context(), request(3, 4*mib)); err != nil {
		t.Error(err)
	}
}

// during does something while an upload is read.
type during struct {
	io.Reader
	once func()
}

// Read calls once before the first byte.
func (d *during) Read(p []byte) (int, error) {
	if d.once != nil {
		d.once()
		d.once = nil
	}
	return d.Reader.Read(p)
}

// An upload stops before it takes the reserve, also if others fill the disk meanwhile, and continues when there is
// room.
func TestUploadsLeaveTheReserve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var others atomic.Int64
	b.open(imagestore.Config{Free: b.disk(100*mib, &others)})
	u, err := b.store.Begin(t.Context(), request(1, 40*mib))
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(b.dir, "uploads", u.ID, "data")
	if err := syscall.Truncate(data, 0); err != nil { // the place is given back
		t.Fatal(err)
	}
	text, err := os.ReadFile(diskimagetest.Node(t, "v1.37.2"))
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, make([]byte, 40*mib)...)[:40*mib]
	got, err := b.store.Write(t.Context(), u.ID, 0, &during{
		Reader: bytes.NewReader(text), once: func() { others.Store(90 * mib) },
	})
	b.fails(err, director.KindExhausted, "the rest is for its database")
	if got.Offset > 16*mib {
		t.Errorf("%d bytes were written on a disk that is full", got.Offset)
	}
	others.Store(0)
	if got, err = b.store.Write(
		t.Context(), u.ID, got.Offset, bytes.NewReader(text[got.Offset:]),
	); err != nil || got.Offset != 40*mib {
		t.Errorf("with room again, %d bytes: %v", got.Offset, err)
	}
}

package imagestore_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/imagestore"
)

type bundle struct {
	*testing.T
	dir   string
	store *imagestore.Store
	now   time.Time
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{T: t, dir: filepath.Join(t.TempDir(), "images"), now: time.Now()}
	b.open(imagestore.Config{})
	return b
}

func (b *bundle) open(c imagestore.Config) {
	b.Helper()
	c.Dir, c.Log, c.Reserve = b.dir, slog.New(slog.NewTextHandler(b.Output(), nil)), 1
	c.Now = func() time.Time { return b.now }
	s, err := imagestore.Open(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(b.Context()) })
	b.store = s
}

// begin begins the upload of a file under its name.
func (b *bundle) begin(path string) (imagestore.Upload, []byte) {
	b.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	u, err := b.store.Begin(b.Context(), imagestore.Request{
		SHA256: diskimagetest.SHA256(b, path), Name: filepath.Base(path), Size: int64(len(text)), By: "ann",
	})
	if err != nil {
		b.Fatal(err)
	}
	return u, text
}

func (b *bundle) sent(path string) string {
	b.Helper()
	u, text := b.begin(path)
	if _, err := b.store.Write(b.Context(), u.ID, 0, bytes.NewReader(text)); err != nil {
		b.Fatal(err)
	}
	return u.ID
}

// ends waits for the end of a job.
func (b *bundle) ends(j imagestore.Job, err error) imagestore.Job {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for err == nil && !j.Ended() {
		select {
		case <-tick.C:
		case <-b.Context().Done():
			b.Fatal("the job does not end")
		}
		j, err = b.store.Job(j.ID)
	}
	if err != nil {
		b.Fatal(err)
	}
	return j
}

func (b *bundle) imported(r imagestore.Import) imagestore.Job {
	b.Helper()
	return b.ends(b.store.Import(b.Context(), r))
}

func (b *bundle) fails(err error, kind director.Kind, want string) {
	b.Helper()
	if err == nil || director.KindOf(err) != kind || !strings.Contains(err.Error(), want) {
		b.Errorf("got %v (%s), want %q (%s)", err, director.KindOf(err), want, kind)
	}
}

// tree lists what lies in the store, without its empty directories.
func (b *bundle) tree() []string {
	b.Helper()
	var out []string
	err := filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(b.dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// empty fails the test if the store keeps anything.
func (b *bundle) empty() {
	b.Helper()
	if got := b.tree(); len(got) != 0 {
		b.Errorf("left behind: %v", got)
	}
}

func TestImportKeepsAQcow2AsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.2"), "qcow2")
	id := b.sent(path)
	j := b.imported(imagestore.Import{Upload: id, By: "ann"})
	if j.Err != nil {
		t.Fatal(j.Err)
	}
	want := imagestore.File{
		SHA256: id, Size: j.Result.Size, Virtual: 1 << 30, Compat: "1.1", Kubernetes: "v1.37.2", Arch: "amd64",
		At: b.now.UTC(), By: "ann",
		Origin: imagestore.Origin{Name: "disk.qcow2", Format: "qcow2 (compat 1.1)", SHA256: id, Size: j.Result.Size},
	}
	if d := cmp.Diff(want, *j.Result); d != "" {
		t.Error(d)
	}
	if got := diskimagetest.SHA256(t, b.store.Path(id)); got != id {
		t.Errorf("the file has %s", got)
	}
	if d := cmp.Diff([]string{id + ".json", id + ".qcow2"}, b.tree()); d != "" {
		t.Error(d)
	}
	// The same again finds it, also after a restart.
	b.open(imagestore.Config{})
	if again := b.imported(imagestore.Import{Upload: id}); again.Err != nil || again.Result.SHA256 != id {
		t.Errorf("got %+v", again)
	}
	files, err := b.store.Files()
	if err != nil || len(files) != 1 {
		t.Errorf("got %v %v", files, err)
	}
	for range 2 {
		if err := b.store.Delete(id); err != nil {
			t.Error(err)
		}
	}
	b.empty()
}

func TestImportConverts(t *testing.T) {
	t.Parallel()
	disk := diskimagetest.Node(t, "v1.37.2")
	tests := map[string]struct {
		path, compat, want string
	}{
		"qcow2 to old":   {diskimagetest.Convert(t, disk, "qcow2"), "0.10", "0.10"},
		"old stays":      {diskimagetest.Convert(t, disk, "qcow2", "-o", "compat=0.10"), "", "0.10"},
		"VMDK":           {diskimagetest.Convert(t, disk, "vmdk", "-o", "subformat=streamOptimized"), "", "1.1"},
		"VMDK to old":    {diskimagetest.Convert(t, disk, "vmdk"), "0.10", "0.10"},
		"OVA":            {diskimagetest.NodeOVA(t, disk), "", "1.1"},
		"OVA, no sparse": {diskimagetest.NodeOVA(t, disk), "0.10", "0.10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id := b.sent(test.path)
			j := b.imported(imagestore.Import{Upload: id, Compat: test.compat})
			if j.Err != nil {
				t.Fatal(j.Err)
			}
			if f := j.Result; f.Compat != test.want || f.Kubernetes != "v1.37.2" || f.Told || f.Virtual != 1<<30 ||
				f.Origin.SHA256 != id {
				t.Errorf("got %+v", f)
			}
			if got := diskimagetest.SHA256(t, b.store.Path(j.Result.SHA256)); got != j.Result.SHA256 {
				t.Errorf("the file has %s and not %s", got, j.Result.SHA256)
			}
			info, err := diskimage.InspectFile(t.Context(), b.store.Path(j.Result.SHA256))
			if err != nil || info.Variant != test.want {
				t.Errorf("got %v, %v", info, err)
			}
			if got := b.tree(); len(got) != 2 {
				t.Errorf("left behind: %v", got)
			}
			other := map[string]string{"1.1": "0.10", "0.10": "1.1"}[test.want]
			c := b.ends(b.store.ConvertFile(t.Context(), j.Result.SHA256, other, "ann"))
			if c.Err != nil || c.Result.Compat != other || c.Result.Kubernetes != "v1.37.2" ||
				c.Result.SHA256 == j.Result.SHA256 {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// broken gives some bytes and then fails as a connection does.
type broken struct{ r io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestUploadGoesOnAfterACut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.2"), "qcow2")
	u, text := b.begin(path)
	half := len(text) / 2
	got, err := b.store.Write(t.Context(), u.ID, 0, broken{bytes.NewReader(text[:half])})
	b.fails(err, director.KindUnavailable, "broke off")
	if got.Offset != int64(half) {
		t.Fatalf("%d bytes have arrived of %d", got.Offset, half)
	}
	_, err = b.store.Write(t.Context(), u.ID, 0, bytes.NewReader(text))
	b.fails(err, director.KindConflict, "bytes have arrived, and this begins at 0")
	_, err = b.store.Import(t.Context(), imagestore.Import{Upload: u.ID})
	b.fails(err, director.KindConflict, "have arrived")
	b.open(imagestore.Config{}) // the director was started again
	if u, _ = b.begin(path); u.Offset != int64(half) {
		t.Fatalf("the upload is at %d, and was at %d", u.Offset, half)
	}
	if _, err := b.store.Write(t.Context(), u.ID, u.Offset, bytes.NewReader(text[half:])); err != nil {
		t.Fatal(err)
	}
	if j := b.imported(imagestore.Import{Upload: u.ID}); j.Err != nil || j.Result.SHA256 != u.ID {
		t.Errorf("got %+v", j)
	}
}

func TestUploadRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	node := diskimagetest.Node(t, "v1.37.2")
	good := diskimagetest.Convert(t, node, "qcow2")
	write := func(text []byte) string {
		path := filepath.Join(t.TempDir(), "image.qcow2")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("another format", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		u, text := b.begin(write(bytes.Repeat([]byte("<html>"), 1<<16)))
		_, err := b.store.Write(t.Context(), u.ID, 0, bytes.NewReader(text[:100<<10]))
		b.fails(err, director.KindInvalid, "is not a disk image of a known format")
		b.empty()
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		j := b.imported(imagestore.Import{Upload: b.sent(write(whole[:len(whole)/2]))})
		b.fails(j.Err, director.KindInvalid, "is cut off or damaged")
		b.empty()
	})
	t.Run("for another CPU", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		arm := diskimagetest.Disk(t, diskimagetest.RootARM64, nil)
		j := b.imported(imagestore.Import{
			Upload: b.sent(diskimagetest.Convert(t, arm, "qcow2")), Kubernetes: "v1.37.2",
		})
		b.fails(j.Err, director.KindInvalid, "is for arm64")
		b.empty()
	})
	t.Run("other bytes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		u, text := b.begin(good)
		text[len(text)-1] ^= 1
		if _, err := b.store.Write(t.Context(), u.ID, 0, bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		j := b.imported(imagestore.Import{Upload: u.ID})
		b.fails(j.Err, director.KindInvalid, "has the SHA-256")
		b.empty()
	})
	t.Run("more than was said", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		u, text := b.begin(good)
		_, err := b.store.Write(t.Context(), u.ID, 0, bytes.NewReader(append(text, 1)))
		b.fails(err, director.KindInvalid, "more than the")
		b.empty()
	})
	t.Run("no Kubernetes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id := b.sent(diskimagetest.Convert(t, diskimagetest.Disk(t, diskimagetest.RootAny, nil), "qcow2"))
		j := b.imported(imagestore.Import{Upload: id})
		b.fails(j.Err, director.KindInvalid, "does not say which Kubernetes it carries")
		j = b.imported(imagestore.Import{Upload: id, Kubernetes: "v1.36.4"}) // and it need not be sent again
		if j.Err != nil || !j.Result.Told || j.Result.Kubernetes != "v1.36.4" {
			t.Errorf("got %+v", j)
		}
	})
	t.Run("another Kubernetes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		j := b.imported(imagestore.Import{Upload: b.sent(good), Kubernetes: "v1.36.4"})
		b.fails(j.Err, director.KindInvalid, "carries Kubernetes v1.37.2, and not v1.36.4")
	})
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sum := strings.Repeat("a", 64)
	_, err := b.store.Begin(t.Context(), imagestore.Request{SHA256: "x", Size: 1, Compat: "2"})
	b.fails(err, director.KindInvalid, "sha256: is not 64")
	b.fails(err, director.KindInvalid, "size: 1 bytes")
	b.fails(err, director.KindInvalid, "compat")
	_, err = b.store.Begin(t.Context(), imagestore.Request{SHA256: sum, Size: 1 << 42})
	b.fails(err, director.KindExhausted, "has room for")
	for _, id := range []string{"../../etc", sum, ""} {
		_, err := b.store.Upload(id)
		b.fails(err, director.KindNotFound, "there is no upload")
		_, err = b.store.File(id)
		b.fails(err, director.KindNotFound, "no imported image")
		_, err = b.store.Import(t.Context(), imagestore.Import{Upload: id})
		b.fails(err, director.KindNotFound, "there is no upload")
		_, err = b.store.ConvertFile(t.Context(), id, "0.10", "")
		b.fails(err, director.KindNotFound, "no imported image")
		if err := errors.Join(b.store.Abort(t.Context(), id), b.store.Delete(id)); err != nil {
			t.Error(err)
		}
	}
	_, err = b.store.Job("x")
	b.fails(err, director.KindNotFound, "no such job")
	b.open(imagestore.Config{Convert: diskimage.Converter{QemuImg: "not-there"}})
	_, err = b.store.Begin(t.Context(), imagestore.Request{SHA256: sum, Size: 1 << 20, Format: "vmdk"})
	b.fails(err, director.KindUnavailable, "not-there is missing")
	if _, err = b.store.Begin(t.Context(), imagestore.Request{
		SHA256: sum, Size: 1 << 20, Format: "qcow2",
	}); err != nil {
		t.Error(err)
	}
	_, err = b.store.Begin(t.Context(), imagestore.Request{SHA256: sum, Size: 1 << 21, Format: "qcow2"})
	b.fails(err, director.KindConflict, "it has 1048576 bytes and not 2097152")
	// What nobody continues with is thrown away.
	b.now = b.now.Add(48 * time.Hour)
	b.open(imagestore.Config{})
	b.empty()
}

func TestOpenTidiesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sum := strings.Repeat("b", 64)
	for name, text := range map[string]string{"tmp/other/image.qcow2": "half", sum + ".json": "{}"} {
		path := filepath.Join(b.dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	b.open(imagestore.Config{})
	for _, name := range []string{"tmp/other/image.qcow2", sum + ".json"} { // another director may be at work
		if _, err := os.Stat(filepath.Join(b.dir, name)); err != nil {
			t.Error(err)
		}
	}
	b.now = b.now.Add(48 * time.Hour)
	b.open(imagestore.Config{})
	b.empty()
}

func TestTwoDirectorsOnOneDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sum := strings.Repeat("c", 64)
	if _, err := b.store.Begin(t.Context(), imagestore.Request{SHA256: sum, Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		_, err := b.store.Write(t.Context(), sum, 0, from)
		sent <- err
	}()
	if _, err := to.Write(make([]byte, 512)); err != nil { // the upload is held from here on
		t.Fatal(err)
	}
	first := b.store
	b.open(imagestore.Config{Owner: "second"})
	_, err := b.store.Write(t.Context(), sum, 0, strings.NewReader("x"))
	b.fails(err, director.KindConflict, "another request works on this upload")
	b.fails(b.store.Abort(t.Context(), sum), director.KindConflict, "another request works on this upload")
	if err := to.CloseWithError(io.ErrUnexpectedEOF); err != nil {
		t.Fatal(err)
	}
	b.fails(<-sent, director.KindUnavailable, "broke off")
	if u, err := b.store.Upload(sum); err != nil || u.Offset != 512 {
		t.Errorf("the second director sees %+v, %v; want what the first one has taken", u, err)
	}
	if err := errors.Join(b.store.Abort(t.Context(), sum), first.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

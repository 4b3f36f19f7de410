package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/seal"
)

// snapshot is like one of etcd: pages, and their digest at the end.
func snapshot(pages int) []byte {
	database := bytes.Repeat([]byte("0123456789abcdef"), pages*databasePage/16)
	digest := sha256.Sum256(database)
	return append(database, digest[:]...)
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func encoded(t *testing.T, content []byte, to ...age.Recipient) ([]byte, Sums, Sums) {
	t.Helper()
	var out bytes.Buffer
	inner, outer, err := Encode(&out, to, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), inner, outer
}

func TestArchiveOpensForEveryRecipient(t *testing.T) {
	t.Parallel()
	own, other := identity(t), identity(t)
	content := snapshot(5000)
	archive, inner, outer := encoded(t, content, own.Recipient(), other.Recipient())
	if len(archive) > len(content)/4 {
		t.Errorf("%d bytes became %d", len(content), len(archive))
	}
	for _, key := range []age.Identity{own, other} {
		var out bytes.Buffer
		gotInner, gotOuter, err := Decode(t.Context(), &out, bytes.NewReader(archive), key)
		if err != nil || !bytes.Equal(out.Bytes(), content) || gotInner != inner || gotOuter != outer {
			t.Errorf("%d bytes, %v %v, %v", out.Len(), gotInner, gotOuter, err)
		}
	}
}

func TestDecodeRefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	own := identity(t)
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	archive, _, _ := encoded(t, noise, own.Recipient())
	flipped := func(at int) []byte {
		b := bytes.Clone(archive)
		b[at] ^= 1
		return b
	}
	for name, tt := range map[string]struct {
		archive []byte
		key     age.Identity
		want    string
	}{
		"another key":        {archive, identity(t), "for other keys, or"},
		"a flipped header":   {flipped(100), own, "damaged"}, // or no key fits any more
		"a flipped byte":     {flipped(len(archive) / 2), own, "damaged"},
		"the last byte":      {flipped(len(archive) - 1), own, "damaged"},
		"cut in the middle":  {archive[:len(archive)/2], own, "damaged"},
		"cut at a chunk":     {archive[:len(archive)-len(archive)%(64<<10)], own, "damaged"},
		"without its end":    {archive[:len(archive)-1], own, "damaged"},
		"more behind it":     {append(bytes.Clone(archive), 'x'), own, "damaged"},
		"nothing":            {nil, own, "damaged"},
		"two of them":        {append(bytes.Clone(archive), archive...), own, "damaged"},
		"not an archive":     {noise, own, "damaged"},
		"only compressed":    {snapshot(1), own, "damaged"},
		"cut in its header":  {archive[:50], own, "damaged"},
		"cut after a header": {archive[:300], own, "damaged"},
	} {
		_, _, err := Decode(t.Context(), io.Discard, bytes.NewReader(tt.archive), tt.key)
		if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error)  { return 0, b.err }
func (b broken) Write([]byte) (int, error) { return 0, b.err }

// An error of the reader or the writer says nothing about the archive.
func TestDecodePassesErrorsOn(t *testing.T) {
	t.Parallel()
	own := identity(t)
	archive, _, _ := encoded(t, snapshot(100), own.Recipient())
	away := errors.New("the server is away")
	r := io.MultiReader(bytes.NewReader(archive[:250]), broken{away})
	if _, _, err := Decode(t.Context(), io.Discard, r, own); !errors.Is(err, away) {
		t.Errorf("reader: %v", err)
	}
	if _, _, err := Decode(t.Context(), broken{away}, bytes.NewReader(archive), own); !errors.Is(err, away) {
		t.Errorf("writer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Decode(ctx, io.Discard, bytes.NewReader(archive), own); !errors.Is(err, context.Canceled) {
		t.Errorf("context: %v", err)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	whole := snapshot(3)
	for name, tt := range map[string]struct {
		content []byte
		ok      bool
	}{
		"whole": {whole, true}, "empty": {nil, false}, "cut": {whole[:len(whole)-1], false},
		"no digest": {whole[:3*databasePage], false}, "flipped": {append([]byte("x"), whole[1:]...), false},
	} {
		tail := NewTail()
		for chunk := range 100 { // pieces of any size
			n := min(len(tt.content), 1+chunk*7)
			_, _ = tail.Write(tt.content[:n])
			tt.content = tt.content[n:]
		}
		_, _ = tail.Write(tt.content)
		if err := tail.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifestIsOfThisDirector(t *testing.T) {
	t.Parallel()
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Format: Format, ID: "p1-offsite", Cluster: "demo", ClusterUID: "u1", Made: time.Unix(1e9, 0).UTC()}
	file, err := Sign(m, box)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Open(file, box)
	if diff := cmp.Diff(m, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	other, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	newer := m
	newer.Format++
	tomorrow, _ := Sign(newer, box)
	foreign, _ := Sign(m, other)
	for name, text := range map[string][]byte{
		"changed": bytes.Replace(file, []byte(`"u1"`), []byte(`"u2"`), 1), "of another director": foreign,
		"of a newer format": tomorrow, "cut": file[:40],
		"another revision": bytes.Replace(file, []byte(`"revision":0`), []byte(`"revision":1`), 1),
	} {
		if _, err := Open(text, box); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFits(t *testing.T) {
	t.Parallel()
	m := Manifest{ID: "b", ClusterUID: "u1", Snapshot: Snapshot{Etcd: "3.7.3"}, EncryptionKeys: []string{"key1-aa"}}
	for name, tt := range map[string]struct {
		uid, etcd string
		keys      []string
		want      string
	}{
		"the same":       {"u1", "v3.7.3", []string{"key1-aa"}, ""},
		"a newer patch":  {"u1", "3.7.1", []string{"key2-bb", "key1-aa"}, ""},
		"a newer etcd":   {"u1", "3.6.10", []string{"key1-aa"}, "of etcd 3.7.3"},
		"not a version":  {"u1", "latest", []string{"key1-aa"}, "of etcd 3.7.3"},
		"other cluster":  {"u2", "3.7.3", []string{"key1-aa"}, "another cluster"},
		"key is missing": {"u1", "3.7.3", []string{"key1-bb"}, "key1-aa"},
	} {
		err := m.Fits(tt.uid, tt.etcd, tt.keys)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	made := []time.Time{}
	for _, days := range []int{0, 9, 1, 2, 8} {
		made = append(made, now.AddDate(0, 0, -days))
	}
	for name, tt := range map[string]struct {
		count, days int
		want        []bool
	}{
		"count": {2, 0, []bool{true, false, true, false, false}},
		"days":  {1, 2, []bool{true, false, true, true, false}},
		"all":   {9, 0, []bool{true, true, true, true, true}},
	} {
		if diff := cmp.Diff(tt.want, Kept(made, tt.count, tt.days, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// exercise is what every target has to do.
func exercise(t *testing.T, target Target) {
	t.Helper()
	ctx := t.Context()
	put := func(name, text string) {
		t.Helper()
		if err := target.Put(ctx, name, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(want ...string) {
		t.Helper()
		got, err := target.List(ctx, "demo-u1")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
	list()
	put("demo-u1/b.json", "one")
	put("demo-u1/b.json", "two")
	put("demo-u1/a.db.zst.age", "archive")
	put("demo-u11/c.json", "of another cluster")
	list("demo-u1/a.db.zst.age", "demo-u1/b.json")
	r, err := target.Get(ctx, "demo-u1/b.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || string(text) != "two" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := target.Get(ctx, "demo-u1/x.json"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("what there is not: %v", err)
	}
	away := errors.New("the node is away")
	err = target.Put(ctx, "demo-u1/cut.json", io.MultiReader(strings.NewReader("begins"), broken{away}))
	if !errors.Is(err, away) {
		t.Errorf("a reader that fails: %v", err)
	}
	for range 2 {
		if err := target.Delete(ctx, "demo-u1/b.json"); err != nil {
			t.Error(err)
		}
	}
	list("demo-u1/a.db.zst.age")
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	exercise(t, Directory{Path: filepath.Join(top, "new/offsite"), Dirs: confine.Dirs{top}})
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(top, "door")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "mount"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		d    Directory
		want string
	}{
		"outside":      {Directory{Path: outside, Dirs: confine.Dirs{top}}, "backupDirs"},
		"through link": {Directory{Path: filepath.Join(top, "door"), Dirs: confine.Dirs{top}}, "backupDirs"},
		"not NFS": {
			Directory{Path: filepath.Join(top, "mount"), Dirs: confine.Dirs{top}, NFS: true}, "mount it",
		},
		"no mount point": {
			Directory{Path: filepath.Join(top, "gone"), Dirs: confine.Dirs{top}, NFS: true}, "",
		},
	} {
		err := tt.d.Put(t.Context(), "x/y", strings.NewReader("z"))
		if err == nil || !strings.Contains(director.HintOf(err), tt.want) {
			t.Errorf("%s: %v (%s)", name, err, director.HintOf(err))
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("written outside: %v", left)
	}
}

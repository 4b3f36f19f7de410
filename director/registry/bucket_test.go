package registry

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/testsuites"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/minio/minio-go/v7"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup/s3test"
	"github.com/director-kaas/kaas/director/bucket"
	"github.com/director-kaas/kaas/director/pki"
)

func placeOf(s *s3test.Server, prefix string) *bucket.Place {
	return &bucket.Place{
		URL: s.URL, Bucket: s.Bucket, Prefix: prefix, Region: s.Region, CA: s.CA, Key: s.Key, Secret: s.Secret,
	}
}

// distribution's own tests of drivers pass, without the file of 5 GiB.
func TestBucketIsADriver(t *testing.T) {
	t.Parallel()
	storage, err := newBucketStorage(*placeOf(s3test.Start(t), "suite"), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(storage.client.Close)
	spool := t.TempDir()
	testsuites.Driver(t, func() (driver.StorageDriver, error) { return newBucketDriver(storage, spool), nil }, false)
}

// withBucket serves a registry on the bucket, which it asks often whether it is there.
func withBucket(t *testing.T, place *bucket.Place, identity *pki.Server) *bundle {
	t.Helper()
	return setupWith(t, t.TempDir(), identity, func(c *Config) { c.Bucket = place })
}

// Two directors with one bucket: what one was given, the other has.
func TestDirectorsShareABucket(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	a := withBucket(t, placeOf(s, "site-a/registry"), nil)
	b := withBucket(t, placeOf(s, "site-a/registry"), a.tls)
	img := a.pushTest(t, a.ref(t, "kaas/pause:1"))
	got, err := remote.Image(b.ref(t, "kaas/pause:1"), b.as(t, authn.Anonymous)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(got); err != nil { // pulls everything and checks every digest
		t.Error(err)
	}
	want, werr := img.Digest()
	if d, err := got.Digest(); err != nil || werr != nil || d != want {
		t.Errorf("digest %s, %v; pushed %s", d, err, want)
	}
	if err := remote.Delete(
		b.ref(t, "kaas/pause@"+want.String()), b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...,
	); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Image(
		a.ref(t, "kaas/pause:1"), a.as(t, authn.Anonymous)...,
	); statusOf(err) != http.StatusNotFound {
		t.Errorf("a deleted image: %v", err)
	}
	for _, root := range []string{a.root, b.root} {
		if left := filesIn(t, root); len(left) > 0 {
			t.Errorf("uploads are left on the disk: %v", left)
		}
	}
}

// filesIn returns the files below a directory.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			out = append(out, strings.TrimPrefix(p, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a registry has in its directory moves to a bucket by copying files.
func TestDirectoryMovesToABucket(t *testing.T) {
	t.Parallel()
	dir := setup(t, t.TempDir(), nil)
	dir.pushTest(t, dir.ref(t, "kaas/pause:1"))
	s := s3test.Start(t)
	place := placeOf(s, "moved")
	client, err := bucket.Open(*place, "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, file := range filesIn(t, dir.root) {
		if _, err := client.FPutObject(
			t.Context(), s.Bucket, place.Name(file), filepath.Join(dir.root, file), minio.PutObjectOptions{},
		); err != nil {
			t.Fatal(err)
		}
	}
	b := withBucket(t, place, dir.tls)
	got, err := remote.Image(b.ref(t, "kaas/pause:1"), b.as(t, authn.Anonymous)...)
	if err == nil {
		err = validate.Image(got)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestBucketIsAway(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	b := withBucket(t, placeOf(s, "registry"), nil)
	ref := b.ref(t, "kaas/pause:1")
	b.pushTest(t, ref)
	half := cutUpload(t, b, "kaas/half")
	s.Kill()

	pull := func() error {
		_, err := remote.Get(ref, append(b.as(t, authn.Anonymous), remote.WithRetryStatusCodes())...)
		return err
	}
	err := pull() // before the registry has found out
	if statusOf(err) != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "the bucket in which") {
		t.Errorf("a pull without the bucket: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), s.URL) {
		t.Errorf("a node is told where the bucket is: %v", err)
	}
	err = b.reg.Content()
	if director.KindOf(err) != director.KindUnavailable || !strings.Contains(err.Error(), s.URL) ||
		director.HintOf(err) == "" {
		t.Errorf("the registry says %v (%s)", err, director.HintOf(err))
	}
	img, err := random.Image(4096, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(b.ref(t, "kaas/other:1"), img, append(
		b.as(t, &authn.Basic{Username: testUser, Password: testPassword}), remote.WithRetryStatusCodes(),
	)...); statusOf(err) != http.StatusServiceUnavailable {
		t.Errorf("a push without the bucket: %v", err)
	}
	if resp := b.send(t, http.MethodGet, LivePath, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("the registry itself: %s", resp.Status)
	}

	s.Again(t)
	eventually(t, func() error { return b.reg.Content() })
	if err := pull(); err != nil {
		t.Errorf("a pull with the bucket again: %v", err)
	}
	half.finish(t)
	if err := remote.Write(
		b.ref(t, "kaas/other:1"), img, b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...,
	); err != nil {
		t.Errorf("a push with the bucket again: %v", err)
	}
}

// eventually asks until there is no error.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// upload is a push of a layer of which the first part was sent.
type upload struct {
	b        *bundle
	location string
	rest     []byte
	digest   string
}

func (b *bundle) send(t *testing.T, method, at string, body []byte) *http.Response {
	t.Helper()
	if strings.HasPrefix(at, "/") {
		at = "https://" + b.reg.Addr().String() + at
	}
	req, err := http.NewRequestWithContext(t.Context(), method, at, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(testUser, testPassword)
	resp, err := b.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp
}

func cutUpload(t *testing.T, b *bundle, repository string) upload {
	t.Helper()
	began := b.send(t, http.MethodPost, "/v2/"+repository+"/blobs/uploads/", nil)
	if began.StatusCode != http.StatusAccepted {
		t.Fatal(began.Status)
	}
	sent := b.send(t, http.MethodPatch, began.Header.Get("Location"), []byte("half of "))
	if sent.StatusCode != http.StatusAccepted {
		t.Fatal(sent.Status)
	}
	return upload{
		b: b, location: sent.Header.Get("Location"), rest: []byte("a layer"),
		digest: "sha256:17fc917005bcb683a50e68dd3e7acf161ca36b422ab00828d40a14a9161fb597",
	}
}

// finish sends the rest.
func (u upload) finish(t *testing.T) {
	t.Helper()
	separator := "?"
	if strings.Contains(u.location, "?") {
		separator = "&"
	}
	done := u.b.send(t, http.MethodPut, u.location+separator+"digest="+u.digest, u.rest)
	if done.StatusCode != http.StatusCreated {
		t.Errorf("an upload over the outage: %s", done.Status)
	}
}

// A director starts without its bucket, and says so; then it finds a bucket that is not there.
func TestBucketIsWrong(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	for what, c := range map[string]struct {
		change func(*bucket.Place)
		want   string
	}{
		"no such bucket": {func(p *bucket.Place) { p.Bucket = "nowhere" }, "no such bucket"},
		"a wrong secret": {func(p *bucket.Place) { p.Secret = "another" }, "does not let the director in"},
		"another CA":     {func(p *bucket.Place) { p.CA = "" }, "certificate"},
	} {
		place := placeOf(s, "registry")
		c.change(place)
		b := withBucket(t, place, nil)
		eventually(t, func() error {
			if b.reg.Content() == nil {
				return errors.New(what + ": not noticed")
			}
			return nil
		})
		if err := b.reg.Content(); !strings.Contains(err.Error(), c.want) || director.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", what, err, director.HintOf(err))
		}
		if resp := b.send(t, http.MethodGet, "/v2/kaas/pause/manifests/1", nil); resp.StatusCode !=
			http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: a pull gets %s", what, resp.Status)
		}
	}
	place := placeOf(s, "")
	place.CA = "no certificate"
	_, err := newBucketStorage(*place, slog.Default())
	if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "registryBucket.caFile") {
		t.Errorf("a CA without a certificate: %v", err)
	}
}

// Parts of a layer that was never finished are removed from the bucket, others are not.
func TestUnfinishedPartsArePurged(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t)
	b := withBucket(t, placeOf(s, "registry"), nil)
	core := minio.Core{Client: b.reg.bucket.client.Client}
	key := b.reg.bucket.place.Name("docker/registry/v2/blobs/sha256/ab/abc/data")
	if _, err := core.NewMultipartUpload(t.Context(), s.Bucket, key, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		n := 0
		for u := range core.ListIncompleteUploads(t.Context(), s.Bucket, key, true) {
			if u.Err != nil {
				t.Fatal(u.Err)
			}
			n++
		}
		return n
	}
	for _, c := range []struct {
		before time.Time
		want   int
	}{{time.Now().Add(-time.Hour), 1}, {time.Now().Add(time.Hour), 0}} {
		if err := (collector{b.reg}).purgeOnce(t.Context(), c.before); err != nil {
			t.Fatal(err)
		}
		if got := open(); got != c.want {
			t.Errorf("%d uploads are open after the purge before %s, want %d", got, c.before, c.want)
		}
	}
}

package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup/s3test"
	"github.com/director-kaas/kaas/director/bucket"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/test/loopback"
)

// startS3 starts a real S3 server with the bucket clusters, and returns how one gets into it.
func startS3(t *testing.T) bucket.Place {
	t.Helper()
	s := s3test.Start(t)
	return bucket.Place{
		URL: s.URL, Bucket: s.Bucket, Prefix: "site-a/backups", Region: s.Region, CA: s.CA, Key: s.Key,
		Secret: s.Secret,
		Dial:   confine.Networks{netip.MustParsePrefix("127.0.0.1/32")}.Dialer().DialContext,
	}
}

// answering returns the target once its server answers.
func answering(t *testing.T, p bucket.Place) *Bucket {
	t.Helper()
	b, err := NewBucket(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = b.List(ctx, "demo-u1"); err == nil {
			return b
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestBucket(t *testing.T) {
	t.Parallel()
	place := startS3(t)
	target := answering(t, place)
	exercise(t, target)

	// Several parts, and one that is cut off.
	large := make([]byte, 2*partSize+12345)
	_, _ = rand.Read(large)
	if err := target.Put(t.Context(), "demo-u1/large", bytes.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	r, err := target.Get(t.Context(), "demo-u1/large")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(large), err)
	}
	away := errors.New("the node is away")
	err = target.Put(t.Context(), "demo-u1/cut", io.MultiReader(bytes.NewReader(large), broken{away}))
	if !errors.Is(err, away) {
		t.Errorf("a reader that fails between two parts: %v", err)
	}
	if _, err := target.Get(t.Context(), "demo-u1/cut"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("half of a file is there: %v", err)
	}
}

func TestBucketSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	place := startS3(t)
	answering(t, place)
	another, err := pki.NewCA("another")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*bucket.Place)
		want   string
	}{
		"no bucket":     {func(p *bucket.Place) { p.Bucket = "nowhere" }, "has no such bucket"},
		"wrong secret":  {func(p *bucket.Place) { p.Secret = "another" }, "does not let the director in"},
		"wrong key":     {func(p *bucket.Place) { p.Key = "somebody" }, "does not work"},
		"another CA":    {func(p *bucket.Place) { p.CA = another.Cert }, "certificate"},
		"not allowed":   {func(p *bucket.Place) { p.Dial = confine.Private().Dialer().DialContext }, "not allowed"},
		"nobody there":  {func(p *bucket.Place) { p.URL = "https://" + loopback.FreeFor(t).String() }, "does not work"},
		"no TLS behind": {func(p *bucket.Place) { p.URL = plainServer(t) }, "does not work"},
	} {
		p := place
		tt.change(&p)
		b, err := NewBucket(p)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Put(t.Context(), "x/y", strings.NewReader("z"))
		if err == nil || !strings.Contains(err.Error(), tt.want) || director.HintOf(err) == "" {
			t.Errorf("%s: %v (%s)", name, err, director.HintOf(err))
		}
		if err != nil && strings.Contains(err.Error(), "a-key-of-the-test") {
			t.Errorf("%s: the error tells the secret", name)
		}
	}
}

func plainServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "https://" + l.Addr().String()
}

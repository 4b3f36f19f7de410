package mirrors_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/mirrors"
	"github.com/director-kaas/kaas/director/mirrors/mirrortest"
	"github.com/director-kaas/kaas/director/store"
)

// site is the service on real stores.
type site struct {
	*mirrors.Service
	t       *testing.T
	dir     string
	db      *store.Store
	uploads *imagestore.Store
	log     bytes.Buffer // of what the service logs; read it when all has ended
}

const size = 300_000

func loopback() confine.Networks { return confine.Networks{netip.MustParsePrefix("127.0.0.0/8")} }

func config(dir string, log *slog.Logger) (mirrors.Config, error) {
	ctx := context.Background()
	db, err := store.Open(ctx, filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		return mirrors.Config{}, err
	}
	uploads, err := imagestore.Open(imagestore.Config{Dir: filepath.Join(dir, "images"), Log: log, Reserve: 1})
	return mirrors.Config{
		Store: db, Uploads: uploads, Allow: loopback(), Own: func() []netip.AddrPort { return nil },
		Agent: "director/1",
		Log:   log, Now: time.Now, Pause: func(context.Context, int) error { return nil },
	}, err
}

func open(t *testing.T, change func(*mirrors.Config)) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	c, err := config(s.dir, slog.New(slog.NewTextHandler(&s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.db, s.uploads = c.Store, c.Uploads.(*imagestore.Store)
	if change != nil {
		change(&c)
	}
	s.Service = mirrors.New(c)
	t.Cleanup(func() { _ = s.db.Close() })
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// ended fetches and waits for the end.
func (s *site) ended(r director.ReleaseFetch) mirrors.Job {
	s.t.Helper()
	j, err := s.Fetch(s.t.Context(), r)
	for err == nil && !j.Ended() {
		select {
		case <-s.t.Context().Done():
			s.t.Fatal("the fetch does not end")
		case <-time.After(time.Millisecond):
		}
		j, err = s.Job(s.t.Context(), j.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// arrived fails unless the job has brought the file.
func (s *site) arrived(j mirrors.Job, file []byte) {
	s.t.Helper()
	sum := sha256.Sum256(file)
	if j.Err != nil || j.Result == nil || j.Result.ID != hex.EncodeToString(sum[:]) || !j.Result.Release {
		s.t.Fatalf("%+v", j)
	}
	path, _, release, err := s.uploads.Take(j.Result.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	defer release()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, file) {
		s.t.Errorf("the upload is not the file: %d bytes, %v", len(got), err)
	}
}

// left returns what is left of uploads.
func (s *site) left() []os.DirEntry {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "images", "uploads"))
	if err != nil {
		s.t.Fatal(err)
	}
	return entries
}

// A mirror with an authority and accounts of its own breaks off again and again: the fetch continues where it was. What
// is secret is in no log and in no audit trail.
func TestFetchContinuesAfterCuts(t *testing.T) {
	t.Parallel()
	s, file := open(t, nil), mirrortest.Archive(t, size)
	m := mirrortest.Start(t, file)
	m.Cut(size / 4)
	m.Before(func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "ann" && password == "hunter2" && r.URL.Query().Get("key") == "hunter3" {
			return true
		}
		w.WriteHeader(http.StatusUnauthorized)
		return false
	})
	r := director.ReleaseFetch{URL: m.URL + "?key=hunter3", CA: m.CA, User: "ann", Password: "hunter2", By: "bob"}
	s.arrived(s.ended(r), file)
	if got, want := fmt.Sprint(m.Ranges()), "[ bytes=75000- bytes=150000- bytes=225000-]"; got != want {
		t.Errorf("the ranges are %s, want %s", got, want)
	}
	_ = s.Close(t.Context())
	entries, err := s.db.AuditPage(t.Context(), 0, 100, 100)
	if text := fmt.Sprintf("%+v", entries) + s.log.String(); err != nil || strings.Contains(text, "hunter") ||
		!strings.Contains(text, "/releases/k8s.tar") || !strings.Contains(text, "bob") {
		t.Errorf("%s, %v", text, err)
	}
}

// A mirror that knows no ranges sends all of it again, and what has arrived is skipped.
func TestMirrorWithoutRanges(t *testing.T) {
	t.Parallel()
	s, file := open(t, nil), mirrortest.Archive(t, size)
	m := mirrortest.Start(t, file)
	m.Cut(size / 2)
	m.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			r.Header.Del("Range")
			m.Cut(0)
		}
		return true
	})
	m.Change(file, "")
	s.arrived(s.ended(director.ReleaseFetch{URL: m.URL, CA: m.CA}), file)
	if got := len(m.Ranges()); got != 3 { // the answer to the second request was still cut
		t.Errorf("%d requests", got)
	}
}

// A file that changes while it comes is not put together of two.
func TestFileChanges(t *testing.T) {
	t.Parallel()
	s, file := open(t, nil), mirrortest.Archive(t, size)
	m := mirrortest.Start(t, file)
	m.Cut(size / 2)
	other := mirrortest.Archive(t, size)
	m.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") == "" {
			m.Change(other, `"two"`)
		}
		return true
	})
	r := director.ReleaseFetch{URL: m.URL, CA: m.CA}
	if j := s.ended(r); director.KindOf(j.Err) != director.KindInvalid || !strings.Contains(
		j.Err.Error(), "has changed meanwhile",
	) || len(s.left()) != 0 {
		t.Fatalf("%+v, left %v", j, s.left())
	}
	m.Cut(0)
	s.arrived(s.ended(r), other)
}

// Cancel ends the fetch, and nothing of it is left; so it is after the end.
func TestCancel(t *testing.T) {
	t.Parallel()
	s, file := open(t, nil), mirrortest.Archive(t, size)
	m := mirrortest.Start(t, file)
	came := make(chan struct{})
	m.Before(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(file[:size/2])
		_ = http.NewResponseController(w).Flush()
		close(came)
		<-r.Context().Done()
		return false
	})
	r := director.ReleaseFetch{URL: m.URL, CA: m.CA, By: "ann"}
	j, err := s.Fetch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	<-came
	if err := s.Cancel(t.Context(), "bob", m.URL); err != nil {
		t.Fatal(err)
	}
	if j, err = s.Job(t.Context(), j.ID); err != nil || j.Ended() {
		t.Fatalf("another's cancel: %+v, %v", j, err)
	}
	if err := s.Cancel(t.Context(), "ann", m.URL); err != nil {
		t.Fatal(err)
	}
	j, err = s.Job(t.Context(), j.ID)
	if err != nil || j.Stage != jobs.Failed || len(s.left()) != 0 {
		t.Fatalf("%+v, %v, left %v", j, err, s.left())
	}
	m.Before(nil)
	s.arrived(s.ended(r), file)
	if err := s.Cancel(t.Context(), "ann", m.URL); err != nil || len(s.left()) != 0 {
		t.Fatalf("after the end: %v, left %v", err, s.left())
	}
}

// A mirror that is not as it should be is refused, with what is to be done.
func TestMirrorsThatAreRefused(t *testing.T) {
	t.Parallel()
	status := func(code int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "https://127.0.0.1:1/")
			w.WriteHeader(code)
			return false
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return false
	}
	type setup struct {
		of     func(*mirrors.Config, *mirrortest.Mirror)
		before func(http.ResponseWriter, *http.Request) bool
		kind   director.Kind
		want   string
	}
	for name, tt := range map[string]setup{
		"redirect": {nil, status(302), director.KindInvalid, "redirects"},
		"account":  {nil, status(401), director.KindInvalid, "refuses the account"},
		"missing":  {nil, status(404), director.KindInvalid, "no such file"},
		"busy":     {nil, status(503), director.KindUnavailable, "status 503"},
		"odd":      {nil, status(418), director.KindInvalid, "status 418"},
		"no length": {nil, func(w http.ResponseWriter, _ *http.Request) bool {
			_ = http.NewResponseController(w).Flush()
			return false
		}, director.KindInvalid, "how long"},
		"compressed": {nil, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Encoding", "gzip")
			return true
		}, director.KindInvalid, "compressed"},
		"no bundle": {nil, func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(make([]byte, 2000))
			return false
		}, director.KindInvalid, "not an archive"},
		"silence": {
			func(c *mirrors.Config, _ *mirrortest.Mirror) { c.Quiet = 200 * time.Millisecond }, hang,
			director.KindUnavailable, "does not answer",
		},
		"too long": {
			func(c *mirrors.Config, _ *mirrortest.Mirror) { c.Most = 200 * time.Millisecond }, hang,
			director.KindUnavailable, "it took longer",
		},
		"address": {
			func(c *mirrors.Config, _ *mirrortest.Mirror) { c.Allow = confine.Private() }, nil,
			director.KindInvalid, "may not connect",
		},
		"itself": {func(c *mirrors.Config, m *mirrortest.Mirror) {
			at, _ := url.Parse(m.URL)
			c.Own = func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(at.Host)} }
		}, nil, director.KindInvalid, "the director itself"},
		"no room": {func(c *mirrors.Config, _ *mirrortest.Mirror) {
			c.Uploads.(*imagestore.Store).Free = func(string) (int64, error) { return size / 2, nil }
		}, nil, director.KindExhausted, "has room for"},
	} {
		m := mirrortest.Start(t, mirrortest.Archive(t, size))
		m.Before(tt.before)
		s := open(t, func(c *mirrors.Config) {
			if tt.of != nil {
				tt.of(c, m)
			}
		})
		j := s.ended(director.ReleaseFetch{URL: m.URL, CA: m.CA})
		if director.KindOf(j.Err) != tt.kind || !strings.Contains(fmt.Sprint(j.Err), tt.want) ||
			director.HintOf(j.Err) == "" || len(s.left()) != 0 {
			t.Errorf("%s: %v (%s), left %v", name, j.Err, director.HintOf(j.Err), s.left())
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	m := mirrortest.Start(t, mirrortest.Archive(t, size)) // it ends after what fetches from it
	s := open(t, nil)
	for want, r := range map[string]director.ReleaseFetch{
		"url: ":          {URL: strings.Replace(m.URL, "https", "http", 1)},
		"url: is not":    {URL: strings.Replace(m.URL, "https://", "https://ann:hunter2@", 1)},
		"url: is not th": {URL: "file:///etc/shadow"},
		"ca: ":           {URL: m.URL, CA: "none"},
		"user: ":         {URL: m.URL, Password: "hunter2"},
	} {
		if _, err := s.Fetch(t.Context(), r); director.KindOf(err) != director.KindInvalid ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if j := s.ended(director.ReleaseFetch{URL: m.URL}); director.KindOf(j.Err) != director.KindInvalid ||
		!strings.Contains(j.Err.Error(), "certificate of the mirror") {
		t.Errorf("an unknown authority: %v", j.Err)
	}
	m.Before(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return false
	})
	for i := range 9 {
		_, err := s.Fetch(t.Context(), director.ReleaseFetch{URL: fmt.Sprint(m.URL, i), CA: m.CA})
		if (err == nil) != (i < 8) || err != nil && director.KindOf(err) != director.KindExhausted {
			t.Errorf("fetch %d: %v", i, err)
		}
	}
}

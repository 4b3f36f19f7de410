package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/diskimage/diskimagetest"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/wire"
)

// uploadCutter breaks a request's connection off after some bytes of its body, so many times.
type uploadCutter struct {
	mu    sync.Mutex
	after int
	times int
	cuts  int
}

func (c *uploadCutter) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		cut := r.Method == http.MethodPatch && c.cuts < c.times
		if cut {
			c.cuts++
		}
		c.mu.Unlock()
		if !cut {
			next.ServeHTTP(w, r)
			return
		}
		// The handler sees the beginning of the piece and then a broken connection, and the client sees no answer.
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, int64(c.after)), brokenBody{}))
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// withImages serves an API with a real store of images.
func withImages(t *testing.T, wrap func(http.Handler) http.Handler) (*client.Client, *imagestore.Store) {
	t.Helper()
	store, err := imagestore.Open(imagestore.Config{
		Dir: filepath.Join(t.TempDir(), "images"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Reserve: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(t.Context()) })
	ports := apitest.New().Ports()
	ports.Images = images.New(images.Config{
		Store: apitest.OpenStore(t), Files: store, Gate: (*provenance.Gate)(nil), Now: time.Now,
	})
	srv, ca := start(t, ports, wrap)
	c := login(t, client.Config{Server: srv.URL, CA: ca})
	client.SetBackoff(c, time.Millisecond)
	return c, store
}

func TestSendFileGoesOnAfterCuts(t *testing.T) {
	t.Parallel()
	cut := &uploadCutter{after: 100 << 10, times: 5}
	c, store := withImages(t, cut.wrap)
	path := diskimagetest.Convert(t, diskimagetest.Node(t, "v1.37.2"), "qcow2")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := diskimagetest.SHA256(t, path)
	last, lost := int64(0), 0
	u, err := c.SendFile(t.Context(), wire.UploadRequest{
		SHA256: sum, Size: int64(len(text)), Name: "node.qcow2", Format: "qcow2",
	}, bytes.NewReader(text), func(n int64) {
		if n < last {
			t.Errorf("progress went back from %d to %d", last, n)
		}
		last = n
	}, func(error) { lost++ })
	if err != nil {
		t.Fatal(err)
	}
	if u.Offset != u.Size || last != u.Size || cut.cuts != 5 || lost == 0 {
		t.Errorf("%d of %d bytes after %d cuts, of which %d were told", u.Offset, u.Size, cut.cuts, lost)
	}
	stages := map[string]bool{}
	f, err := c.ImportImage(t.Context(), wire.ImageImport{
		Upload: sum, Compat: "0.10",
	}, func(j wire.ImageJob) { stages[j.Stage] = true })
	if err != nil || f.Kubernetes != "v1.37.2" || f.Compat != "0.10" || f.OriginSHA256 != sum ||
		f.ImportedBy != "admin" {
		t.Errorf("got %+v, %v", f, err)
	}
	if got := diskimagetest.SHA256(t, store.Path(f.SHA256)); got != f.SHA256 {
		t.Errorf("the file has %s", got)
	}
	// Everything again changes nothing.
	again, err := c.ImportImage(t.Context(), wire.ImageImport{Upload: sum, Compat: "0.10"}, nil)
	if err != nil || again.SHA256 != f.SHA256 {
		t.Errorf("got %+v, %v", again, err)
	}
	back, err := c.ConvertImage(t.Context(), f.SHA256, "1.1", nil)
	if err != nil || back.Compat != "1.1" {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestSendFileOfTheWrongKind(t *testing.T) {
	t.Parallel()
	c, store := withImages(t, nil)
	text := bytes.Repeat([]byte("<html></html>\n"), 1<<14)
	digest := sha256.Sum256(text)
	sum := hex.EncodeToString(digest[:])
	_, err := c.SendFile(
		t.Context(), wire.UploadRequest{SHA256: sum, Size: int64(len(text)), Name: "node.qcow2"},
		bytes.NewReader(text), nil, nil,
	)
	if director.KindOf(err) != director.KindInvalid ||
		!strings.Contains(err.Error(), "node.qcow2 is not a disk image of a known format") {
		t.Errorf("got %v", err)
	}
	if _, err := store.Upload(sum); director.KindOf(err) != director.KindNotFound {
		t.Errorf("left behind: %v", err)
	}
	_, err = c.SendFile(t.Context(), wire.UploadRequest{SHA256: "x", Size: 5}, bytes.NewReader(text), nil, nil)
	if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("got %v", err)
	}
	if _, err := c.ImportImage(
		t.Context(), wire.ImageImport{Upload: sum}, nil,
	); director.KindOf(err) != director.KindNotFound {
		t.Errorf("got %v", err)
	}
	if err := c.AbortUpload(t.Context(), sum); err != nil {
		t.Error(err)
	}
}

package peers_test

import (
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/peers"
)

// arrived has one upload.
type arrived string

func (a arrived) Take(id string) (string, func() error, func(), error) {
	if id != "good" {
		return "", nil, nil, director.Errorf(director.KindNotFound, "test", "there is no upload %s", id)
	}
	return string(a), nil, func() {}, nil
}

// A peer with the key gets the rest of an upload. To who has another key, or asks another director, there is none.
func TestUploadOfAPeer(t *testing.T) {
	t.Parallel()
	f := open(t)
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(peers.NewUploadHandler(key, "i1", arrived(file), time.Now))
	server.TLS = f.server.TLS.Clone()
	server.StartTLS()
	t.Cleanup(server.Close)
	at := server.Listener.Addr().String()
	client := func(k []byte) *peers.Client {
		return peers.NewClient(k, addresses{"i1": at, "i2": at, "down": "127.0.0.1:1"}, f.trusting, time.Now)
	}
	body, size, err := client(key).Upload(t.Context(), "i1", "good", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "456789" || size != 10 {
		t.Errorf("got %q of %d, %v", text, size, err)
	}
	for name, c := range map[string]struct {
		key          []byte
		instance, id string
		want         director.Kind
	}{
		"another upload":        {key, "i1", "bad", director.KindNotFound},
		"another key":           {[]byte("another"), "i1", "good", director.KindNotFound},
		"another director":      {key, "i2", "good", director.KindNotFound},
		"one that is down":      {key, "down", "good", director.KindUnavailable},
		"one that is not known": {key, "i9", "good", director.KindNotFound},
	} {
		_, _, err := client(c.key).Upload(t.Context(), c.instance, c.id, 0)
		if director.KindOf(err) != c.want || strings.Contains(err.Error(), "456789") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/wire"
)

// Anyone reads the manual, and nothing else is below it.
func TestManualNeedsNoToken(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) {
		c.Manual = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			_, _ = io.WriteString(w, "manual of "+r.URL.Path)
		})
	})
	b.token, b.url = "", strings.TrimSuffix(b.url, wire.Prefix)
	for _, path := range []string{"/docs", "/docs/", "/docs/use/nodes"} {
		resp := b.send(t, http.MethodGet, path, "")
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || string(text) != "manual of "+path ||
			resp.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %v, %s %q %v", path, err, resp.Status, text, resp.Header)
		}
	}
	if resp := b.send(t, http.MethodPost, "/docs/use/nodes", "{}"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST to the manual answers %s", resp.Status)
	}
	if resp := b.send(t, http.MethodGet, "/docsandmore", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a path beside the manual answers %s", resp.Status)
	}
}

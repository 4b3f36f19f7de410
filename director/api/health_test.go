package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/wire"
)

func TestReadyForChanges(t *testing.T) {
	t.Parallel()
	held := true
	b := setup(t, func(c *api.Config) {
		c.Ready, c.Held = nil, func() bool { return held }
	})
	b.token, b.url = "", strings.TrimSuffix(b.url, wire.Prefix)
	ask := func(path string, want int) {
		t.Helper()
		if resp := b.send(t, http.MethodGet, path, ""); resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	ask("/readyz", http.StatusOK) // a root on trial is kept if it is ready
	ask("/readyz?changes=true", http.StatusServiceUnavailable)
	held = false
	ask("/readyz?changes=true", http.StatusOK)
}

package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/wire"
)

type pretendConsole struct{}

func (pretendConsole) Asset(w http.ResponseWriter, r *http.Request) bool {
	found := r.URL.Path == "/assets/app.js"
	if found {
		_, _ = io.WriteString(w, "asset")
	}
	return found
}

func (pretendConsole) Page(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "page of "+r.URL.Path)
}

// Browsers get the console at every path that is not the API's, and programs get problems.
func TestConsoleIsForBrowsers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Console = pretendConsole{} })
	b.token, b.url = "", strings.TrimSuffix(b.url, wire.Prefix)
	const page, script, program = "text/html,application/xhtml+xml,*/*;q=0.8", "*/*", "application/json"
	for _, c := range []struct {
		method, path, accept string
		status               int
		want                 string // "" for a problem
	}{
		{http.MethodGet, "/", page, http.StatusOK, "page of /"},
		{http.MethodGet, "/clusters/a", page, http.StatusOK, "page of /clusters/a"},
		{http.MethodGet, "/assets/app.js", script, http.StatusOK, "asset"},
		{http.MethodGet, "/assets/old.js", page, http.StatusNotFound, ""},
		{http.MethodGet, "/clusters/a", script, http.StatusNotFound, ""},
		{http.MethodGet, "/", program, http.StatusNotFound, ""},
		{http.MethodPost, "/clusters/a", page, http.StatusNotFound, ""},
		{http.MethodGet, wire.Prefix + "/nothing", page, http.StatusNotFound, ""},
		{http.MethodGet, wire.Prefix + "/clusters", page, http.StatusUnauthorized, ""},
	} {
		resp := b.send(t, c.method, c.path, "", "Accept", c.accept)
		text, err := io.ReadAll(resp.Body)
		isProblem := resp.Header.Get("Content-Type") == "application/problem+json"
		if err != nil || resp.StatusCode != c.status || isProblem != (c.want == "") ||
			(c.want != "" && string(text) != c.want) {
			t.Errorf("%s %s for %s: %s %q, %v", c.method, c.path, c.accept, resp.Status, text, err)
		}
	}
}

package console

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
	r.URL.Path = path // as it is, without the cleaning of a client
	return r
}

func TestAssets(t *testing.T) {
	t.Parallel()
	c := New(fstest.MapFS{
		"index.html": {Data: []byte("page")}, "assets/a.1.js": {Data: []byte("a()")},
		"favicon.svg": {Data: []byte("<svg/>")},
		"key":         {Data: []byte("k")}, "README": {Data: []byte("r")},
	})
	for path, want := range map[string]string{
		"/assets/a.1.js": "a()", "/favicon.svg": "<svg/>",
		"/": "", "/index.html": "", "/key": "", "/README": "", "/assets": "", "/assets/": "", "/clusters/a": "",
		"/../site/key": "", "//etc/passwd": "", "/assets/../key": "", "/\x00": "",
	} {
		w := httptest.NewRecorder()
		found := c.Asset(w, request(t, http.MethodGet, path))
		if found != (want != "") || w.Body.String() != want || found != (w.Header().Get("Content-Type") != "") {
			t.Errorf("%q: %v %q %v", path, found, w.Body, w.Header())
		}
	}
}

func TestPageHasItsOwnNonce(t *testing.T) {
	t.Parallel()
	c := New(fstest.MapFS{"index.html": {
		Data: []byte(`<meta property="csp-nonce" nonce="__CSP_NONCE__">__CSP_NONCE__`),
	}})
	seen := map[string]bool{}
	for range 3 {
		w := httptest.NewRecorder()
		c.Page(w, request(t, http.MethodGet, "/plans/1"))
		found := regexp.MustCompile(`nonce="([A-Za-z0-9+/]{24})">([A-Za-z0-9+/]{24})$`).FindStringSubmatch(
			w.Body.String())
		if found == nil || found[1] != found[2] || seen[found[1]] {
			t.Fatalf("the page is %q, after %v", w.Body, seen)
		}
		seen[found[1]] = true
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "style-src 'self' 'nonce-"+found[1]+"';") || strings.Contains(policy, "unsafe") ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", w.Header())
		}
	}
	w := httptest.NewRecorder()
	if c.Page(w, request(t, http.MethodHead, "/")); w.Body.Len() > 0 || w.Code != http.StatusOK {
		t.Errorf("HEAD answers %d %q", w.Code, w.Body)
	}
}

func TestWithoutConsole(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	New(fstest.MapFS{"README": {Data: []byte("empty")}}).Page(w, request(t, http.MethodGet, "/"))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "make build") {
		t.Errorf("a director without its console answers %d %q", w.Code, w.Body)
	}
}

// What the built page loads is there, and is the director's own.
func TestBuiltConsole(t *testing.T) {
	t.Parallel()
	if _, err := fs.Stat(built, "site/index.html.gz"); err != nil {
		const missing = "the console is not built; web/console/build.sh builds it"
		if os.Getenv("KAAS_REQUIRE_REAL") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	c, w := Built(), httptest.NewRecorder()
	c.Page(w, request(t, http.MethodGet, "/"))
	text, err := io.ReadAll(w.Body)
	if err != nil || strings.Contains(string(text), placeholder) || !strings.Contains(string(text), "nonce=") {
		t.Fatalf("%v: %s", err, text)
	}
	loads := regexp.MustCompile(`<(?:script|link|img)[^>]*\s(?:src|href)="([^"]*)"`).FindAllStringSubmatch(string(text),
		-1)
	if len(loads) < 2 {
		t.Errorf("the page loads %v", loads)
	}
	for _, l := range loads {
		if !strings.HasPrefix(l[1], "/") || !c.Asset(httptest.NewRecorder(), request(t, http.MethodGet, l[1])) {
			t.Errorf("the page loads %s, which is not there", l[1])
		}
	}
	if inline := regexp.MustCompile(`<script(?:\s[^>]*)?>[^<]`).FindString(string(text)); inline != "" {
		t.Errorf("the policy stops the script %q", inline)
	}
}

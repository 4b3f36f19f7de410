package manual

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func compressed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testSite(t *testing.T) fs.FS {
	t.Helper()
	return fstest.MapFS{
		"index.html.gz": {
			Data: compressed(
				t, `<script>let a = 1</script><script type="module" src="/docs/assets/app.1.js"></script>start`,
			),
		},
		"use/nodes.html.gz":           {Data: compressed(t, "nodes")},
		"reference/index.html.gz":     {Data: compressed(t, "reference")},
		"404.html.gz":                 {Data: compressed(t, "no such page")},
		"assets/app.1.js.gz":          {Data: compressed(t, "app()")},
		"assets/picture.2.png":        {Data: []byte("\x89PNG")},
		"examples/roll/roll.sh.gz":    {Data: compressed(t, "#!/bin/sh")},
		"reference/openapi.yaml.gz":   {Data: compressed(t, "openapi: 3.1.0")},
		"reference/schemas/a.json.gz": {Data: compressed(t, "{}")},
	}
}

func get(t *testing.T, h http.Handler, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.URL.Path = path // as it is, without the cleaning of a client
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	h := Handler(testSite(t))
	const missing = "no such page"
	for path, want := range map[string]string{
		"/docs": "start", "/docs/": "start", "/docs/index.html": "start",
		"/docs/use/nodes": "nodes", "/docs/use/nodes.html": "nodes",
		"/docs/reference": "reference", "/docs/reference/": "reference",
		"/docs/assets/app.1.js":           "app()",
		"/docs/examples/roll/roll.sh":     "#!/bin/sh",
		"/docs/assets":                    missing, // no listing of a directory
		"/docs/assets/":                   missing,
		"/docs/use/":                      missing,
		"/docs/use/nodes.html.gz":         missing,
		"/docs/../site/index.html":        missing,
		"/docs/../../../../../etc/passwd": missing,
		"/docs//etc/passwd":               missing,
		"/docs/use/../index.html":         missing,
		"/docs/use\\..\\index.html":       missing,
		"/docs/\x00":                      missing,
	} {
		r := get(t, h, path)
		if text := body(
			t, r,
		); !strings.HasSuffix(text, want) || (r.StatusCode == http.StatusNotFound) != (want == missing) {
			t.Errorf("%q answers %d %q, want %q", path, r.StatusCode, text, want)
		}
	}
	if r := get(t, h, "/docsandmore"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a path beside the manual answers %d", r.StatusCode)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	h := Handler(testSite(t))
	page := get(t, h, "/docs/").Header
	// printf 'let a = 1' | openssl dgst -sha256 -binary | base64
	const want = "script-src 'self' 'sha256-LAfYd7pbFUgwfQu8b4q135PeTG2z+/coPEUYCd74eCQ=';"
	if p := page.Get(
		"Content-Security-Policy",
	); !strings.Contains(p, want) || !strings.HasPrefix(p, "default-src 'none'") || strings.Contains(p, "http") {
		t.Errorf("the policy is %s", p)
	}
	for path, mediaType := range map[string]string{
		"/docs/":                         "text/html; charset=utf-8",
		"/docs/assets/app.1.js":          "text/javascript; charset=utf-8",
		"/docs/examples/roll/roll.sh":    "text/plain; charset=utf-8",
		"/docs/reference/openapi.yaml":   "text/plain; charset=utf-8",
		"/docs/reference/schemas/a.json": "application/json",
		"/docs/assets/picture.2.png":     "image/png",
	} {
		h := get(t, h, path).Header
		if h.Get("Content-Type") != mediaType || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestOnlyReading(t *testing.T) {
	t.Parallel()
	h := Handler(testSite(t))
	for method, want := range map[string]int{
		http.MethodPost: 405, http.MethodPut: 405, http.MethodDelete: 405, http.MethodHead: 200,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/docs/use/nodes", nil))
		if w.Code != want || (method == http.MethodHead && w.Body.Len() > 0) {
			t.Errorf("%s answers %d with %q", method, w.Code, w.Body)
		}
	}
}

func TestWithoutManual(t *testing.T) {
	t.Parallel()
	r := get(t, Handler(fstest.MapFS{"README": {Data: []byte("empty")}}), "/docs/")
	if text := body(t, r); r.StatusCode != http.StatusNotFound || !strings.Contains(text, "make build") {
		t.Errorf("a director without its manual answers %d %q", r.StatusCode, text)
	}
}

// Every page of docs is in the manual that is built, and what a page loads is there and is the director's own.
func TestBuiltManual(t *testing.T) {
	t.Parallel()
	if _, err := fs.Stat(built, "site/index.html.gz"); err != nil {
		const missing = "the manual is not built; web/manual/build.sh builds it"
		if os.Getenv("KAAS_REQUIRE_REAL") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	h := Built()
	pages := []string{"/docs/", "/docs/changes", "/docs/develop/contributing", "/docs/reference/roles/drain"}
	for _, dir := range []string{"start", "use", "operate", "reference", "develop"} {
		found, err := filepath.Glob("../../docs/" + dir + "/*.md")
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", dir, found, err)
		}
		for _, f := range found {
			pages = append(pages, "/docs/"+dir+"/"+strings.TrimSuffix(filepath.Base(f), ".md"))
		}
	}
	loads := regexp.MustCompile(`<(?:script|link|img)[^>]*\s(?:src|href)="([^"]*)"`)
	for _, page := range pages {
		r := get(t, h, page)
		text := body(t, r)
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s answers %d", page, r.StatusCode)
		}
		for _, l := range loads.FindAllStringSubmatch(text, -1) {
			if r := get(t, h, l[1]); r.StatusCode != http.StatusOK || !strings.HasPrefix(l[1], "/docs/") {
				t.Errorf("%s loads %s, which answers %d", page, l[1], r.StatusCode)
			}
		}
	}
	if text, err := os.ReadFile(
		"../../docs/reference/openapi.yaml",
	); err != nil || body(t, get(t, h, "/docs/reference/openapi.yaml")) != string(text) {
		t.Errorf("the manual has another openapi.yaml than the repository: %v", err)
	}
}

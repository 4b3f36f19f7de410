package site

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
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

func load(t *testing.T) Files {
	t.Helper()
	files, err := Load(fstest.MapFS{
		"use/nodes.html.gz":  {Data: compressed(t, "nodes")},
		"assets/app.1.js.gz": {Data: compressed(t, "app()")},
		"picture.svg":        {Data: []byte("<svg/>")},
	})
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

func get(t *testing.T, files Files, name string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	files[name].Serve(w, r)
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

func TestCompressionAndCaching(t *testing.T) {
	t.Parallel()
	files := load(t)
	for accept, zipped := range map[string]bool{
		"": false, "gzip": true, "br, gzip;q=0.5": true, "*": true, "gzip;q=0": false, "gzip; q=0.000": false,
		"br": false, "identity": false,
	} {
		r := get(t, files, "use/nodes.html", "Accept-Encoding", accept)
		text := body(t, r)
		if zipped {
			plain, err := expand([]byte(text))
			if err != nil {
				t.Fatalf("%q: %v", accept, err)
			}
			text = string(plain)
		}
		if got := r.Header.Get(
			"Content-Encoding",
		) == "gzip"; got != zipped || text != "nodes" || r.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: compressed %v, %q, %v", accept, got, text, r.Header)
		}
	}
	first := get(t, files, "use/nodes.html")
	if again := get(
		t, files, "use/nodes.html", "If-None-Match", first.Header.Get("ETag"),
	); again.StatusCode != http.StatusNotModified {
		t.Errorf("asking again for what did not change answers %d", again.StatusCode)
	}
	if other := get(
		t, files, "use/nodes.html", "If-None-Match", first.Header.Get("ETag"), "Accept-Encoding", "gzip",
	); other.StatusCode != http.StatusOK {
		t.Errorf("the compressed form has the ETag of the plain one")
	}
	if c := first.Header.Get("Cache-Control"); c != "no-cache" {
		t.Errorf("a page is kept without asking: %s", c)
	}
	if c := get(t, files, "assets/app.1.js").Header.Get("Cache-Control"); !strings.Contains(c, "immutable") {
		t.Errorf("a file with a hash in its name is not kept: %s", c)
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	if files, err := Load(fstest.MapFS{"a.js.gz": {Data: []byte("no gzip")}}); err == nil {
		t.Errorf("a file that is not compressed gives %v", files)
	}
}

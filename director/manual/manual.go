// Package manual serves the manual that is built into the director. web/manual makes it from the Markdown pages of
// docs.
package manual

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Prefix is where a director serves its manual. The pages are built for it.
const Prefix = "/docs"

//go:embed all:site
var built embed.FS

// Built returns a handler of Prefix for the manual of this director. A director that was built without one says how to
// get it.
func Built() http.Handler {
	site, err := fs.Sub(built, "site")
	if err != nil {
		panic(err) // the name is constant, and valid
	}
	return Handler(site)
}

// Handler serves a built site below Prefix. Files with the suffix .gz are served under their name without it,
// compressed to clients that take gzip. The site must not change. It is read at the first request.
func Handler(site fs.FS) http.Handler {
	return &handler{load: sync.OnceValues(func() (map[string]*file, error) { return load(site) })}
}

type handler struct {
	load func() (map[string]*file, error)
}

// file is one file of the site, with what its answer says of it.
type file struct {
	plain      []byte
	compressed []byte // nil for what does not get smaller
	mediaType  string
	etag       string
	caching    string
	policy     string // what a page may load and run
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the manual can only be read", http.StatusMethodNotAllowed)
		return
	}
	files, err := h.load()
	if err != nil {
		http.Error(w, "the manual of this director is damaged", http.StatusInternalServerError)
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, Prefix)
	if !below || (name != "" && name[0] != '/') {
		http.NotFound(w, r)
		return
	}
	if files["index.html"] == nil {
		http.Error(w, "This director was built without its manual. 'make build' builds one that has it; the pages "+
			"are in the directory docs of the source.",
			http.StatusNotFound)
		return
	}
	if f := find(files, strings.TrimPrefix(name, "/")); f != nil {
		f.serve(w, r)
		return
	}
	f := files["404.html"]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	f.headers(w)
	w.WriteHeader(http.StatusNotFound)
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.plain)
	}
}

// find returns the file of a path: the file itself, the page of that name, or a directory's index. Only names of the
// site are found, so that no path leads out of it.
func find(files map[string]*file, name string) *file {
	for _, candidate := range []string{name, name + ".html", path.Join(name, "index.html")} {
		if f := files[candidate]; f != nil {
			return f
		}
	}
	return nil
}

func (f *file) headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Cache-Control", f.caching)
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", f.policy)
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	f.headers(w)
	content, etag := f.plain, f.etag
	if f.compressed != nil && takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		content, etag = f.compressed, f.etag+"-gz"
	}
	w.Header().Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// takesGzip reports whether the client accepts gzip. A quality of zero refuses it.
func takesGzip(r *http.Request) bool {
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if name == "gzip" || name == "*" {
			return strings.Trim(strings.TrimPrefix(quality, "q="), "0.") != "" || quality == ""
		}
	}
	return false
}

func load(site fs.FS) (map[string]*file, error) {
	files := map[string]*file{}
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f := &file{}
		if f.plain, err = fs.ReadFile(site, name); err != nil {
			return err
		}
		if bare, isCompressed := strings.CutSuffix(name, ".gz"); isCompressed {
			name, f.compressed = bare, f.plain
			if f.plain, err = expand(f.compressed); err != nil {
				return err
			}
		}
		f.describe(name)
		files[name] = f
		return nil
	})
	return files, err
}

func expand(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// mediaTypes do not depend on the tables of the machine that the director runs on.
var mediaTypes = map[string]string{
	".html":  "text/html; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".json":  "application/json",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".woff2": "font/woff2",
}

// describe sets what the answer says of the file. Names below assets hold a hash of the content, so that they may be
// kept for ever.
func (f *file) describe(name string) {
	sum := sha256.Sum256(f.plain)
	f.etag = hex.EncodeToString(sum[:12])
	f.caching = "no-cache" // ask again, and take the kept one if the ETag is the same
	if strings.HasPrefix(name, "assets/") {
		f.caching = "public, max-age=31536000, immutable"
	}
	f.mediaType = mediaTypes[path.Ext(name)]
	if f.mediaType == "" {
		f.mediaType = "text/plain; charset=utf-8" // shown, and never run
	}
	f.policy = "default-src 'none'; frame-ancestors 'none'; sandbox"
	if path.Ext(name) == ".html" {
		f.policy = policy(f.plain)
	}
}

var inlineScript = regexp.MustCompile(`(?s)<script(?:\s[^>]*)?>(.*?)</script>`)

// policy lets a page run the scripts of the director and those that it was built with, and load nothing from elsewhere.
// Colours of code are styles in the page, so that these are allowed.
func policy(page []byte) string {
	scripts := "'self'"
	for _, found := range inlineScript.FindAllSubmatch(page, -1) {
		if len(found[1]) > 0 {
			sum := sha256.Sum256(found[1])
			scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		}
	}
	return "default-src 'none'; script-src " + scripts +
		"; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Package manual serves the manual that is built into the director. web/manual makes it from the Markdown pages of
// docs.
package manual

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/director-kaas/kaas/director/site"
)

// Prefix is where a director serves its manual. The pages are built for it.
const Prefix = "/docs"

//go:embed all:site
var built embed.FS

// Built returns a handler of Prefix for the manual of this director. A director that was built without one says how to
// get it.
func Built() http.Handler {
	pages, err := fs.Sub(built, "site")
	if err != nil {
		panic(err) // the name is constant, and valid
	}
	return Handler(pages)
}

// Handler serves a built site below Prefix. Files with the suffix .gz are served under their name without it,
// compressed to clients that take gzip. The site must not change. It is read at the first request.
func Handler(built fs.FS) http.Handler {
	return &handler{load: sync.OnceValues(func() (site.Files, error) { return load(built) })}
}

type handler struct{ load func() (site.Files, error) }

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
		f.Serve(w, r)
		return
	}
	f := files["404.html"]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	f.Headers(w)
	w.WriteHeader(http.StatusNotFound)
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.Plain)
	}
}

// find returns the file of a path: the file itself, the page of that name, or a directory's index. Only names of the
// site are found, so that no path leads out of it.
func find(files site.Files, name string) *site.File {
	for _, candidate := range []string{name, name + ".html", path.Join(name, "index.html")} {
		if f := files[candidate]; f != nil {
			return f
		}
	}
	return nil
}

func load(built fs.FS) (site.Files, error) {
	files, err := site.Load(built)
	for name, f := range files {
		if path.Ext(name) == ".html" {
			f.Policy = policy(f.Plain)
		}
	}
	return files, err
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

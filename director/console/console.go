// Package console serves the web console that is built into the director. web/console makes it.
package console

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/director-kaas/kaas/director/site"
)

//go:embed all:site
var built embed.FS

// page is the file that every page of the console begins with.
const page = "index.html"

// placeholder is in the page where each answer has a nonce of its own. web/console/vite.config.ts sets it.
const placeholder = "__CSP_NONCE__"

// Console is a built console. All methods are safe for concurrent use.
type Console struct {
	load func() (site.Files, error)
}

// Built returns the console of this director.
func Built() *Console {
	files, err := fs.Sub(built, "site")
	if err != nil {
		panic(err) // the name is constant, and valid
	}
	return New(files)
}

// New returns the console of a built site, which is read at the first request.
func New(files fs.FS) *Console {
	return &Console{load: sync.OnceValues(func() (site.Files, error) { return site.Load(files) })}
}

// Asset answers with the file that the path names. It returns false, and answers nothing, if there is none.
func (c *Console) Asset(w http.ResponseWriter, r *http.Request) bool {
	files, err := c.load()
	name := strings.TrimPrefix(r.URL.Path, "/")
	f := files[name]
	if err != nil || f == nil || name == page || name == "key" || name == "README" {
		return false
	}
	f.Serve(w, r)
	return true
}

// Page answers with the page that shows what the path names. What the path names is for the page to find out: below
// every path it is the same one. A director that was built without its console says how to get it.
func (c *Console) Page(w http.ResponseWriter, r *http.Request) {
	files, err := c.load()
	if err != nil {
		http.Error(w, "the console of this director is damaged", http.StatusInternalServerError)
		return
	}
	f := files[page]
	if f == nil {
		http.Error(w, "This director was built without its console. 'make build' builds one that has it. The manual "+
			"is at /docs.",
			http.StatusNotFound)
		return
	}
	nonce := make([]byte, 18)
	_, _ = rand.Read(nonce) // never fails
	text := base64.StdEncoding.EncodeToString(nonce)
	f.Headers(w)
	h := w.Header()
	h.Set("Cache-Control", "no-store") // a nonce is for one answer
	h.Set("Content-Security-Policy", policy(text))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, bytes.NewReader(bytes.ReplaceAll(f.Plain, []byte(placeholder), []byte(text))))
	}
}

// policy lets the page run and load what the director serves. The nonce lets it add styles by itself.
func policy(nonce string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-" + nonce +
		"'; img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

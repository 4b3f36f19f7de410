// Package site serves static files that are built into the director.
package site

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// Files are the files of a site by their path in it. They do not change.
type Files map[string]*File

// File is one file of a site, with what its answer says of it.
type File struct {
	Plain  []byte
	Policy string // what a page may load and run

	compressed []byte // nil for what does not get smaller
	mediaType  string
	etag       string
	caching    string
}

// Load reads a built site. A file with the suffix .gz gets its name without it, and is sent compressed to clients that
// take gzip. Names below assets hold a hash of the content, so that browsers may keep those files for ever.
func Load(built fs.FS) (Files, error) {
	files := Files{}
	err := fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f := &File{}
		if f.Plain, err = fs.ReadFile(built, name); err != nil {
			return err
		}
		if bare, isCompressed := strings.CutSuffix(name, ".gz"); isCompressed {
			name, f.compressed = bare, f.Plain
			if f.Plain, err = expand(f.compressed); err != nil {
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

func (f *File) describe(name string) {
	sum := sha256.Sum256(f.Plain)
	f.etag = hex.EncodeToString(sum[:12])
	f.caching = "no-cache" // ask again, and take the kept one if the ETag is the same
	if strings.HasPrefix(name, "assets/") {
		f.caching = "public, max-age=31536000, immutable"
	}
	f.mediaType = mediaTypes[path.Ext(name)]
	if f.mediaType == "" {
		f.mediaType = "text/plain; charset=utf-8" // shown, and never run
	}
	f.Policy = "default-src 'none'; frame-ancestors 'none'; sandbox"
}

// Headers sets what every answer with the file says of it.
func (f *File) Headers(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Cache-Control", f.caching)
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", f.Policy)
}

// Serve answers with the file, or with 304 if the client has it.
func (f *File) Serve(w http.ResponseWriter, r *http.Request) {
	f.Headers(w)
	content, etag := f.Plain, f.etag
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

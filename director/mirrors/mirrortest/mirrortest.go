// Package mirrortest has a mirror for tests: a real HTTPS server with a certificate of its own, which can misbehave.
package mirrortest

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/bundle"
)

// Mirror serves one file at every path.
type Mirror struct {
	URL string // of the file
	CA  string // in PEM form

	mu     sync.Mutex
	file   []byte
	tag    string
	cut    int64 // bytes of an answer after which the connection ends; 0 for none
	ranges []string
	before func(w http.ResponseWriter, r *http.Request) bool
}

// Archive returns a file of that size that begins as the archive of a release bundle does.
func Archive(t testing.TB, size int) []byte {
	t.Helper()
	file := make([]byte, size)
	_, _ = rand.Read(file) // never fails
	clear(file[:512])
	copy(file, bundle.DocumentName)
	copy(file[257:], "ustar")
	return file
}

// Start starts a mirror with the file. It ends with the test.
func Start(t testing.TB, file []byte) *Mirror {
	t.Helper()
	m, end := New(file)
	t.Cleanup(end)
	return m
}

// New starts a mirror with the file, and returns what ends it.
func New(file []byte) (m *Mirror, end func()) {
	m = &Mirror{file: file, tag: `"one"`}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	m.URL = srv.URL + "/releases/k8s.tar"
	m.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	return m, srv.Close
}

// Cut ends each answer after so many bytes of the file; 0 ends none.
func (m *Mirror) Cut(after int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = after
}

// Change replaces the file and its entity tag. Without a tag the mirror says nothing of changes.
func (m *Mirror) Change(file []byte, tag string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.file, m.tag = file, tag
}

// Before is called with each request, and answers it unless it returns true.
func (m *Mirror) Before(f func(w http.ResponseWriter, r *http.Request) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = f
}

// Ranges returns the header Range of each request.
func (m *Mirror) Ranges() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string{}, m.ranges...)
}

func (m *Mirror) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.ranges = append(m.ranges, r.Header.Get("Range"))
	file, tag, cut, before := m.file, m.tag, m.cut, m.before
	m.mu.Unlock()
	if before != nil && !before(w, r) {
		return
	}
	if tag != "" {
		w.Header().Set("Etag", tag)
	}
	if cut > 0 {
		w = &cutter{w, cut}
	}
	http.ServeContent(w, r, "k8s.tar", time.Time{}, bytes.NewReader(file))
}

type cutter struct {
	http.ResponseWriter
	left int64
}

// Write writes until nothing is left, and then ends the connection.
func (c *cutter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.left)
	c.left -= n
	if _, err := c.ResponseWriter.Write(p[:n]); err != nil || n == int64(len(p)) {
		return int(n), err
	}
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
)

// mostTagged is how much of an answer is held back in memory to find its tag. A longer one has none.
const mostTagged = 4 << 20

// tagged gives an answer in JSON an entity tag, its hash, and answers 304 to a caller who has it already. An answer
// with a tag of its own, another type or a failure goes out as it is.
func tagged(ctx huma.Context, next func(huma.Context)) {
	g := humagin.Unwrap(ctx)
	out := g.Writer
	held := &tagWriter{ResponseWriter: out}
	g.Writer = held
	defer func() { g.Writer = out }()
	next(ctx)
	held.finish(tagsOf(ctx.Header("If-None-Match")))
}

// tagWriter holds the body of an answer back while the answer may get a tag.
type tagWriter struct {
	gin.ResponseWriter
	held bytes.Buffer
	open bool // nothing is held back any more
}

// Write holds a part of the body back, or sends it.
func (w *tagWriter) Write(b []byte) (int, error) {
	if w.open || !w.mayHold(len(b)) {
		if err := w.release(); err != nil {
			return 0, err
		}
		return w.ResponseWriter.Write(b)
	}
	return w.held.Write(b)
}

// WriteString is Write.
func (w *tagWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// Flush sends what was held back.
func (w *tagWriter) Flush() {
	_ = w.release() // the caller has gone; the next write says so again
	w.ResponseWriter.Flush()
}

// Unwrap is what http.ResponseController looks for.
func (w *tagWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *tagWriter) mayHold(more int) bool {
	h := w.Header()
	return w.Status() == http.StatusOK && h.Get("ETag") == "" &&
		strings.HasPrefix(h.Get("Content-Type"), typeJSON) && w.held.Len()+more <= mostTagged
}

func (w *tagWriter) release() error {
	w.open = true
	if w.held.Len() == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(w.held.Bytes())
	w.held = bytes.Buffer{}
	return err
}

// finish sends the answer with its tag, or 304 without a body if its tag is one of those.
func (w *tagWriter) finish(have []string) {
	if w.open || w.held.Len() == 0 {
		return
	}
	sum := sha256.Sum256(w.held.Bytes())
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
	w.Header().Set("ETag", tag)
	if slices.Contains(have, tag) || slices.Contains(have, "*") {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		w.WriteHeaderNow()
		return
	}
	_ = w.release() // the status is out: a failure is a caller who has gone
}

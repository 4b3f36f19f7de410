package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// What is too long to be held back, or is no JSON, goes out whole and without a tag.
func TestAnswersWithoutATag(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		contentType string
		parts       int
		tag         bool
	}{{typeJSON, 3, true}, {typeJSON, 5, false}, {"text/plain", 1, false}} {
		out := httptest.NewRecorder()
		g, _ := gin.CreateTestContext(out)
		g.Header("Content-Type", c.contentType)
		w := &tagWriter{ResponseWriter: g.Writer}
		for range c.parts {
			if _, err := w.WriteString(strings.Repeat("x", 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		w.finish(nil)
		if tag := out.Header().Get("ETag"); (tag != "") != c.tag || out.Body.Len() != c.parts<<20 {
			t.Errorf("%d MiB of %s: %d bytes with the tag %q", c.parts, c.contentType, out.Body.Len(), tag)
		}
	}
}

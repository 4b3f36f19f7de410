package api_test

import (
	"net/http"
	"strings"
	"testing"
)

// An answer that has not changed is not sent again; what it depends on is who asks for what, and how it is now.
func TestUnchangedAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fleet(t)
	for _, path := range []string{"/clusters", "/clusters/c1", "/plans?limit=2", "/users", "/schemas/Cluster"} {
		first := b.send(t, http.MethodGet, path, "")
		tag, body := first.Header.Get("ETag"), read(t, first)
		if first.StatusCode != http.StatusOK || tag == "" || body == "" {
			t.Fatalf("%s: %s with the tag %q", path, first.Status, tag)
		}
		for _, have := range []string{tag, "W/" + tag, `"another", ` + tag} {
			if r := b.send(t, http.MethodGet, path, "", "If-None-Match",
				have); r.StatusCode != http.StatusNotModified ||
				r.Header.Get("ETag") != tag || read(t, r) != "" {
				t.Errorf("%s with %s: %s", path, have, r.Status)
			}
		}
		if r := b.send(t, http.MethodGet, path, "", "If-None-Match", `"another"`); r.StatusCode != http.StatusOK ||
			read(t, r) != body {
			t.Errorf("%s with another tag: %s", path, r.Status)
		}
	}
	tag := b.send(t, http.MethodGet, "/clusters", "").Header.Get("ETag")
	if r := b.send(t, http.MethodGet, "/clusters?sort=-name", "", "If-None-Match", tag); r.StatusCode != http.StatusOK {
		t.Errorf("another question: %s", r.Status)
	}
	b.apply(t, "hold")
	if r := b.send(t, http.MethodGet, "/clusters", "", "If-None-Match", tag); r.StatusCode != http.StatusOK ||
		!strings.Contains(read(t, r), "demo") {
		t.Errorf("after a change: %s", r.Status)
	}
	b.token = ""
	if r := b.send(t, http.MethodGet, "/clusters", "", "If-None-Match", tag); r.StatusCode != http.StatusUnauthorized ||
		r.Header.Get("ETag") != "" {
		t.Errorf("without a token: %s", r.Status)
	}
}

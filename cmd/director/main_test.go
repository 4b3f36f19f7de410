package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
)

func TestEveryKindHasAnExitCode(t *testing.T) {
	t.Parallel()
	for _, k := range director.Kinds() {
		if exitCodes[k] == 0 {
			t.Errorf("kind %s has no exit code", k)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run([]string{"-version"}, &out); err != nil || !strings.HasPrefix(out.String(), "director ") {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	if err := run([]string{"-help"}, &out); err != nil || !strings.Contains(out.String(), "check-config") {
		t.Errorf("%q, %v", out.String(), err)
	}
	err := run([]string{"-config", "/nowhere/director.yaml"}, &out)
	if text := describe(
		err,
	); director.KindOf(err) != director.KindInvalid || !strings.Contains(text, "/nowhere/director.yaml") ||
		!strings.Contains(text, "next:") {
		t.Errorf("%q", text)
	}
}

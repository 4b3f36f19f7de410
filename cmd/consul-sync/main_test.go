package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
)

const valid = "owner: d1\ncluster: c1\nconsul: {addresses: [\"https://consul.example:8501\"]}\n"

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{valid: "", valid + "guard: {percent: 200}\n": "guard.percent"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := run(t.Context(), []string{"-config", file, "check-config"}, &out, &out)
		switch {
		case want == "" && (err != nil || !strings.Contains(out.String(), "valid")):
			t.Errorf("error %v, output %q", err, out.String())
		case want != "" && (err == nil || !strings.Contains(describe(err), want)):
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(valid), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-x"}, {"-config", file + "x"}, {"-config", file, "dance"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); director.KindOf(err) != director.KindInvalid {
			t.Errorf("%v: error = %v, want one of the kind invalid", args, err)
		}
	}
	for _, args := range [][]string{{"-version"}, {"-help"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err != nil || !strings.Contains(out.String(), "consul-sync") {
			t.Errorf("%v: error %v, output %q", args, err, out.String())
		}
	}
}

// Every kind has an exit code of its own table.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, k := range director.Kinds() {
		if exitCodes[k] == 0 {
			t.Errorf("the kind %s has no exit code", k)
		}
	}
}

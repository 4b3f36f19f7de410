// Package rootdisktest makes archives of upgrades for tests.
package rootdisktest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
)

// Archive writes an upgrade to the root, whose file system nothing reads, and returns the public key of who signed it.
func Archive(t testing.TB, path string, root rootdisk.Root) string {
	t.Helper()
	key, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"apiVersion": "kaas/v1", "kind": "Appliance", "metadata": map[string]any{"name": root.Version},
		"spec": map[string]any{
			"version": root.Version, "built": root.Built, "schema": root.Schema, "arch": "amd64",
			"root": map[string]any{"sha256": strings.Repeat("0", 64), "size": 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sig, err := key.Sign(text, rootdisk.Subject(root.Version))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, text := range [][]byte{text, sig, {}} {
		name := []string{rootdisk.ManifestName, rootdisk.ManifestName + signature.Suffix, rootdisk.RootName}[i]
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return key.Public()
}

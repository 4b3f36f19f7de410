package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/signature"
)

// The configuration that make demo writes is valid, and its notice says what the demo makes and where its kubeconfig
// is.
func TestNoticeOfTheDemo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	signer, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	release, image := filepath.Join(dir, "bundles", "release"), filepath.Join(dir, "images", "node.qcow2")
	for _, key := range []string{release + ".pub", image + ".pub"} {
		if err := os.MkdirAll(filepath.Dir(key), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(key, []byte(signer.Public()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	demo := filepath.Join(dir, "demo")
	cmd := exec.CommandContext(t.Context(), "../../test/demo/demo.sh", "config", release, image)
	cmd.Env = append(os.Environ(), "DEMO_DIR="+demo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := LoadConfig(filepath.Join(demo, "director.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	notice := c.settings().Notice
	for _, want := range []string{
		"cluster demo", "demo-master-1", "demo-worker-1", demo + "/kubeconfig",
		"To try next",
	} {
		if !strings.Contains(notice, want) {
			t.Errorf("the notice does not name %s: %s", want, notice)
		}
	}
}

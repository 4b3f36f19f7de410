package playbooks

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A directory of a role that is not embedded is missing only on nodes: here Ansible finds it beside the others.
func TestRolesAreEmbeddedWhole(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("roles", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() != "tests" || d.Name() == "README.md" {
			return err
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		if _, err := fs.Stat(FS(), path); err != nil && !strings.HasPrefix(d.Name(), ".") {
			t.Errorf("%s is not embedded", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

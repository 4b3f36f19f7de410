package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/playbooks"
)

// What a plan keeps holds the templates too, so another template is another tree, which is unpacked joined the former
// one.
func TestPlansKeepTheirTemplates(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"install.yml", inventory.TemplatesDir + "/hosts.ini.tmpl", inventory.TemplatesDir + "/group_vars/all.yml.tmpl",
	} {
		if _, err := fs.Stat(planTree(), name); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	unpack := func(tree joined) (hash, path string) {
		hash, path, err := ansible.Unpack(tree, dir)
		if err != nil {
			t.Fatal(err)
		}
		return hash, path
	}
	now := planTree().(joined)
	hash, path := unpack(now)
	next := now
	next.sub = fstest.MapFS{"hosts.ini.tmpl": {Data: []byte("[another]\n")}}
	if other, _ := unpack(next); other == hash {
		t.Error("another template does not make another tree")
	}
	text, err := os.ReadFile(filepath.Join(path, inventory.TemplatesDir, "hosts.ini.tmpl"))
	if err != nil || len(text) == 0 {
		t.Errorf("the former tree has lost its templates: %v", err)
	}
	if _, err := inventory.TemplatesOf(path); err != nil {
		t.Error(err)
	}
	if alone, _, err := ansible.Unpack(playbooks.FS(), dir); err != nil || alone == hash {
		t.Errorf("the playbooks alone have the same hash: %v", err)
	}
}

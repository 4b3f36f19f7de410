package playbooks

import (
	"io/fs"
	"path/filepath"
	"regexp"
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

// A run that is limited to some nodes knows the address of the others alone.
func TestOfOtherNodesOnlyTheAddressIsRead(t *testing.T) {
	t.Parallel()
	reads := regexp.MustCompile(`groups\['(?:cluster|worker)'\][^}]*?'extract',\s*hostvars,\s*([^)]*)\)`)
	found := 0
	err := fs.WalkDir(FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(FS(), path)
		for _, m := range reads.FindAllSubmatch(text, -1) {
			found++
			if string(m[1]) != "'node_ip'" {
				t.Errorf("%s reads %s of all nodes", path, m[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("%d places, %v: this test looks for the wrong words", found, err)
	}
}

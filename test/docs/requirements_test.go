package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const requirements = "docs/develop/requirements.md"

// The tests and scripts that the table of requirements names exist.
func TestProofsExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, requirements))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range function.FindAllSubmatch(source, -1) {
			tests[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| [A-D]\d+ \|`).FindAllString(string(text), -1)
	if len(rows) != 43 {
		t.Errorf("the page has %d requirements", len(rows))
	}
	for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		switch name := found[1]; {
		case strings.HasPrefix(name, "Test"):
			if !tests[name] {
				t.Errorf("%s names %s, which is no test", requirements, name)
			}
		case strings.Contains(name, "/"):
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s: %v", requirements, name, err)
			}
		}
	}
}

// Ids of requirements are for the people who build the director, and are in one page alone.
func TestIDsOfRequirementsAreInOnePage(t *testing.T) {
	t.Parallel()
	pages, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`\b[A-D]\d{1,2}\b`)
	for _, page := range pages {
		for _, line := range page.Lines {
			if found := id.FindString(line.Text); found != "" && page.Path != requirements {
				t.Errorf("%s:%d: %s is the id of a requirement", page.Path, line.Number, found)
			}
		}
	}
}

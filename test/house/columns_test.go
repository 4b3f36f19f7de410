package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// key is why most files in wide are as they are.
const key = "part of the key of what it builds, which takes minutes: it is wrapped when it changes"

// wide lists the files that may have longer lines, each with its reason. A name that ends with a slash is a directory,
// and stands for all below it. Go and Markdown are not looked at here: the linter lll holds Go, but for struct tags,
// and TestColumnsOfProse Markdown. Nor are JSON, module and lock files, which programs write, and SQL: a migration that
// was applied does not change.
var wide = map[string]string{
	"docs/reference/openapi.yaml":              "generated",
	"director/inventory/testdata/":             "what the director writes for Ansible: a value is a line",
	"director/model/testdata/bad.txt":          "what the director says of bad documents: a message is a line",
	"images/common/":                           key,
	"images/director/files/boot/grub/slot.cfg": "the kernel's command line is a line",
	"images/node/files/":                       key,
	"images/node/finish.sh":                    key,
	"images/release/calico-node/":              key,
	"images/release/recipes/":                  key,
	"images/release/releases/":                 key,
	"playbooks/ansible.cfg":                    "an option of ssh's command line is a line",
	"test/consul/build.sh":                     key,
	"test/kube-bench/build.sh":                 key,
	"test/stepca/build.sh":                     key,
}

// looksInto lists directories of ours that other tests pass over, and built the directories that hold what was built.
var (
	looksInto = []string{"testdata", ".vitepress", ".github"}
	built     = []string{"dist", "site", "cache"}
)

// languages are those of the files that this test looks at, by how their names end.
var languages = map[string]string{
	".py": "Python", ".yml": "YAML", ".yaml": "YAML", ".sh": "shell", ".j2": "template", ".tmpl": "template",
	".ts": "TypeScript", ".tsx": "TypeScript", ".js": "TypeScript", ".css": "TypeScript", ".html": "TypeScript",
	".txtar": "script of tests", ".txt": "text", ".cfg": "text", ".conf": "text",
}

var shebang = regexp.MustCompile(`^#!.*\b(ba)?sh\b`)

// script tells the language of a file that this test looks at, empty for another.
func script(name, text string) string {
	base, extension := filepath.Base(name), filepath.Ext(name)
	switch {
	case base == "Makefile" || base == "README":
		return "text"
	case strings.HasSuffix(name, ".d.ts"): // written by a program
		return ""
	case extension == "" && shebang.MatchString(text):
		return "shell"
	}
	return languages[extension]
}

// isWide tells whether a file may have long lines, and by which name in wide.
func isWide(path string) (string, bool) {
	for name := range wide {
		if path == name || strings.HasSuffix(name, "/") && strings.HasPrefix(path, name) {
			return name, true
		}
	}
	return "", false
}

// columns is how wide a line is, with four columns for a tab.
func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

// tooWide returns the numbers of the lines that have more columns than are allowed.
func tooWide(text string) []int {
	var long []int
	for i, line := range strings.Split(text, "\n") {
		if columns(line) > maxColumns {
			long = append(long, i+1)
		}
	}
	return long
}

// TestColumnsOfScripts holds what is neither Go nor prose to the columns of both.
func TestColumnsOfScripts(t *testing.T) {
	t.Parallel()
	looked, used := map[string]int{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && (!ours(entry.Name()) && !slices.Contains(looksInto, entry.Name()) ||
				slices.Contains(built, entry.Name())) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || filepath.Ext(path) != "" && script(path, "") == "" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		language := script(relative, string(text))
		if language == "" {
			return nil
		}
		looked[language]++
		long := tooWide(string(text))
		if name, ok := isWide(relative); ok {
			used[name] = used[name] || len(long) > 0
			return nil
		}
		for _, n := range long {
			t.Errorf("%s:%d: the line has more than %d columns", relative, n, maxColumns)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for language, some := range map[string]int{
		"Python": 40, "shell": 40, "YAML": 100, "template": 20, "TypeScript": 100, "script of tests": 20, "text": 10,
	} {
		if looked[language] < some {
			t.Errorf("looked at %d files of %s, which cannot be all", looked[language], language)
		}
	}
	for name, reason := range wide {
		if !used[name] || reason == "" {
			t.Errorf("%s has no long line or no reason: remove it from the wide files", name)
		}
	}
}

func TestTooWide(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("ä", maxColumns)
	if got := tooWide(fits + "\n" + fits + "b\n"); len(got) != 1 || got[0] != 2 {
		t.Errorf("lines %v are too wide, want 2", got)
	}
	for name, want := range map[string]string{
		"a.py": "Python", "a.yaml": "YAML", "a.sh": "shell", "a": "shell", "a.go": "",
		"a.j2": "template", "a.tsx": "TypeScript", "testdata/a.txtar": "script of tests", "Makefile": "text",
	} {
		if got := script(name, "#!/usr/bin/env bash\n"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := columns("\tä"); got != 5 {
		t.Errorf("a tab and a letter have %d columns", got)
	}
	if got := script("words", "# words"); got != "" {
		t.Errorf("a text is %q", got)
	}
}

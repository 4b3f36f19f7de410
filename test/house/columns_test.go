package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// wide lists the files that may have longer lines, each with its reason. A name that ends with a slash is a directory,
// and stands for the scripts below it.
var wide = map[string]string{
	"docs/reference/openapi.yaml": "generated",
	"images/": "a script that goes into an image has the image's key: it is wrapped " +
		"when it changes",
	"test/consul/build.sh":     "part of the key of what it builds",
	"test/kube-bench/build.sh": "part of the key of what it builds",
	"test/stepca/build.sh":     "part of the key of what it builds",
}

var shebang = regexp.MustCompile(`^#!.*\b(ba)?sh\b`)

// script tells the language of a file that this test looks at: Python, shell or YAML; empty for another.
func script(name, text string) string {
	switch filepath.Ext(name) {
	case ".py":
		return "Python"
	case ".yml", ".yaml":
		return "YAML"
	case ".sh":
		return "shell"
	case "":
		if shebang.MatchString(text) {
			return "shell"
		}
	}
	return ""
}

// isWide tells whether a file may have long lines, and by which name in wide.
func isWide(path, language string) (string, bool) {
	for name := range wide {
		if path == name || strings.HasSuffix(name, "/") && language == "shell" && strings.HasPrefix(path, name) {
			return name, true
		}
	}
	return "", false
}

// tooWide returns the numbers of the lines that have more columns than are allowed.
func tooWide(text string) []int {
	var long []int
	for i, line := range strings.Split(text, "\n") {
		if utf8.RuneCountInString(line) > maxColumns {
			long = append(long, i+1)
		}
	}
	return long
}

// TestColumnsOfScripts holds Python, shell and YAML to the columns that a linter holds Go to, and another test prose.
func TestColumnsOfScripts(t *testing.T) {
	t.Parallel()
	looked, used := map[string]int{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && !ours(entry.Name()) {
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
		if name, ok := isWide(relative, language); ok {
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
	if looked["Python"] < 40 || looked["shell"] < 40 || looked["YAML"] < 100 {
		t.Errorf("looked at %v files, which cannot be all", looked)
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
	} {
		if got := script(name, "#!/usr/bin/env bash\n"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := script("README", "# words"); got != "" {
		t.Errorf("a text is %q", got)
	}
}

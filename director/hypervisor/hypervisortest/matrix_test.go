package hypervisortest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/test/tree"
)

var update = flag.Bool("update", false, "write docs/reference/backends.md")

// The page says what the columns say. The columns are held to their runs by ExerciseColumn.
func TestBackendsPage(t *testing.T) {
	t.Parallel()
	dir := tree.Path(t, columnsDir)
	want, err := render(dir)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(pagePath(dir), want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(pagePath(dir))
	if diff := cmp.Diff(string(want), string(got)); diff != "" || err != nil {
		t.Errorf("docs/reference/backends.md is stale; make generate writes it anew: %v (-want +got):\n%s", err, diff)
	}
}

// A column has no line of a case that is not there any more, and those that every test run writes have all.
func TestColumns(t *testing.T) {
	t.Parallel()
	dir, known := tree.Path(t, columnsDir), map[string]bool{}
	for _, about := range rows() {
		known[about] = true
	}
	for _, c := range columns {
		lines, err := readColumn(dir, c.file)
		if err != nil {
			t.Fatal(err)
		}
		for about := range lines {
			if !known[about] {
				t.Errorf("column %s: there is no %s", c.file, about)
			}
		}
		if c.file != "libvirt" && len(lines) != len(known) {
			t.Errorf("column %s has %d lines of %d; make generate writes it anew", c.file, len(lines), len(known))
		}
	}
}

// What was skipped is numbered once for each reason, and what was never run is empty.
func TestRender(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := outcomes{lines: map[string]string{
		"capability Imaging": "true", "capability Console": "false", "case ensure/idempotent": passed,
		"case get/adapters": skipped + " it cannot", "case console/tail": skipped + " it cannot",
	}}
	if err := os.MkdirAll(filepath.Dir(pagePath(filepath.Join(dir, "a", "b", "c", "d"))), 0o755); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "a", "b", "c", "d")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := o.write(at, "sim"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pagePath(at))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `Imaging` | keeps images for cloning | yes |  |  |  |", "| `Console` | shows what the guest printed at " +
			"boot | no |",
		"| `ensure/idempotent` | a second call returns the same VM | passed |  |  |  |",
		"the networks of a VM are reported | (1) |", "what a guest printed at boot | (1) |",
		"\n1. it cannot\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "2. ") {
		t.Errorf("a reason is there twice:\n%s", page)
	}
}

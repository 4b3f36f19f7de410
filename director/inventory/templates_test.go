package inventory

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
)

// treeWith is a tree of playbooks whose templates have another text after their variables.
func treeWith(t testing.TB, more string) (tree string) {
	t.Helper()
	tree = t.TempDir()
	dir := filepath.Join(tree, TemplatesDir)
	if err := os.CopyFS(dir, inventorytemplates.FS()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, schemaFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(more); err != nil {
		t.Fatal(err)
	}
	return tree
}

// A tree with the variables of this binary shares them, and one with others has its own.
func TestTreesShareVariables(t *testing.T) {
	t.Parallel()
	same, err := TemplatesOf(treeWith(t, ""))
	if err != nil || same.schema != theSchema() {
		t.Errorf("the same variables were read again (%v)", err)
	}
	other, err := TemplatesOf(treeWith(t, "  - {name: of_another_version, type: string, doc: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	named := func(v Variable) bool { return v.Name == "of_another_version" }
	if !slices.ContainsFunc(other.schema.list, named) || slices.ContainsFunc(Variables(), named) {
		t.Error("the variables of the other tree are not its own")
	}
	if _, err := TemplatesOf(treeWith(t, "  - {nothing: known}\n")); err == nil {
		t.Error("a tree that is damaged was read")
	}
}

func BenchmarkTemplatesOf(b *testing.B) {
	for name, more := range map[string]string{"same": "", "other": "# of another version\n"} {
		b.Run(name, func(b *testing.B) {
			for tree := treeWith(b, more); b.Loop(); {
				if _, err := TemplatesOf(tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRender(b *testing.B) {
	in := large()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

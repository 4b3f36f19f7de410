package inventory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/director-kaas/kaas/director"
	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
)

// TemplatesDir is where a tree of playbooks has the templates that belong to it.
const TemplatesDir = "inventory-templates"

// Templates are the templates of inventories with the schema of their variables. They belong to the playbooks: a plan
// that was made with one version of both runs with that version to its end.
type Templates struct {
	files  fs.FS
	schema *schema
}

// own are the templates of this binary.
var own = sync.OnceValue(func() Templates { return Templates{inventorytemplates.FS(), theSchema()} })

// TemplatesOf returns the templates of an unpacked tree of playbooks. A tree of a director from before trees had
// templates is rendered with this binary's. Errors: internal if the tree is damaged.
func TemplatesOf(tree string) (Templates, error) {
	dir := filepath.Join(tree, TemplatesDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return own(), nil
	}
	files := os.DirFS(dir)
	s, err := readSchema(files)
	if err != nil {
		return Templates{}, director.Errorf(
			director.KindInternal, op, "the templates in %s cannot be read: %w", dir, err,
		).
			WithHint("remove the directory %s and start the director again, which unpacks it", tree)
	}
	return Templates{files, s}, nil
}

// Render is Templates.Render with the templates of this binary.
func Render(in Input) (Files, error) { return own().Render(in) }

package inventory

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"text/template"

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

func (t Templates) execute(name string, data map[string]any, values map[string]any) ([]byte, error) {
	parsed, err := t.parse(name)
	if err != nil {
		return nil, err
	}
	return execute(parsed, data, values)
}

func (t Templates) parse(name string) (*template.Template, error) {
	parsed, err := template.New(path.Base(name)).Option("missingkey=error").Funcs(varFunc(nil)).ParseFS(t.files, name)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the template %s cannot be read: %w", name, err)
	}
	return parsed, nil
}

// varFunc is what templates write variables with.
func varFunc(values map[string]any) template.FuncMap {
	return template.FuncMap{"var": func(names ...string) (string, error) { return lines(values, names) }}
}

// execute renders a template. The same template may not be rendered by two callers at once.
func execute(parsed *template.Template, data map[string]any, values map[string]any) ([]byte, error) {
	var out bytes.Buffer
	if err := parsed.Funcs(varFunc(values)).Execute(&out, data); err != nil {
		return nil, director.Errorf(
			director.KindInternal, op, "the template %s cannot be rendered: %w", parsed.Name(), err,
		)
	}
	return out.Bytes(), nil
}

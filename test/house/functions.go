// Package house reads the source for the tests that hold rules no linter in use can hold.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// Function is a function of the source.
type Function struct {
	Name  string // "director/plan.(*Plan).Step"
	Lines int    // from "func" to the last brace
	Test  bool   // in a _test.go
	// Type is the type that it is a method of, such as "director/plan.Plan"; empty for a function.
	Type string
}

// Functions lists every function below root, those in nested modules included. It leaves out generated files and what
// is no source of this project.
func Functions(root string) ([]Function, error) {
	var all []Function
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && !ours(name) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		functions, err := functionsOf(path, filepath.ToSlash(relative), nil)
		all = append(all, functions...)
		return err
	})
	return all, err
}

// ours tells whether a directory of this name may hold source of the project.
func ours(name string) bool {
	return name != "node_modules" && name != "testdata" && name != "bin" && !strings.HasPrefix(name, ".")
}

// functionsOf lists the functions of one file: those with a name, and the literals outside of them, which have the name
// of their variable. src is what go/parser takes: nil reads the file.
func functionsOf(path, relative string, src any) ([]Function, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	dir := relative[:max(strings.LastIndex(relative, "/"), 0)]
	var all []Function
	add := func(name string, node ast.Node) *Function {
		lines := fset.Position(node.End()).Line - fset.Position(node.Pos()).Line + 1
		all = append(all, Function{Name: dir + "." + name, Lines: lines, Test: strings.HasSuffix(path, "_test.go")})
		return &all[len(all)-1]
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			of := receiver(fn)
			f := add(of+fn.Name.Name, fn)
			if of != "" {
				f.Type = dir + "." + strings.Trim(of, "(*).")
			}
			continue
		}
		for _, spec := range decl.(*ast.GenDecl).Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			ast.Inspect(value, func(node ast.Node) bool {
				literal, ok := node.(*ast.FuncLit)
				if ok {
					add(value.Names[0].Name, literal)
				}
				return !ok
			})
		}
	}
	return all, nil
}

// receiver is "(*T)." for a method and "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	star, t := "", fn.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		star, t = "*", pointer.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	return "(" + star + t.(*ast.Ident).Name + ")."
}

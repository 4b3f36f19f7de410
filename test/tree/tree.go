// Package tree finds the files of the project for its tests.
package tree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file of the project, which is named from the project's root with slashes, wherever in the
// tree the test runs. It does not look whether the file exists. The test fails if it runs outside of the tree.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	root, err := root()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}

// root is asked of the working directory: programs are built without the paths of their source, so that a build in
// another clone is not repeated.
func root() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
	}
	return "", errors.New("the tree is not here; run the test in the directory of its package")
}

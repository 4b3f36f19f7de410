// Package confine keeps what documents name inside of what the configuration allows: files below certain directories,
// and addresses of certain networks.
package confine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dirs are the directories that files may lie in, by absolute paths. None allows no file.
type Dirs []string

// ErrOutside is in errors about files that are in none of the directories. Whether such a file exists is never told.
var ErrOutside = errors.New("outside of the allowed directories")

// Check tells by its name alone whether a path is below one of the directories.
func (d Dirs) Check(path string) error {
	_, err := d.dir(path)
	return err
}

// dir returns the directory that the path is below.
func (d Dirs) dir(path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", fmt.Errorf("%q is not a clean absolute path: %w", path, ErrOutside)
	}
	for _, dir := range d {
		if dir = filepath.Clean(dir); below(dir, path) {
			return dir, nil
		}
	}
	if len(d) == 0 {
		return "", fmt.Errorf(
			"%s is not in a directory that the director reads such files from: there is none: %w", path, ErrOutside,
		)
	}
	return "", fmt.Errorf("%s is not below %s: %w", path, strings.Join(d, " or "), ErrOutside)
}

func below(dir, path string) bool {
	return dir == "/" && path != "/" || strings.HasPrefix(path, dir+"/")
}

// Find returns where the file or directory is when all symbolic links are followed. Links that lead out of the
// directories are refused.
func (d Dirs) Find(path string) (string, error) {
	dir, err := d.dir(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	for _, dir := range append(Dirs{dir}, d...) {
		if root, err := filepath.EvalSymlinks(dir); err == nil && below(root, real) {
			return real, nil
		}
	}
	return "", fmt.Errorf("%s leads out of %s: %w", path, dir, ErrOutside)
}

// Open opens a regular file below one of the directories for reading.
func (d Dirs) Open(path string) (*os.File, error) {
	real, err := d.Find(path)
	if err != nil {
		return nil, err
	}
	return Open(real)
}

// ErrNotRegular is in errors about what is no regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file for reading. It neither waits for the other end of a FIFO nor touches a device.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become another one since
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read reads a regular file of at most that many bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", most)}
	}
	return text, err
}

// Package whole replaces files in one step: who reads one, also after a crash, sees the former content or the new one.
package whole

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Temporary begins the names of files that are not whole yet. A process that is killed may leave one behind.
const Temporary = ".new-"

// Write replaces the file by one with this text and mode. When it returns nil, the file survives a loss of power. When
// it fails, the former file is as it was. The directory has to be there.
func Write(path string, text []byte, mode fs.FileMode) error {
	return WriteBy(filepath.Dir(path), path, text, mode)
}

// WriteBy is Write, with the file that is not whole yet in another directory of the same file system.
func WriteBy(dir, path string, text []byte, mode fs.FileMode) error {
	return fill(temporaryIn(dir), path, mode, os.Rename, writer(text))
}

// Fill is Write with what is written by a function. Only the owner can read the file until the function has returned.
// The function may give it to another owner. Its error is returned among others, if not alone.
func Fill(path string, mode fs.FileMode, write func(f *os.File) error) error {
	return fill(temporaryIn(filepath.Dir(path)), path, mode, os.Rename, write)
}

// FillBy is Fill for large files that have one writer at a time. The file that is not whole yet has the name part: what
// a process that was killed has left of it is written over, and does not take up space for ever.
func FillBy(part, path string, mode fs.FileMode, write func(f *os.File) error) error {
	return fill(func() (*os.File, error) {
		return os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	}, path, mode, os.Rename, write)
}

// Add is Write for a file that must not replace another: if there is one, it stays, and Add returns fs.ErrExist.
func Add(path string, text []byte, mode fs.FileMode) error {
	return fill(temporaryIn(filepath.Dir(path)), path, mode, os.Link, writer(text))
}

func temporaryIn(dir string) func() (*os.File, error) {
	return func() (*os.File, error) { return os.CreateTemp(dir, Temporary) } // mode 0600
}

func writer(text []byte) func(*os.File) error {
	return func(f *os.File) error {
		_, err := f.Write(text)
		return err
	}
}

func fill(
	open func() (*os.File, error), path string, mode fs.FileMode, place func(from, to string) error,
	write func(*os.File) error,
) error {
	f, err := open()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone after a rename
	err = write(f)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir brings what the directory lists to the disk: after it, files that were made, renamed or removed there are so
// after a loss of power as well.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

package daemon

import (
	"io/fs"
	"strings"

	"github.com/director-kaas/kaas/director/inventory"
	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
	"github.com/director-kaas/kaas/playbooks"
)

// planTree is what plans keep by its hash: the playbooks, with the templates of the inventories that are made for them.
func planTree() fs.FS {
	return joined{root: playbooks.FS(), name: inventory.TemplatesDir, sub: inventorytemplates.FS()}
}

// joined is a tree that has another tree in a directory of its root.
type joined struct {
	root fs.FS
	name string
	sub  fs.FS
}

// Open opens a file of either tree.
func (b joined) Open(name string) (fs.File, error) {
	if name == b.name {
		return b.sub.Open(".")
	}
	if rest, ok := strings.CutPrefix(name, b.name+"/"); ok {
		return b.sub.Open(rest)
	}
	return b.root.Open(name)
}

// ReadDir lists a directory in the order of names.
func (b joined) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == b.name {
		return fs.ReadDir(b.sub, ".")
	}
	if rest, ok := strings.CutPrefix(name, b.name+"/"); ok {
		return fs.ReadDir(b.sub, rest)
	}
	list, err := fs.ReadDir(b.root, name)
	if err != nil || name != "." {
		return list, err
	}
	info, err := fs.Stat(b.sub, ".")
	if err != nil {
		return nil, err
	}
	entry := named{fs.FileInfoToDirEntry(info), b.name}
	at := 0
	for at < len(list) && list[at].Name() < b.name {
		at++
	}
	return append(list[:at:at], append([]fs.DirEntry{entry}, list[at:]...)...), nil
}

// named is an entry under another name.
type named struct {
	fs.DirEntry
	name string
}

// Name returns the name in the tree.
func (n named) Name() string { return n.name }

// Package inventorytemplates carries the templates of inventories and the schema of their variables inside the binary.
package inventorytemplates

import (
	"embed"
	"io/fs"
)

//go:embed hosts.ini.tmpl group_vars/all.yml.tmpl host_vars/host.yml.tmpl variables.yml
var tree embed.FS

// FS returns the templates and variables.yml. It is read-only and the same for the life of the binary.
func FS() fs.FS { return tree }

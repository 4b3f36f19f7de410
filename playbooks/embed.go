// Package playbooks carries the Ansible playbooks, roles and plugins inside the binary.
package playbooks

import (
	"embed"
	"io/fs"
)

// The patterns name what a run needs. Tests, lint settings and this file stay out, so that changing them does not
// change the hash that a plan keeps.
//
//go:embed ansible.cfg *.yml collections install/*.yml vars/*.yml library/*.py module_utils/*.py callback_plugins/*.py
//go:embed roles/*/defaults roles/*/files roles/*/meta roles/*/tasks roles/*/templates roles/*/vars
var tree embed.FS

// FS returns the tree of playbooks. It is read-only and the same for the life of the binary; ansible.Unpack hashes it
// and lays it out on disk.
func FS() fs.FS { return tree }

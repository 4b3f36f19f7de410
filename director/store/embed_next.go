//go:build nextschema

package store

import "embed"

// A director that is built with the tag nextschema knows one more version of the schema. Tests of the appliance upgrade
// to it, and return from it. No image has it.
//
//go:embed migrations next
var migrations embed.FS

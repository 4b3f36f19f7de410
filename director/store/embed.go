//go:build !nextschema

package store

import "embed"

//go:embed migrations
var migrations embed.FS

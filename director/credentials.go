package director

import "time"

// Credentials are an account by which the director gets into a provider. Providers name them, so that a password is
// changed without touching a provider or a cluster.
type Credentials struct {
	Name     string
	User     string
	Password Secret
	Revision int64 // counts changes, from 1
	Created  time.Time
	Updated  time.Time
	By       string // who changed them last
}

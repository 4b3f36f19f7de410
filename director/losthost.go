package director

import "time"

// LostHost is a hypervisor host of which an administrator has said that it is off, or cut off for good. The director
// asks it nothing until it answers again.
type LostHost struct {
	Provider string
	Host     string
	By       string // who said so
	Plan     string // with which it was said
	At       time.Time
}

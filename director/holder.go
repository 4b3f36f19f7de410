package director

import "time"

// Holder is who is in the way of a request: the plan that holds a cluster. Answers carry it as fields, so that programs
// need not read it out of a sentence.
type Holder struct {
	Plan      string
	Cluster   string
	Operation string
	Status    string
	By        string    // who started it
	Since     time.Time // when it was started
}

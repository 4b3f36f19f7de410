package plan

import "time"

// View is a plan with the state of its run.
type View struct {
	Plan    Plan
	State   State
	Waits   []Wait    // only of a single plan, not in lists
	Expires time.Time // of a plan that has not started
}

// Item is a plan as a list shows it: without its steps.
type Item struct {
	View
	Done, Total int // steps
}

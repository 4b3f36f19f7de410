package director

import (
	"fmt"
	"time"
)

// Allowance is how many VMs may be made in any span of time: what stops a wrong model from making VMs without end.
type Allowance struct {
	Provider string // that it is for; empty for all together
	Most     int
	Per      time.Duration
	Field    string // where it is set, for people: spec.budget of Provider/lab
}

// String renders the allowance for people.
func (a Allowance) String() string {
	return fmt.Sprintf("%d VMs in %s by %s", a.Most, a.Per, a.Field)
}

// Creation is a VM that a step is about to ask a hypervisor for.
type Creation struct {
	Plan, Step, Provider, Machine string
}

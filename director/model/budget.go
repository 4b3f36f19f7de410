package model

import (
	"time"
)

// Budget stops a wrong model from making VMs without end: what is over it waits.
type Budget struct {
	Creations int      `json:"creations,omitempty" doc:"VMs that may be made in any span of the length of per, over all clusters. Zero means no limit but the director's own." min:"1" max:"100000"`
	Per       Duration `json:"per,omitempty" doc:"The span; 1h if it is left out." min:"1m" max:"744h"`
}

// Span returns the length of the budget's span.
func (b Budget) Span() time.Duration {
	if b.Per == 0 {
		return time.Hour
	}
	return time.Duration(b.Per)
}

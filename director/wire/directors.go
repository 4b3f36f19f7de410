package wire

import (
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// DirectorPlanRequest asks for a plan of another director's VM.
type DirectorPlanRequest struct {
	Operation string `json:"operation" doc:"What the plan is for." enum:"director.create,director.upgrade,director.delete"`
	// DeleteData is an agreement of its own: without it the data disk outlives the VM.
	DeleteData bool `json:"delete_data,omitempty" doc:"For director.delete: also destroy the data disk. The plan names it for approval; without it the disk is kept."`
	Unready    bool `json:"unready,omitempty" doc:"For director.upgrade: the word of a person that the director is not asked before whether it is ready."`
}

// Request converts what was asked for.
func (r DirectorPlanRequest) Request() plan.Request {
	return plan.Request{Operation: plan.Operation(r.Operation), DeleteData: r.DeleteData, Unready: r.Unready}
}

// DirectorVM is another director, whose VM this one makes.
type DirectorVM struct {
	Name        string    `json:"name"`
	Generation  int64     `json:"generation" doc:"Generation of its document."`
	CreatedAt   time.Time `json:"created_at" doc:"When its document was stored first."`
	Provider    string    `json:"provider"`
	Status      string    `json:"status" enum:"absent,creating,ready,deleting" doc:"ready: it was when its VM was made. It is not asked."`
	Host        string    `json:"host,omitempty" doc:"Hypervisor host of its VM."`
	Address     string    `json:"address,omitempty"`
	Endpoint    string    `json:"endpoint,omitempty" doc:"Of its pages and its API, by its host name. Absent before it was ready."`
	Certificate string    `json:"certificate,omitempty" doc:"That its VM was given, with its chain, in PEM. Absent before it was made."`
	Outdated    bool      `json:"outdated,omitempty" doc:"Its document asks for another image, or another size, than its VM was made of: director.upgrade makes it again."`
	Plan        string    `json:"plan,omitempty" doc:"Id of its newest plan."`
	PlanStatus  string    `json:"plan_status,omitempty"`
}

// DirectorVMs is a list of them.
type DirectorVMs struct {
	Items []DirectorVM `json:"items"`
}

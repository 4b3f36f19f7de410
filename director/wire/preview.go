package wire

// Preview is what storing documents would do, and the plans that would be made then.
type Preview struct {
	OK       bool             `json:"ok" doc:"Neither the documents nor the plans have problems."`
	Problems []PreviewProblem `json:"problems" nullable:"false" doc:"Of the documents. With any, there are no changes and no plans."`
	Changes  []Change         `json:"changes" nullable:"false" doc:"One for each document, in the order of application."`
	Plans    []PreviewPlan    `json:"plans" nullable:"false" doc:"One for each Cluster among the documents."`
}

// PreviewProblem is a wrong place in documents.
type PreviewProblem struct {
	ProblemField
	Line   int `json:"line,omitempty" doc:"In the text that was sent, from 1. Absent if the place is not in it."`
	Column int `json:"column,omitempty" doc:"In characters, from 1."`
}

// PreviewPlan is the plan that would be made for a cluster.
type PreviewPlan struct {
	Cluster         string           `json:"cluster"`
	OK              bool             `json:"ok" doc:"The plan could be made and started."`
	Operation       string           `json:"operation,omitempty" doc:"Absent if no plan could be made."`
	Summary         string           `json:"summary,omitempty"`
	Steps           int              `json:"steps" doc:"0 means that nothing is to be done."`
	Groups          []StepGroup      `json:"groups" nullable:"false" doc:"The steps by what they do, in the plan's order."`
	Effects         []Effect         `json:"effects" nullable:"false" doc:"What would change, in the plan's order; 1,000 at most."`
	EffectsTotal    int              `json:"effects_total"`
	Machines        int              `json:"machines" doc:"VMs that it would make or take away."`
	EstimateSeconds float64          `json:"estimate_seconds" doc:"Along the longest path."`
	Approvals       []string         `json:"approvals" nullable:"false" doc:"What a person would have to agree to."`
	Warnings        []string         `json:"warnings" nullable:"false"`
	Problems        []PreviewProblem `json:"problems" nullable:"false" doc:"What the plan would be refused for."`
	Addresses       []AddressCheck   `json:"addresses,omitempty" doc:"How the addresses were looked at that the plan would give away."`
	HostsAfter      []HostAfter      `json:"hosts_after,omitempty" doc:"What the provider's hosts would have left. Absent if they were not asked, or the user may not read providers."`
}

// HostAfter is what a host has left after a plan. Less than nothing means that the plan does not fit.
type HostAfter struct {
	Host            string `json:"host"`
	CPUsLeft        *int   `json:"cpus_left,omitempty" doc:"Absent without a bound."`
	MemoryLeftBytes int64  `json:"memory_left_bytes"`
	DiskLeftBytes   int64  `json:"disk_left_bytes"`
}

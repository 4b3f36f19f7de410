package model

// The strategies of an upgrade.
const (
	UpgradeInPlace      = "in_place"
	UpgradeReconstitute = "reconstitute"
	UpgradeReplace      = "replace"
)

// The ways in which a worker is rolled back that was upgraded in place.
const (
	RollbackSnapshot = "snapshot"
	RollbackRecreate = "recreate"
)

// Maintenance is how nodes of a running cluster are worked on.
type Maintenance struct {
	Strategy       string   `json:"strategy,omitempty" doc:"How nodes are upgraded. in_place: the new binaries are put on the VM. reconstitute: the VM is recreated from the new image and rejoins under its name. replace: a new node comes first, then the old one goes." enum:"in_place,reconstitute,replace" default:"in_place"`
	MaxUnavailable int      `json:"maxUnavailable,omitempty" doc:"Workers that may be out at once. Masters are always worked on one by one." default:"1" min:"1" max:"1000"`
	PerHost        int      `json:"maxUnavailablePerHost,omitempty" doc:"Workers of one hypervisor host that may be out at once; 0 for no bound of its own." min:"0" max:"1000"`
	DrainTimeout   Duration `json:"drainTimeout,omitempty" doc:"How long pods may take to leave a node." default:"5m" min:"10s" max:"24h"`
	DeleteEmptyDir bool     `json:"deleteEmptyDirData,omitempty" doc:"Whether drains evict pods whose local data (emptyDir) goes with them. Off, such pods block a drain."`
	EvictUnmanaged bool     `json:"evictUnmanaged,omitempty" doc:"Whether drains evict pods that nothing recreates. Off, such pods block a drain."`
	KeepFailed     bool     `json:"keepFailed,omitempty" doc:"Whether a worker whose upgrade fails is left as it is, for a person to look at. Off, it is rolled back to what it ran before."`
	Rollback       string   `json:"rollback,omitempty" doc:"How a worker is rolled back whose upgrade in place fails. snapshot: its VM's root disk goes back to a snapshot that the plan takes before and deletes after. recreate: its VM is recreated from the image that it was made from, and rejoins; what is on its root disk is lost. With the other strategies it is never a snapshot." enum:"snapshot,recreate" default:"snapshot"`
	Repair         *Repair  `json:"repair,omitempty" doc:"Repair of nodes without being asked. Left out, it is off."`
}

// Repair is how nodes are mended without a request.
type Repair struct {
	Auto         bool     `json:"auto,omitempty" doc:"Whether nodes that are not well are mended by themselves: by plans that a person could have made, one at a time."`
	After        Duration `json:"after,omitempty" doc:"How long a node must have been ill before it is mended." default:"10m" min:"1m" max:"24h"`
	MaxPerDay    int      `json:"maxPerDay,omitempty" doc:"Budget: repairs within 24 hours. When it is used up, a person has to look." default:"3" min:"1" max:"1000"`
	MaxUnhealthy int      `json:"maxUnhealthyPercent,omitempty" doc:"Nodes of a hundred that may be ill at once, but at least one. With more of them nothing is mended: they have one cause." default:"40" min:"1" max:"100"`
}

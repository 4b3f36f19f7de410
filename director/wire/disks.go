package wire

import "time"

// Disk is a disk that outlived its VM, or a copy of one.
type Disk struct {
	ID        string     `json:"id" doc:"What it is named by, to be taken over or deleted."`
	Provider  string     `json:"provider"`
	Host      string     `json:"host,omitempty" doc:"Absent if every host of the provider reaches it."`
	Name      string     `json:"name" doc:"On the hypervisor."`
	State     string     `json:"state"`
	Cluster   string     `json:"cluster,omitempty" doc:"Of the node that left it behind."`
	Pool      string     `json:"pool,omitempty"`
	Node      string     `json:"node,omitempty"`
	SizeBytes int64      `json:"size_bytes,omitempty"`
	KeptAt    *time.Time `json:"kept_at,omitempty" doc:"Since when it is kept; absent for an orphan."`
	Plan      string     `json:"plan,omitempty" doc:"The plan that kept it."`
	Holder    string     `json:"holder,omitempty" doc:"Id of the machine that has taken it over."`
	CopyOf    string     `json:"copy_of,omitempty" doc:"Id of the disk that it is a copy of."`
	VM        string     `json:"vm,omitempty" doc:"Name of the VM that has it."`
}

// Disks is a list of disks, ordered by provider, cluster and node.
type Disks struct {
	Items     []Disk     `json:"items"`
	Providers []Compared `json:"providers" doc:"The providers that were asked."`
}

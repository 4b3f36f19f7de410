package wire

import "time"

// VM is a VM as a hypervisor has it, with what the ledger knows of it.
type VM struct {
	Provider    string `json:"provider"`
	Host        string `json:"host,omitempty"`
	ID          string `json:"id,omitempty" doc:"The hypervisor's id; absent for a row whose VM was not seen."`
	Name        string `json:"name"`
	Power       string `json:"power,omitempty" enum:"on,off"`
	Owner       string `json:"owner" doc:"ledger, fenced, orphan or stranger."`
	Director    string `json:"director,omitempty" doc:"Id of the director that it is stamped with."`
	Machine     string `json:"machine,omitempty" doc:"Id of its row, or the one that it is stamped with."`
	Cluster     string `json:"cluster,omitempty"`
	Address     string `json:"address,omitempty"`
	State       string `json:"state,omitempty" doc:"Of its row."`
	CPUs        int    `json:"cpus,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
}

// VMs is a list of VMs, ordered by provider and name.
type VMs struct {
	Items     []VM       `json:"items"`
	Providers []Compared `json:"providers" doc:"The providers that were asked."`
}

// Compared is a provider that was asked for its VMs.
type Compared struct {
	Name   string `json:"name"`
	VMs    int    `json:"vms" doc:"How many VMs it showed; in an audit, those with our stamp."`
	Unseen string `json:"unseen,omitempty" doc:"Why it did not answer."`
	Hint   string `json:"hint,omitempty" doc:"What to do about that."`
}

// Audit is what a comparison of the ledger with the hypervisors found.
type Audit struct {
	At        time.Time  `json:"at"`
	Findings  []Finding  `json:"findings" doc:"By provider, kind and name."`
	Providers []Compared `json:"providers" doc:"The providers that were asked."`
	Disks     []Disk     `json:"disks,omitempty" doc:"Disks that outlived their VMs."`
	Busy      []string   `json:"busy,omitempty" doc:"Clusters that a plan works on, or has left half way: how they differ was not looked at."`
}

// Finding is one disagreement between the ledger and a hypervisor.
type Finding struct {
	Kind     string `json:"kind"`
	Provider string `json:"provider"`
	Host     string `json:"host,omitempty"`
	VM       string `json:"vm,omitempty" doc:"The hypervisor's id of the VM; absent for a ghost and for disks."`
	Name     string `json:"name"`
	Machine  string `json:"machine,omitempty" doc:"Id of the row, or the one that the VM is stamped with."`
	Cluster  string `json:"cluster,omitempty"`
	Problem  string `json:"problem"`
	Next     string `json:"next" doc:"What to do."`
}

// VMAdopt asks for an orphan to be written into the ledger.
type VMAdopt struct {
	Address   string            `json:"address,omitempty" doc:"Its address, if the director does not remember it." maxLength:"45"`
	Addresses map[string]string `json:"addresses,omitempty" doc:"Those of its further adapters, by network."`
}

// VMReclaim asks for the deletion of an orphan.
type VMReclaim struct {
	DataDisks bool `json:"data_disks,omitempty" doc:"Also delete its data disks."`
}

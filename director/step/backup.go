package step

import "github.com/director-kaas/kaas/director/plan"

// BackupParams are the parameters of backup.store.
type BackupParams struct {
	UID     string             `json:"uid"`
	Cluster string             `json:"cluster"`
	Target  string             `json:"target"`
	Reason  string             `json:"reason,omitempty"`
	Masters []plan.MachineSpec `json:"masters"` // one of which has the snapshot
	// Last removes the snapshot from its master afterwards.
	Last bool `json:"last,omitempty"`
}

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

// DirectorBackupParams are the parameters of director.backup.
type DirectorBackupParams struct {
	// Target is where all that the director is made of goes. Empty: the database is copied on the director's own
	// machine, and the newest copies stay, as many as Keep.
	Target string `json:"target,omitempty"`
	Keep   int    `json:"keep,omitempty"`
}

// RestoreParams are the parameters of restore.stage.
type RestoreParams struct {
	UID      string           `json:"uid"`
	Cluster  string           `json:"cluster"`
	Backup   string           `json:"backup"`
	Revision int64            `json:"revision"`
	Size     int64            `json:"size"`   // of the snapshot
	SHA256   string           `json:"sha256"` // of the snapshot
	Machine  plan.MachineSpec `json:"machine"`
}

// DrillParams are the parameters of drill.keys, drill.ask and drill.end.
type DrillParams struct {
	UID     string `json:"uid"` // of the cluster
	Cluster string `json:"cluster"`
	Backup  string `json:"backup"`
	// FormerKeys are names of keys for Secrets that the backup needs and the cluster's masters may have no more.
	FormerKeys []string         `json:"former_keys,omitempty"`
	Machine    plan.MachineSpec `json:"machine"` // whose ClusterUID is that of the drill
}

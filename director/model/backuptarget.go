package model

import (
	"fmt"
	"time"

	"filippo.io/age"
)

// The types of backup targets.
const (
	BackupDirectory = "directory"
	BackupNFS       = "nfs"
)

// BackupTarget is a place where backups of clusters are kept.
type BackupTarget struct {
	Type       string    `json:"type" doc:"directory for one of the director's own, nfs for a file system that is mounted there." enum:"directory,nfs" required:"true"`
	Directory  string    `json:"directory,omitempty" doc:"Directory on the director, below one of backupDirs of its configuration. With nfs: nothing is written while no NFS is mounted there." required:"true"`
	Recipients []string  `json:"recipients,omitempty" doc:"Public keys of age, such as age1..., that can open the backups too. The director can always open them; without a recipient, no one can when its sealing key is lost." maxItems:"20"`
	Retention  Retention `json:"retention,omitzero" doc:"Which backups of each cluster are kept."`
}

// Retention says which backups of a cluster are kept. A backup goes when neither bound keeps it.
type Retention struct {
	Count int `json:"count,omitempty" doc:"The newest so many are always kept." default:"14" min:"1" max:"1000"`
	Days  int `json:"days,omitempty" doc:"Those that are at most so many days old are kept, too. Zero: the count decides alone." min:"1" max:"3650"`
}

// ClusterBackup says where backups of a cluster go.
type ClusterBackup struct {
	Targets []string `json:"targets,omitempty" doc:"Names of BackupTargets. A backup is made in each of them, and before each plan that works on masters." maxItems:"5"`
	MaxAge  Duration `json:"maxAge,omitempty" doc:"Age at which the newest backup is late. Default: 26h." min:"1h" max:"8760h"`
}

// usualBackupAge is a day, with time for a backup that takes long.
const usualBackupAge = 26 * time.Hour

// Late returns the age at which the newest backup of the cluster is late.
func (b ClusterBackup) Late() time.Duration {
	if b.MaxAge > 0 {
		return time.Duration(b.MaxAge)
	}
	return usualBackupAge
}

func (b ClusterBackup) references() []Ref {
	refs := make([]Ref, len(b.Targets))
	for i, name := range b.Targets {
		refs[i] = Ref{KindBackupTarget, name}
	}
	return refs
}

func (v *validator) backupTarget(t *BackupTarget) {
	v.absolute("spec.directory", t.Directory)
	seen := map[string]bool{}
	for i, r := range t.Recipients {
		at := fmt.Sprintf("spec.recipients[%d]", i)
		if _, err := age.ParseX25519Recipient(r); err != nil {
			v.fail(at, "a public key as age-keygen prints it, beginning with age1", "is not a public key of age")
		}
		if seen[r] {
			v.fail(at, "leave it out", "is there twice")
		}
		seen[r] = true
	}
	if len(t.Recipients) == 0 {
		v.warn("spec.recipients", "is empty: no one can open these backups when the director's sealing key is lost")
	}
}

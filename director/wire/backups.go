package wire

import "time"

// Backup is a backup of etcd of a cluster.
type Backup struct {
	ID             string         `json:"id"`
	Cluster        string         `json:"cluster"`
	ClusterUID     string         `json:"cluster_uid"`
	Target         string         `json:"target" doc:"Name of the BackupTarget that it lies in."`
	MadeAt         time.Time      `json:"made_at"`
	Plan           string         `json:"plan" doc:"The plan that made it."`
	Reason         string         `json:"reason,omitempty" doc:"What it was made before; absent if it was asked for."`
	Kubernetes     string         `json:"kubernetes"`
	Etcd           string         `json:"etcd"`
	Revision       int64          `json:"revision" doc:"Of etcd."`
	Keys           int64          `json:"keys" doc:"Number of keys in etcd, with all their revisions."`
	SizeBytes      int64          `json:"size_bytes" doc:"Of the snapshot."`
	SHA256         string         `json:"sha256" doc:"Of the snapshot."`
	ArchiveBytes   int64          `json:"archive_bytes" doc:"Of what lies in the target, compressed and encrypted."`
	ArchiveSHA256  string         `json:"archive_sha256"`
	Archive        string         `json:"archive" doc:"Name of the archive in the target."`
	Members        []BackupMember `json:"members" doc:"Members of etcd then."`
	EncryptionKeys []string       `json:"encryption_keys" doc:"Ids of the keys that encrypt Secrets in it."`
	Recipients     []string       `json:"recipients" doc:"Public keys of age that can open it."`
	VerifiedAt     *time.Time     `json:"verified_at,omitempty" doc:"When the archive was last read to its end."`
	Problem        string         `json:"problem,omitempty" doc:"What was wrong with it then."`
}

// BackupMember is a member of etcd.
type BackupMember struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// BackupAge is how old the newest backup of a cluster is.
type BackupAge struct {
	Cluster  string     `json:"cluster"`
	Targets  []string   `json:"targets"`
	NewestAt *time.Time `json:"newest_at,omitempty" doc:"In the target that is furthest behind; absent without a backup."`
	Late     bool       `json:"late" doc:"It is older than spec.backup.maxAge of the cluster allows."`
	Drills   *Drills    `json:"drills,omitempty" doc:"Restore drills of the cluster; absent for one that names no network for them."`
}

// Drills is how the restore drills of a cluster are.
type Drills struct {
	Network string     `json:"network" doc:"That the VM of a drill is on."`
	Newest  *Drill     `json:"newest,omitempty" doc:"The newest drill, whatever came of it; absent without one."`
	LastAt  *time.Time `json:"last_at,omitempty" doc:"When a drill succeeded last; absent if none did."`
	Late    bool       `json:"late" doc:"That is longer ago than spec.backup.drill.maxAge of the cluster allows."`
}

// Drill is one try to restore a backup into a VM of its own.
type Drill struct {
	Plan    string     `json:"plan" doc:"That did it. The plan may be archived by now."`
	Backup  string     `json:"backup" doc:"That was restored. It may be deleted by now."`
	BeganAt time.Time  `json:"began_at"`
	EndedAt *time.Time `json:"ended_at,omitempty" doc:"When its VM was gone; absent until then."`
	OK      bool       `json:"ok" doc:"The backup was restored, and is what its manifest says."`
	Seconds float64    `json:"seconds" doc:"From the beginning to the answer of the restored API; 0 without one."`
	Keys    int64      `json:"keys" doc:"Keys of etcd that were compared."`
	Problem string     `json:"problem,omitempty" doc:"Why it did not succeed."`
}

// Backups is a list of backups, the newest first.
type Backups struct {
	Items    []Backup    `json:"items"`
	Clusters []BackupAge `json:"clusters" doc:"The installed clusters that name a target."`
}

// BackupExtract asks for objects out of a backup.
type BackupExtract struct {
	Password  string `json:"password" doc:"Password of who asks." minLength:"1" maxLength:"1024"`
	Namespace string `json:"namespace" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"`
	Kind      string `json:"kind,omitempty" doc:"Such as Secret; all kinds if left out." maxLength:"63" pattern:"^[A-Za-z][A-Za-z0-9]*$"`
	Name      string `json:"name,omitempty" doc:"All objects if left out." maxLength:"253" pattern:"^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$"`
}

// BackupObjects are objects of Kubernetes out of a backup, by kind and name.
type BackupObjects struct {
	Backup  string           `json:"backup"`
	Cluster string           `json:"cluster"`
	MadeAt  time.Time        `json:"made_at"`
	Objects []map[string]any `json:"objects"`
}

// BackupsReread is what a look into a target showed.
type BackupsReread struct {
	Found   int             `json:"found" doc:"Backups in the target that this director made, of clusters that it has."`
	Added   []string        `json:"added" doc:"Ids of those that were not on the list."`
	Missing []string        `json:"missing" doc:"Ids of those on the list that are gone from the target."`
	Refused []BackupRefused `json:"refused" doc:"Files that are no manifests of such backups; 100 at most."`
}

// BackupRefused is a file in a target that is no manifest of a backup.
type BackupRefused struct {
	File string `json:"file"`
	Why  string `json:"why"`
}

package wire

import (
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// PlanRequest asks for a plan.
type PlanRequest struct {
	Operation string   `json:"operation,omitempty" doc:"What the plan is for. Left out, it is what brings the cluster to its document." enum:"cluster.create,cluster.delete,cluster.scale,cluster.upgrade,cluster.rotate_pull_password,cluster.token_keys,cluster.encryption_key,cluster.service_account_key,cluster.ca,cluster.etcd_ca,cluster.front_proxy_ca,cluster.ssh_authority,cluster.consul,cluster.registries,cluster.rotate_certs,cluster.backup,cluster.restore,cluster.drill,node.cordon,node.uncordon,node.drain,node.delete,node.rejoin,node.replace"`
	Nodes     []string `json:"nodes,omitempty" doc:"The nodes of a node operation, in their order. When a pool shrinks, the nodes that go first." maxItems:"1000"`
	KeepVM    bool     `json:"keep_vm,omitempty" doc:"Nodes that go leave the cluster, and their VMs stay."`
	// DeleteData is an agreement of its own: without it data disks outlive their VMs.
	DeleteData bool              `json:"delete_data,omitempty" doc:"Also destroy the data disks of VMs that go. The plan names each of them for approval; without it they are kept."`
	AdoptDisks map[string]string `json:"adopt_disks,omitempty" doc:"The kept disks that new nodes take over: ids of disks by node." maxProperties:"1000"`
	Undrained  bool              `json:"undrained,omitempty" doc:"The word of a person that nodes are taken out without a drain: what runs there ends at once."`
	Drain      *Drain            `json:"drain,omitempty" doc:"How far drains go. Left out, they evict what is recreated elsewhere, within spec.maintenance.drainTimeout."`

	Host     string `json:"host,omitempty" doc:"For node.replace: the hypervisor host that the nodes are made on. Left out, they stay on theirs, or the director chooses if that was declared lost." maxLength:"253"`
	LostHost string `json:"lost_host,omitempty" doc:"For node.replace: the word of a person that this host of the nodes is off, or cut off for good. Its VMs are given up: the director never starts them again, and powers them off if it sees them." maxLength:"253"`

	HostKeys map[string]string `json:"host_keys,omitempty" doc:"For node.rejoin: the public SSH host keys, as in authorized_keys, of VMs made by others instead of nodes, by node. The VM of the name is then taken over, and not made."`

	Certificates *RotateCertificates `json:"certificates,omitempty" doc:"For cluster.rotate_certs: which certificates are renewed. Left out, those that end within 30 days."`

	Restore *RestoreBackup `json:"restore,omitempty" doc:"For cluster.restore: which backup the cluster is restored from. For cluster.drill: which backup is tried; left out, the newest."`
}

// RestoreBackup says which backup a cluster is restored from.
type RestoreBackup struct {
	Backup     string `json:"backup" doc:"Id of the backup." minLength:"1" maxLength:"128"`
	NewMasters bool   `json:"new_masters,omitempty" doc:"Destroy the VMs of all masters and create them again before, as after their loss. Without it, the masters stay and have to answer."`
}

// RotateCertificates says which certificates are renewed.
type RotateCertificates struct {
	EndBefore  *time.Time `json:"end_before,omitempty" doc:"Those that end before this time."`
	MadeBefore *time.Time `json:"made_before,omitempty" doc:"All that were made before this time, instead. Give the present time to renew all."`
	Cold       bool       `json:"cold,omitempty" doc:"The cluster's certificates have ended: all masters are renewed over SSH before its API is asked anything."`
}

// Drain says how far a drain may go.
type Drain struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" doc:"How long pods may take to leave." minimum:"0" maximum:"86400"`
	Unmanaged      bool    `json:"unmanaged,omitempty" doc:"Also evict pods that nothing recreates."`
	DeleteEmptyDir bool    `json:"delete_emptydir,omitempty" doc:"Also evict pods whose local data goes with them."`
}

// Request converts what was asked for.
func (r PlanRequest) Request() plan.Request {
	out := plan.Request{
		Operation: plan.Operation(r.Operation), Nodes: r.Nodes, KeepVM: r.KeepVM, DeleteData: r.DeleteData,
		AdoptDisks: r.AdoptDisks, Undrained: r.Undrained, Host: r.Host, LostHost: r.LostHost, HostKeys: r.HostKeys,
	}
	if d := r.Drain; d != nil {
		out.Drain = plan.Drain{
			Timeout: Span(d.TimeoutSeconds), Unmanaged: d.Unmanaged, DeleteEmptyDir: d.DeleteEmptyDir,
		}
	}
	if b := r.Restore; b != nil {
		out.Restore = plan.Restore{Backup: b.Backup, NewMasters: b.NewMasters}
	}
	if c := r.Certificates; c != nil {
		out.Certificates = plan.Certificates{
			EndBefore: Moment(c.EndBefore), MadeBefore: Moment(c.MadeBefore), Cold: c.Cold,
		}
	}
	return out
}

// PlanRequestOf is the inverse of Request.
func PlanRequestOf(r plan.Request) PlanRequest {
	out := PlanRequest{
		Operation: string(r.Operation), Nodes: r.Nodes, KeepVM: r.KeepVM, DeleteData: r.DeleteData,
		AdoptDisks: r.AdoptDisks, Undrained: r.Undrained, Host: r.Host, LostHost: r.LostHost, HostKeys: r.HostKeys,
	}
	if d := r.Drain; d != (plan.Drain{}) {
		out.Drain = &Drain{TimeoutSeconds: Seconds(d.Timeout), Unmanaged: d.Unmanaged, DeleteEmptyDir: d.DeleteEmptyDir}
	}
	if b := r.Restore; b != (plan.Restore{}) {
		out.Restore = &RestoreBackup{Backup: b.Backup, NewMasters: b.NewMasters}
	}
	if c := r.Certificates; c != (plan.Certificates{}) {
		out.Certificates = &RotateCertificates{
			EndBefore: Optional(c.EndBefore), MadeBefore: Optional(c.MadeBefore), Cold: c.Cold,
		}
	}
	return out
}

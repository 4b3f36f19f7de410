// Package step is what planners and the handlers of steps have in common: the kinds of steps with their parameters, and
// the facts that a plan freezes for all of its steps. It is pure.
package step

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// The kinds of steps.
const (
	ReleasePush   = "release.push"
	NetworkEnsure = "network.ensure"
	NetworkDelete = "network.delete"
	ImageEnsure   = "image.ensure"
	ClusterPKI    = "cluster.pki"
	ClusterReady  = "cluster.ready"
	ClusterForget = "cluster.forget"
	VMEnsure      = "vm.ensure"
	VMBoot        = "vm.boot"
	VMAdopt       = "vm.adopt"
	VMDelete      = "vm.delete"
	Play          = "ansible.play"
	KubeReady     = "kube.ready"
	KubeTraffic   = "kube.traffic"
	VMRemove      = "vm.remove"
	VMMove        = "vm.move"
	NodeReady     = "node.ready"
	NodeLeft      = "node.left"
	PullRenew     = "pull.renew"
	PullSettle    = "pull.settle"
	BackupStore   = "backup.store"
	RestoreStage  = "restore.stage"
	EncryptionKey = "encryption.key"
	DrillKeys     = "drill.keys"
	DrillAsk      = "drill.ask"
	DrillEnd      = "drill.end"

	ConsulRegister   = "consul.register"
	ConsulDeregister = "consul.deregister"
	ConsulToken      = "consul.token"
	ConsulAgents     = "consul.agents"
	SigningKey       = "signing.key"
	AuthorityChange  = "authority.change"
	AuthorityAgree   = "authority.agree"
	SSHAuthority     = "ssh.authority"
	DirectorBackup   = "director.backup"

	DirectorCheck  = "director.check"
	DirectorReady  = "director.ready"
	DirectorRecord = "director.record"
	DirectorForget = "director.forget"

	SnapshotTake   = "snapshot.take"
	SnapshotRevert = "snapshot.revert"
	SnapshotDelete = "snapshot.delete"

	CopyMake    = "copy.make"
	CopyRestore = "copy.restore"
	CopyDelete  = "copy.delete"
)

// BudgetClones is the first part of the budgets of VMs that are made at once: followed by the provider, or by provider
// and host.
const BudgetClones = "clones"

// BudgetDirectorBackup is the first part of the budgets of backups of the director: followed by the target, if any. One
// is made at once, over all directors of a database.
const BudgetDirectorBackup = "director-backup"

// kinds has every kind, with what a step of it must find until its plan's end. It is nil for a kind that needs no more
// than the plan's documents and facts name.
var kinds = map[string]func(Needs, json.RawMessage) error{
	ReleasePush:      needs(Needs.ofRelease),
	NetworkEnsure:    needs(Needs.ofNetwork),
	NetworkDelete:    needs(Needs.ofNetwork),
	ImageEnsure:      needs(Needs.ofImage),
	ClusterPKI:       needs(Needs.ofPKI),
	ClusterReady:     nil,
	ClusterForget:    nil,
	VMEnsure:         needs(Needs.ofNewVM),
	VMBoot:           needs(Needs.ofVM),
	VMAdopt:          needs(Needs.ofVM),
	VMDelete:         needs(Needs.ofVM),
	Play:             nil,
	KubeReady:        nil,
	KubeTraffic:      nil,
	VMRemove:         needs(Needs.ofVM),
	VMMove:           nil,
	NodeReady:        nil,
	NodeLeft:         nil,
	PullRenew:        nil,
	PullSettle:       nil,
	BackupStore:      nil,
	RestoreStage:     nil,
	EncryptionKey:    nil,
	DrillKeys:        nil,
	DrillAsk:         nil,
	DrillEnd:         nil,
	HookAsk:          needs(Needs.ofHook),
	ConsulRegister:   nil,
	ConsulDeregister: nil,
	ConsulToken:      nil,
	ConsulAgents:     nil,
	SigningKey:       nil,
	AuthorityChange:  needs(Needs.ofAuthority),
	AuthorityAgree:   nil,
	SSHAuthority:     nil,
	DirectorBackup:   needs(Needs.ofDirectorBackup),
	DirectorCheck:    nil,
	DirectorReady:    nil,
	DirectorRecord:   nil,
	DirectorForget:   nil,
	SnapshotTake:     needs(Needs.ofSnapshot),
	SnapshotRevert:   needs(Needs.ofSnapshot),
	SnapshotDelete:   needs(Needs.ofSnapshot),
	CopyMake:         needs(Needs.ofCopy),
	CopyRestore:      needs(Needs.ofCopy),
	CopyDelete:       needs(Needs.ofCopy),
}

// Kinds returns every kind that planners write, sorted. Each has a handler in director/steps.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// VMParams are the parameters of vm.ensure, vm.boot, vm.delete and vm.remove.
type VMParams struct {
	Machine  plan.MachineSpec `json:"machine"`
	Disk     model.Size       `json:"disk"`
	DataDisk model.Size       `json:"data_disk,omitempty"`
	// TakeDisk is the id of the kept disk that the machine takes over (vm.ensure), and DeleteData are those of the data
	// disks that go with the VM (vm.delete): a person has agreed to each. All others are kept.
	TakeDisk   string            `json:"take_disk,omitempty"`
	DeleteData []string          `json:"delete_data,omitempty"`
	Persist    []string          `json:"persist,omitempty"`
	Network    model.Network     `json:"network"`
	NetworkID  string            `json:"network_id"`
	SSHKeys    []string          `json:"ssh_keys,omitempty"`
	Hosts      []model.HostAlias `json:"hosts,omitempty"`
	ImageName  string            `json:"image_name"` // on the provider
	CleanUp    model.CleanUp     `json:"clean_up,omitzero"`
	// NICs are the networks of the machine's further adapters, in their order.
	NICs   []NICParams   `json:"nics,omitempty"`
	Routes []model.Route `json:"routes,omitempty"` // of the first adapter, when the default route leads elsewhere
	// VM is what the document says of the VM in addition to its size; its adapters are in NICs.
	VM model.VMModel `json:"vm,omitzero"`
	// Appliance is the document of the director whose VM it is; nil for the VM of a node. What that is told at its
	// first boot is sealed.
	Appliance *model.Director `json:"appliance,omitempty"`
}

// DirectorParams are the parameters of director.check, director.ready, director.record and director.forget.
type DirectorParams struct {
	UID        string            `json:"uid"`
	Name       string            `json:"name"`
	Generation int64             `json:"generation"`
	Labels     map[string]string `json:"labels,omitempty"`
	Document   model.Director    `json:"document"`
	Machine    plan.MachineSpec  `json:"machine"`
}

// SnapshotPrefix begins the names of the snapshots that upgrades take.
const SnapshotPrefix = "before-upgrade-"

// SnapshotName is the name of the snapshots of the plan.
func SnapshotName(plan string) string { return SnapshotPrefix + plan }

// SnapshotParams are the parameters of snapshot.take, snapshot.revert and snapshot.delete. The plan's id is in the name
// of the snapshot.
type SnapshotParams struct {
	Machine plan.MachineSpec `json:"machine"`
}

// CopyParams are the parameters of copy.make, copy.restore and copy.delete. The plan's id makes the copy's own, so that
// no plan takes the copy of another for its own.
type CopyParams struct {
	Machine plan.MachineSpec `json:"machine"`
	Size    model.Size       `json:"size"` // of the data disk
}

// NICParams is what an further adapter of a VM is connected to.
type NICParams struct {
	Role         string        `json:"role"`
	Network      model.Network `json:"network"`
	DefaultRoute bool          `json:"default_route,omitempty"`
}

// AdoptParams are the parameters of vm.adopt.
type AdoptParams struct {
	VMParams
	HostKey string `json:"host_key"` // public, of the VM that others make
}

// NetworkParams are the parameters of network.ensure and network.delete.
type NetworkParams struct {
	Provider string        `json:"provider"`
	Name     string        `json:"name"`
	UID      string        `json:"uid"`
	Network  model.Network `json:"network"`
}

// ImageParams are the parameters of image.ensure.
type ImageParams struct {
	Provider string      `json:"provider"`
	Name     string      `json:"name"`     // on the provider
	Document string      `json:"document"` // name of the image's document
	Image    model.Image `json:"image"`
}

// ReleaseParams are the parameters of release.push.
type ReleaseParams struct {
	Name   string `json:"name"`
	Bundle string `json:"bundle"`
	Digest string `json:"digest"`
	// Unsigned is why the bundle may be used without a signature.
	Unsigned string `json:"unsigned,omitempty"`
}

// PlayParams are the parameters of ansible.play. The inventory comes from the plan's facts.
type PlayParams struct {
	Playbook string         `json:"playbook"`
	Limit    []string       `json:"limit,omitempty"`
	Without  []string       `json:"without,omitempty"` // nodes that the inventory does not name any more
	Vars     map[string]any `json:"vars,omitempty"`    // of this run alone; never a secret
	// Kubernetes is the version of the former release that the inventory is of; the plan's own if empty.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Moved are the nodes that are on another host by then: the inventory has what follows them.
	Moved []string `json:"moved,omitempty"`
}

// Variables of plays that drain: whether pods go that nothing creates again, and those whose local data goes with them.
const (
	DrainUnmanaged = "drain_force"
	DrainLocalData = "drain_delete_emptydir_data"
)

// NodeParams are the parameters of node.ready and node.left.
type NodeParams struct {
	UID      string                `json:"uid"`
	Cluster  string                `json:"cluster"`
	Endpoint string                `json:"endpoint"`
	Node     string                `json:"node"`
	Machine  string                `json:"machine"` // id of the ledger's row
	Version  string                `json:"version,omitempty"`
	Image    string                `json:"image,omitempty"` // that its VM was made from; empty if it stays what it was
	State    director.MachineState `json:"state,omitempty"` // that the row has afterwards
	// the VM stays on purpose, kept by the person who made the plan
	Keep   bool   `json:"keep,omitempty"`
	KeptBy string `json:"-"` // known when the step runs
}

// ClusterParams are the parameters of the steps that concern the cluster as a whole.
type ClusterParams struct {
	UID        string            `json:"uid"`
	Name       string            `json:"name"`
	Generation int64             `json:"generation"`
	Document   model.Cluster     `json:"document"`
	Labels     map[string]string `json:"labels,omitempty"`
	Endpoint   string            `json:"endpoint"`
	Nodes      []string          `json:"nodes,omitempty"`
	Kubernetes string            `json:"kubernetes,omitempty"` // version that the nodes run
	Registries string            `json:"registries,omitempty"` // DigestOf what the nodes were told of
}

// MoveParams are the parameters of vm.move.
type MoveParams struct {
	VMParams                  // of the VM that goes, or is given up
	Next     plan.MachineSpec `json:"next"` // that follows it on another host
	// Lost is the word of a person that the host is off or cut off for good: its VM is given up where it is. Otherwise
	// the VM is deleted.
	Lost bool `json:"lost,omitempty"`
}

// EncryptionParams are the parameters of encryption.key.
type EncryptionParams struct {
	UID     string         `json:"uid"`
	Cluster string         `json:"cluster"`
	Do      EncryptionVerb `json:"do"`
	Keys    []string       `json:"keys,omitempty"` // names; of a drop none
}

// EncryptionVerb is what is done with keys that encrypt Secrets at rest.
type EncryptionVerb string

// The verbs. See pki.EncryptionKeys.
const (
	EncryptionAdd    EncryptionVerb = "add"
	EncryptionUse    EncryptionVerb = "use"
	EncryptionDrop   EncryptionVerb = "drop"
	EncryptionRecall EncryptionVerb = "recall"
)

// SigningParams are the parameters of signing.key and ssh.authority.
type SigningParams struct {
	UID     string      `json:"uid"`
	Cluster string      `json:"cluster"`
	Do      SigningVerb `json:"do"`
	Key     string      `json:"key,omitempty"` // its name; of a drop none
}

// SigningVerb is what is done with keys that sign service account tokens.
type SigningVerb string

// The verbs. See pki.SigningKeys.
const (
	SigningAdd  SigningVerb = "add"
	SigningUse  SigningVerb = "use"
	SigningDrop SigningVerb = "drop"
)

// AuthorityParams are the parameters of authority.change.
type AuthorityParams struct {
	UID       string        `json:"uid"`
	Cluster   string        `json:"cluster"`
	Authority string        `json:"authority"` // cluster, etcd or front-proxy
	Do        AuthorityVerb `json:"do"`
	Name      string        `json:"name,omitempty"` // of the one that is made or used; of a drop none
	// Issuer is the name of the CertificateAuthority that issues the one that is made; none if it signs itself.
	Issuer string `json:"issuer,omitempty"`
}

// AuthorityVerb is what is done with the certificate authorities of a cluster.
type AuthorityVerb string

// The verbs. See pki.Authority.
const (
	AuthorityAdd  AuthorityVerb = "add"
	AuthorityUse  AuthorityVerb = "use"
	AuthorityDrop AuthorityVerb = "drop"
)

// AgreeParams are the parameters of authority.agree.
type AgreeParams struct {
	UID       string        `json:"uid"`
	Cluster   string        `json:"cluster"`
	Endpoint  string        `json:"endpoint"`
	Authority string        `json:"authority"`
	Name      string        `json:"name"`  // of the new one
	Do        AuthorityVerb `json:"do"`    // what a person agrees to: use or drop
	Since     string        `json:"since"` // id of the step since which pods that start trust the new one
	// Away are workers that the plan leaves out: they have to join again, and pods there cannot be restarted.
	Away []string `json:"away,omitempty"`
}

// PullParams are the parameters of pull.renew and pull.settle.
type PullParams struct {
	UID     string `json:"uid"`
	Cluster string `json:"cluster"`
}

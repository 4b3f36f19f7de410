// Package model holds the documents that administrators write, the only types with wire tags.
//
// Parse reads YAML or JSON strictly and reports every problem with its line; Default fills in what was left out;
// Validate checks one document, and Check checks a document against the others that it names. The model reference in
// docs/reference/models.md is generated from these types and their doc tags.
package model

import "net/netip"

// APIVersion is the version of all documents.
const APIVersion = "kaas/v1"

// Kind names a kind of document.
type Kind string

// The kinds, in the order in which a set of documents is applied: what is named comes before what names it.
const (
	KindProvider Kind = "Provider"
	KindImage    Kind = "Image"
	KindRelease  Kind = "Release"
	KindNetwork  Kind = "Network"
	KindCluster  Kind = "Cluster"
	KindSchedule Kind = "Schedule"

	KindIdentityProvider Kind = "IdentityProvider"
	KindProject          Kind = "Project"
	KindGrant            Kind = "Grant"
	KindBackupTarget     Kind = "BackupTarget"
	KindHook             Kind = "Hook"
	KindConsul           Kind = "Consul"
	KindNotification     Kind = "Notification"

	KindCertificateAuthority Kind = "CertificateAuthority"
	KindDirector             Kind = "Director"
)

// Kinds returns every kind in the order of application.
func Kinds() []Kind {
	return []Kind{
		KindProvider, KindImage, KindRelease, KindNetwork, KindProject, KindBackupTarget, KindConsul,
		KindCertificateAuthority, KindCluster, KindDirector, KindSchedule, KindIdentityProvider, KindGrant, KindHook,
		KindNotification,
	}
}

// Metadata identifies a document.
type Metadata struct {
	Name   string            `json:"name" doc:"Unique among documents of the kind: a DNS label of at most 40 characters." required:"true"`
	Labels map[string]string `json:"labels,omitempty" doc:"Free labels, kept and shown." maxLength:"317"`
}

// Document is one document of any kind. Exactly the spec of its kind is set.
type Document struct {
	Kind     Kind
	Metadata Metadata
	Provider *Provider
	Image    *Image
	Release  *Release
	Network  *Network
	Cluster  *Cluster
	Schedule *Schedule

	IdentityProvider *IdentityProvider
	Project          *Project
	Grant            *Grant
	BackupTarget     *BackupTarget
	Hook             *Hook
	Consul           *Consul
	Notification     *Notification

	CertificateAuthority *CertificateAuthority
	Director             *Director
}

// Ref names a document.
type Ref struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// String renders Kind/name.
func (r Ref) String() string { return string(r.Kind) + "/" + r.Name }

// Ref returns the document's name and kind.
func (d *Document) Ref() Ref { return Ref{Kind: d.Kind, Name: d.Metadata.Name} }

// Spec returns a pointer to the spec of the document's kind, making it if it is not set, or nil for an unknown kind.
func (d *Document) Spec() any {
	switch d.Kind {
	case KindProvider:
		return ensure(&d.Provider)
	case KindImage:
		return ensure(&d.Image)
	case KindRelease:
		return ensure(&d.Release)
	case KindNetwork:
		return ensure(&d.Network)
	case KindCluster:
		return ensure(&d.Cluster)
	case KindSchedule:
		return ensure(&d.Schedule)
	case KindIdentityProvider:
		return ensure(&d.IdentityProvider)
	case KindProject:
		return ensure(&d.Project)
	case KindGrant:
		return ensure(&d.Grant)
	case KindBackupTarget:
		return ensure(&d.BackupTarget)
	case KindHook:
		return ensure(&d.Hook)
	case KindConsul:
		return ensure(&d.Consul)
	case KindNotification:
		return ensure(&d.Notification)
	case KindCertificateAuthority:
		return ensure(&d.CertificateAuthority)
	case KindDirector:
		return ensure(&d.Director)
	}
	return nil
}

func ensure[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// Provider is a hypervisor installation that clusters can be placed on.
type Provider struct {
	Type    string   `json:"type" doc:"What runs the VMs. sim only pretends, and is taken by a director that simulates alone." enum:"libvirt,vsphere,sim" required:"true"`
	Libvirt *Libvirt `json:"libvirt,omitempty" doc:"Settings of a libvirt provider; required for type libvirt."`
	VSphere *VSphere `json:"vsphere,omitempty" doc:"Settings of a vCenter; required for type vsphere."`
	Sim     *Sim     `json:"sim,omitempty" doc:"Settings of a pretend provider; required for type sim."`
	Quota   Quota    `json:"quota,omitzero" doc:"Upper limits over all clusters on this provider."`
	Budget  Budget   `json:"budget,omitzero" doc:"How many VMs may be made in a span of time."`
	// ClusterQuota is the administrator's bound for each cluster; a cluster's own document could not hold it.
	ClusterQuota Quota      `json:"clusterQuota,omitzero" doc:"Upper limits for each cluster on this provider."`
	Overcommit   Overcommit `json:"overcommit,omitzero" doc:"How much VMs may be promised of what the hosts have."`
}

// Libvirt is one or more hosts that run libvirt and QEMU.
type Libvirt struct {
	Hosts      []LibvirtHost `json:"hosts" doc:"The hosts, at least one." required:"true" maxItems:"1000"`
	DomainType string        `json:"domainType,omitempty" doc:"Virtualisation: auto takes KVM where the host offers it, and software emulation otherwise." enum:"auto,kvm,qemu" default:"auto"`
	DiskCache  string        `json:"diskCache,omitempty" doc:"QEMU's cache mode of VM disks. unsafe is for laboratories: it loses data at a power cut." enum:"default,none,writeback,unsafe" default:"default"`
	Autostart  bool          `json:"autostart,omitempty" doc:"Start the VMs when their host boots."`
	// What follows has no defaults of its own, so that providers without it look as they always did.
	MachineType string `json:"machineType,omitempty" doc:"QEMU's machine of the VMs, such as pc-q35-7.2 where VMs move between hosts of different versions. Default: q35, in the newest version that the host has."`
	Firmware    string `json:"firmware,omitempty" doc:"Firmware of the VMs. efi needs a UEFI image on each host (Debian: ovmf). Default: bios." enum:"bios,efi"`
	CPUMode     string `json:"cpuMode,omitempty" doc:"CPU that guests see. Default: host-passthrough under KVM, and a small one that QEMU emulates well under emulation. host-model is one that hosts of like kind share." enum:"host-passthrough,host-model,maximum"`
	GuestAgent  string `json:"guestAgent,omitempty" doc:"Whether VMs have a channel to QEMU's guest agent, by which guests are shut down in good order. Default: on." enum:"on,off"`
}

// LibvirtHost is one hypervisor host.
type LibvirtHost struct {
	Name string `json:"name" doc:"How plans name the host." required:"true"`
	URI  string `json:"uri" doc:"libvirt connection URI: qemu:///system, qemu+ssh://USER@HOST/system?keyfile=PATH or qemu+tls://HOST/system?pkipath=PATH. Paths are below the director's providerFiles." required:"true"`
	Pool string `json:"pool,omitempty" doc:"Storage pool of files (dir, fs or netfs) for images, seeds and disks. One of type netfs is shared by the hosts that name it." default:"default"`
	// DiskPool is where the disks go if that is not where the files are.
	DiskPool string `json:"diskPool,omitempty" doc:"Storage pool of the VMs' disks, of type logical (LVM), dir, fs or netfs. Disks in a pool of another one than pool are full copies of their image. Default: pool."`
}

// Quota limits what may be made. Zero means no limit.
type Quota struct {
	Machines int  `json:"machines,omitempty" doc:"Number of VMs."`
	CPUs     int  `json:"cpus,omitempty" doc:"Sum of vCPUs."`
	Memory   Size `json:"memory,omitempty" doc:"Sum of memory."`
}

// Image is a node image: a disk that VMs are cloned from.
type Image struct {
	Source     string `json:"source,omitempty" doc:"Path of the file on the director, below one of its imageDirs. Left out for an image that was imported: its checksum finds it." maxLength:"4096"`
	Format     string `json:"format,omitempty" doc:"Format of the file. Files of other formats are converted when they are imported." enum:"qcow2" default:"qcow2"`
	SHA256     string `json:"sha256" doc:"SHA-256 of the file, 64 hexadecimal digits." required:"true"`
	Kubernetes string `json:"kubernetes" doc:"Kubernetes version whose binaries the image carries, such as v1.37.2." required:"true"`
	Arch       string `json:"arch,omitempty" doc:"CPU architecture." enum:"amd64" default:"amd64"`
	// CleanUp is last, so that images without it look as they always did.
	CleanUp CleanUp `json:"cleanUp,omitzero" doc:"What each VM takes off its disk at its first boot, of what the maker of a foreign image left there."`
	// Unsigned is what lets an image in without a signature.
	Unsigned string `json:"unsigned,omitempty" doc:"Why the image is used without a signature, in words. Without them an image that is not signed is refused. A signature that is there must be right all the same." maxLength:"200"`
}

// The groups of things that a clean-up knows.
const (
	CleanCloud        = "cloud"
	CleanRepositories = "repositories"
	CleanKeys         = "keys"
)

// CleanUp says what a foreign image carries that nodes do not want.
type CleanUp struct {
	What  []string `json:"what,omitempty" doc:"Groups of things. cloud: data, settings and agents of other clouds. repositories: package repositories. keys: SSH keys that let others in."`
	Paths []string `json:"paths,omitempty" doc:"Further files and directories; the last part of a path may hold * and ?."`
}

// Release is an imported release bundle: everything that a cluster of one Kubernetes version needs.
type Release struct {
	Digest     string `json:"digest,omitempty" doc:"SHA-256 of the release.yaml of an imported bundle, as directorctl release list shows it. Either this or bundle is required." maxLength:"64"`
	Bundle     string `json:"bundle,omitempty" doc:"Directory of an unpacked bundle on the director that was not imported, below one of its bundleDirs; it holds release.yaml." maxLength:"4096"`
	Kubernetes string `json:"kubernetes" doc:"Kubernetes version of the bundle, such as v1.37.2; must agree with release.yaml." required:"true"`
	// Unsigned is what lets a bundle in without a signature.
	Unsigned string `json:"unsigned,omitempty" doc:"Why the bundle is used without a signature, in words. Without them a bundle that is not signed is refused. A signature that is there must be right all the same." maxLength:"200"`
}

// Network is an underlay network with the addresses that nodes take from it.
type Network struct {
	Provider  string       `json:"provider" of:"Provider" doc:"Name of the Provider that it lies on." required:"true"`
	Mode      string       `json:"mode,omitempty" doc:"open: a new bridge, routed, no firewall rules. nat: a new bridge behind the host's address. isolated: a new bridge without a way out. bridge: an existing bridge. portgroup: an existing port group of vSphere, the only mode there." enum:"open,nat,isolated,bridge,portgroup" default:"nat"`
	Bridge    string       `json:"bridge,omitempty" doc:"The existing bridge; required for mode bridge."`
	PortGroup string       `json:"portGroup,omitempty" doc:"Name or inventory path of the existing port group, standard or distributed; required for mode portgroup."`
	CIDR      netip.Prefix `json:"cidr" doc:"Range of the network, such as 10.88.0.0/24." required:"true"`
	Gateway   netip.Addr   `json:"gateway,omitzero" doc:"Gateway of the nodes. For a new bridge the host takes this address. Default: the first address of the range."`
	DNS       []netip.Addr `json:"dns,omitempty" doc:"Name servers of the nodes."`
	NTP       []string     `json:"ntp,omitempty" doc:"Time servers of the nodes. Empty leaves the hypervisor's clock in charge."`
	Pool      AddressPool  `json:"pool" doc:"The addresses that the director gives to nodes." required:"true"`
	// What follows is younger than the rest, and last, so that networks without it look as they always did.
	VLAN   int     `json:"vlan,omitempty" doc:"VLAN that the nodes are in. Mode bridge: the host's bridge tags with it. Mode portgroup: the port group must have it." min:"1" max:"4094"`
	Switch string  `json:"switch,omitempty" doc:"What the existing bridge is, for mode bridge. Default: linux." enum:"linux,openvswitch"`
	Routes []Route `json:"routes,omitempty" doc:"Further routes of the nodes on this network, in addition to the default route."`
}

// Route leads to a range of addresses.
type Route struct {
	To  netip.Prefix `json:"to" doc:"Where it leads, such as 10.0.0.0/8." required:"true"`
	Via netip.Addr   `json:"via" doc:"The router, an address of the network." required:"true"`
}

// AddressPool is one or more ranges of addresses with holes.
type AddressPool struct {
	From    netip.Addr     `json:"from,omitzero" doc:"First address of the pool, if it is one range."`
	To      netip.Addr     `json:"to,omitzero" doc:"Last address of that range."`
	Exclude []AddressRange `json:"exclude,omitempty" doc:"Addresses inside the ranges that others use: 10.88.0.11, 10.88.0.20-10.88.0.29 or 10.88.0.32/28." maxItems:"1000"`
	Ranges  []AddressRange `json:"ranges,omitempty" doc:"The ranges of the pool, written 10.88.0.10-10.88.0.99 or 10.88.0.128/26; in addition to from and to, or instead of them." maxItems:"1000"`
}

// Cluster is a Kubernetes cluster as it should be.
type Cluster struct {
	Release     string         `json:"release" of:"Release" doc:"Name of the Release to run." required:"true"`
	Provider    string         `json:"provider" of:"Provider" doc:"Name of the Provider to run on." required:"true"`
	Image       string         `json:"image" of:"Image" doc:"Name of the node Image." required:"true"`
	Network     string         `json:"network" of:"Network" doc:"Name of the Network of the nodes." required:"true"`
	Masters     Masters        `json:"masters,omitzero" doc:"The control plane."`
	Workers     []WorkerPool   `json:"workers,omitempty" doc:"Pools of workers."`
	Pods        PodNetwork     `json:"pods,omitzero" doc:"The pod network."`
	Services    ServiceNetwork `json:"services,omitzero" doc:"The service network."`
	API         APIEndpoint    `json:"api,omitzero" doc:"The Kubernetes API's address."`
	Etcd        Etcd           `json:"etcd,omitzero" doc:"Timing of etcd."`
	Maintenance Maintenance    `json:"maintenance,omitzero" doc:"How nodes are worked on while the cluster runs."`
	SSHKeys     []string       `json:"sshKeys,omitempty" doc:"Public keys of administrators, in authorized_keys form, accepted on every node in addition to the director's own." maxLength:"8192"`
	Hosts       []HostAlias    `json:"hostAliases,omitempty" doc:"Lines for /etc/hosts of every node."`
	Project     string         `json:"project,omitempty" of:"Project" doc:"Name of the Project that the cluster belongs to. Its people see the cluster, and its quota counts it."`
	Backup      ClusterBackup  `json:"backup,omitzero" doc:"Where backups of the cluster go."`
	Discovery   Discovery      `json:"discovery,omitzero" doc:"What the cluster and a Consul learn of each other."`
	// Certificates is younger than the rest, and omitted while it is empty.
	Certificates ClusterCertificates `json:"certificates,omitzero" doc:"Who issues the certificate authorities of the cluster."`
	Vars         map[string]any      `json:"vars,omitempty" doc:"Inventory variables that override the director's, such as setup_chrony or helm_chart_loc_override. See the variables in the playbook reference."`
}

// VMSize is the size of a VM.
type VMSize struct {
	CPUs     int  `json:"cpus,omitempty" doc:"vCPUs, 1 to 64." default:"2" min:"1" max:"64"`
	Memory   Size `json:"memory,omitempty" doc:"Memory, 2GiB to 512GiB." default:"4GiB" min:"2GiB" max:"512GiB"`
	Disk     Size `json:"disk,omitempty" doc:"Root disk, at least 10GiB." default:"30GiB" min:"10GiB"`
	DataDisk Size `json:"dataDisk,omitempty" doc:"Size of a disk that outlives the VM and carries the persisted directories. Zero for none." min:"1GiB"`
}

// Masters is the control plane.
type Masters struct {
	Count   int `json:"count,omitempty" doc:"Number of masters." enum:"1,3,5" default:"1"`
	VMSize  `json:",inline"`
	Persist []string `json:"persist,omitempty" doc:"Directories kept on the data disk over a re-creation of the VM."`
	// Size is younger than the rest, and so comes late.
	Size    string `json:"size,omitempty" doc:"Preset of cpus and memory, which win where they are written out. small: 2 vCPU, 8GiB. medium: 4 and 16GiB. large: 8 and 32GiB. xlarge: 16 and 64GiB, as etcd's hardware recommendations have them for 50, 250, 1000 and 3000 nodes. auto: by the number of workers (at most 5, 10, 100, 250, 500, and more): 2, 2, 4, 8, 16, 32 vCPU with 3.75 GB each, and 4GiB at the least." enum:"auto,small,medium,large,xlarge"`
	VMModel `json:",inline"`
}

// WorkerPool is a number of equal workers.
type WorkerPool struct {
	Name    string `json:"name" doc:"Name of the pool: a DNS label of at most 20 characters." required:"true"`
	Count   int    `json:"count" doc:"Number of workers, 0 to 1000." min:"0" max:"1000"`
	VMSize  `json:",inline"`
	Labels  map[string]string `json:"labels,omitempty" doc:"Node labels." maxLength:"317"`
	Taints  []string          `json:"taints,omitempty" doc:"Node taints, written key=value:Effect."`
	Persist []string          `json:"persist,omitempty" doc:"Directories kept on the data disk over a re-creation of the VM."`
	VMModel `json:",inline"`
}

// PodNetwork is the overlay that pods live on.
type PodNetwork struct {
	Plugin string       `json:"plugin,omitempty" doc:"The network plugin." enum:"calico" default:"calico"`
	CIDR   netip.Prefix `json:"cidr,omitzero" doc:"Range of pod addresses." default:"10.244.0.0/16"`
	MTU    int          `json:"mtu,omitempty" doc:"MTU of pod interfaces; the underlay's less 50 for VXLAN." default:"1450" min:"1280" max:"9000"`
}

// ServiceNetwork is the range of service addresses.
type ServiceNetwork struct {
	CIDR   netip.Prefix `json:"cidr,omitzero" doc:"Range of service addresses." default:"10.96.0.0/16"`
	Domain string       `json:"domain,omitempty" doc:"DNS domain of the cluster." default:"cluster.local"`
}

// APIPort is where the Kubernetes API of every cluster answers.
const APIPort = 6443

// APIEndpoint is where the Kubernetes API answers.
type APIEndpoint struct {
	VIP   netip.Addr `json:"vip,omitzero" doc:"Virtual address before several masters; required with 3 or 5. With one it may be set, so that the cluster can grow to more."`
	Names []string   `json:"names,omitempty" doc:"Further names and addresses for the API's certificate."`
}

// Etcd is the timing of etcd. Slow disks and emulated hosts need more than the defaults.
type Etcd struct {
	HeartbeatInterval Duration `json:"heartbeatInterval,omitempty" doc:"Interval of the leader's heartbeats." default:"100ms" min:"10ms" max:"5s"`
	ElectionTimeout   Duration `json:"electionTimeout,omitempty" doc:"Time without heartbeats until an election; at least five heartbeats." default:"1s" min:"50ms" max:"50s"`
}

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

// HostAlias is one line of /etc/hosts.
type HostAlias struct {
	Address netip.Addr `json:"address" doc:"The address." required:"true"`
	Names   []string   `json:"names" doc:"Its names." required:"true"`
}

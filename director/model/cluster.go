package model

import (
	"fmt"
	"net/netip"
)

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
	// Registries is as young, and says nothing of the director's own.
	Registries []string       `json:"registries,omitempty" of:"Registry" doc:"Names of the outer Registries that nodes pull images from, besides the director's own registry." maxItems:"20" maxLength:"40"`
	Vars       map[string]any `json:"vars,omitempty" doc:"Inventory variables that override the director's, such as setup_chrony or helm_chart_loc_override. See the variables in the playbook reference."`
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

// HostAlias is one line of /etc/hosts.
type HostAlias struct {
	Address netip.Addr `json:"address" doc:"The address." required:"true"`
	Names   []string   `json:"names" doc:"Its names." required:"true"`
}

// clusterKind is what the model knows of the kind Cluster.
var clusterKind = kind{
	name:    KindCluster,
	meaning: "A Kubernetes cluster as it should be.",
	spec:    func(d *Document) any { return ensure(&d.Cluster) },
	validate: func(v *validator, d *Document) {
		v.cluster(d.Cluster)
	},
	references: func(d *Document) []Ref {
		return d.Cluster.references()
	},
	against: func(v *validator, d *Document, all Set) {
		v.clusterAgainst(d.Cluster, all)
		v.grants().inProject(d.Cluster, all)
		v.consuls().discoveryAgainst(d.Cluster, all)
		registryValidator{v}.registriesAgainst(d.Cluster, all)
	},
	columns: [][2]string{{"RELEASE", "release"}, {"PROVIDER", "provider"}},
	effects: merged(
		of(Refused, whyCluster, "spec.provider", "spec.network", "spec.pods.plugin", "spec.pods.cidr", "spec.pods.mtu",
			"spec.services.cidr", "spec.services.domain", "spec.api.vip", "spec.api.names",
			"spec.etcd.heartbeatInterval",
			"spec.etcd.electionTimeout", "spec.sshKeys", "spec.hostAliases", "spec.vars"),
		of(Planned, "nodes are added, removed or upgraded", "spec.release", "spec.image", "spec.masters.count",
			"spec.workers[]",
			"spec.workers[].name", "spec.workers[].count"),
		of(Planned, "nodes whose image is another one are recreated", "spec.maintenance.strategy"),
		of(Later, "it is how later plans and repairs work", "spec.maintenance.maxUnavailable",
			"spec.maintenance.maxUnavailablePerHost",
			"spec.maintenance.drainTimeout", "spec.maintenance.deleteEmptyDirData", "spec.maintenance.evictUnmanaged",
			"spec.maintenance.keepFailed", "spec.maintenance.rollback",
			"spec.maintenance.repair.auto", "spec.maintenance.repair.after",
			"spec.maintenance.repair.maxPerDay", "spec.maintenance.repair.maxUnhealthyPercent"),
		of(Later, "it says who may see the cluster", "spec.project"),
		of(Later, "the entries of the API server follow it within minutes, and what is synced with the next plan",
			"spec.discovery.consul"),
		of(Planned, "the sync with Consul is installed, changed or removed; no node is touched",
			"spec.discovery.export.loadBalancer", "spec.discovery.export.ingress", "spec.discovery.export.annotated",
			"spec.discovery.export.names", "spec.discovery.import", "spec.discovery.dns"),
		of(Planned, "the agents of Consul are installed on the nodes or removed; no pod is touched",
			"spec.discovery.agents"),
		of(Planned, "the nodes are told of them; no pod is touched", "spec.registries"),
		of(Later, "the next rotation of the authority follows it: directorctl rotate cluster-ca, etcd-ca or "+
			"front-proxy-ca", "spec.certificates.authority", "spec.certificates.etcd", "spec.certificates.frontProxy"),
		of(Later, "it is where later backups go", "spec.backup.targets", "spec.backup.maxAge"),
		of(Later, "it is for later drills", "spec.backup.drill.network", "spec.backup.drill.maxAge"),
		of(Later, whyNew, "spec.masters.size", "spec.workers[].labels", "spec.workers[].taints"),
		ofNodes(Later, whyNew, "cpus", "memory", "disk", "dataDisk", "persist", "interfaces", "sshKeys", "hostAliases",
			"ntp",
			"repositories", "packages", "scripts", "shares", "health.command", "health.interval", "health.timeout"),
		ofNodes(Planned, "the agents of Consul on the nodes register them, or take them out", "services"),
		ofNodes(Later, "a node has it once it is made, rejoins or is upgraded", "reserved.kubelet.cpu",
			"reserved.kubelet.memory",
			"reserved.kubelet.disk", "reserved.kubelet.pids", "reserved.system.cpu", "reserved.system.memory",
			"reserved.system.disk",
			"reserved.system.pids"),
	),
}

func (c *Cluster) references() []Ref {
	refs := []Ref{{KindRelease, c.Release}, {KindProvider, c.Provider}, {KindImage, c.Image}}
	for _, name := range c.Networks() {
		refs = append(refs, Ref{KindNetwork, name})
	}
	if c.Project != "" {
		refs = append(refs, Ref{KindProject, c.Project})
	}
	if c.Discovery.Consul != "" {
		refs = append(refs, Ref{KindConsul, c.Discovery.Consul})
	}
	if c.Certificates.Authority != "" {
		refs = append(refs, Ref{KindCertificateAuthority, c.Certificates.Authority})
	}
	for _, name := range c.Registries {
		refs = append(refs, Ref{KindRegistry, name})
	}
	return append(refs, c.Backup.references()...)
}

func (v *validator) cluster(c *Cluster) {
	vms := &vmValidator{v}
	vms.size("spec.masters", c.Masters.VMSize, c.Masters.Persist)
	vms.reserved("spec.masters.reserved", c.Masters.Reserved, c.Masters.VMSize)
	vms.masterSize(c)
	for _, g := range c.groups() {
		vms.interfaces(c, g.at, g.vm)
		vms.vmModel(g.at, g.vm, g.persist)
		vms.services(g.at+".services", g.vm.Services, c.Discovery.Agents)
	}
	vms.addresses(c)
	vms.workers(c)
	if c.Masters.Count > 1 && !c.API.VIP.IsValid() {
		v.fail(
			"spec.api.vip", "an unused address of the network, outside its pool", "is needed with %d masters",
			c.Masters.Count,
		)
	}
	v.ranges(c)
	v.consuls().discovery(c.Discovery)
	registryValidator{v}.names(c)
	if c.Certificates.Authority == "" && (c.Certificates.Etcd || c.Certificates.FrontProxy) {
		v.fail("spec.certificates.authority", "name a CertificateAuthority, or leave etcd and frontProxy out",
			"is missing")
	}
	v.match("spec.services.domain", c.Services.Domain, domainPattern, "a DNS domain such as cluster.local", 100)
	if c.Etcd.ElectionTimeout < 5*c.Etcd.HeartbeatInterval {
		v.fail(
			"spec.etcd.electionTimeout", "at least five times heartbeatInterval; ten times is usual",
			"%s is too short for a heartbeat of %s", c.Etcd.ElectionTimeout, c.Etcd.HeartbeatInterval,
		)
	}
	for i, key := range c.SSHKeys {
		vms.sshKey(fmt.Sprintf("spec.sshKeys[%d]", i), key)
	}
}

func (v *vmValidator) workers(c *Cluster) {
	names := map[string]int{}
	for i, p := range c.Workers {
		at := fmt.Sprintf("spec.workers[%d]", i)
		v.match(at+".name", p.Name, labelPattern, "letters a-z, digits and dashes, beginning with a letter", 20)
		if p.Name == "master" {
			v.fail(at+".name", "choose another", "master is the name of the control plane")
		}
		if first, twice := names[p.Name]; twice {
			v.fail(at+".name", "", "is the name of workers[%d] too", first)
		}
		names[p.Name] = i
		v.size(at, p.VMSize, p.Persist)
		v.reserved(at+".reserved", p.Reserved, p.VMSize)
		for j, taint := range p.Taints {
			v.match(
				fmt.Sprintf("%s.taints[%d]", at, j), taint, taintPattern,
				"key=value:NoSchedule, :PreferNoSchedule or :NoExecute", 300,
			)
		}
	}
}

// ranges checks the addresses of pods and services.
func (v *validator) ranges(c *Cluster) {
	if c.Pods.CIDR.IsValid() && c.Services.CIDR.IsValid() && c.Pods.CIDR.Overlaps(c.Services.CIDR) {
		v.fail(
			"spec.pods.cidr", "choose ranges that do not touch", "%s overlaps spec.services.cidr, %s", c.Pods.CIDR,
			c.Services.CIDR,
		)
	}
	for _, r := range []struct {
		path string
		cidr netip.Prefix
		most int
	}{{"spec.pods.cidr", c.Pods.CIDR, 24}, {"spec.services.cidr", c.Services.CIDR, 24}} {
		if r.cidr.IsValid() && (!r.cidr.Addr().Is4() || r.cidr.Bits() > r.most) {
			v.fail(
				r.path, fmt.Sprintf("an IPv4 range of prefix length %d or shorter", r.most), "%s is too small", r.cidr,
			)
		}
	}
	nodes := c.Masters.Count + c.WorkerCount()
	if c.Pods.CIDR.IsValid() && c.Pods.CIDR.Bits() <= 24 && nodes > 1<<(24-c.Pods.CIDR.Bits()) {
		v.fail(
			"spec.pods.cidr", "a wider range: each node takes a /24 of it", "%s holds %d nodes, and the cluster has %d",
			c.Pods.CIDR, 1<<(24-c.Pods.CIDR.Bits()), nodes,
		)
	}
}

// Size limits are requirement A3: a warning below the recommended minimum, a refusal (by the tags) below the hard one.
func (v *vmValidator) size(at string, s VMSize, persist []string) {
	if s.CPUs < 2 || s.Memory < 4*GiB || s.Disk < 30*GiB {
		v.warn(at, "is below the recommended 2 vCPU, 4GiB and 30GiB of disk")
	}
	if len(persist) > 0 && s.DataDisk == 0 {
		v.fail(at+".dataDisk", "give it a size, such as 10GiB", "is needed for the persisted directories")
	}
	for i, dir := range persist {
		v.absolute(fmt.Sprintf("%s.persist[%d]", at, i), dir)
	}
}

// WorkerCount returns the number of workers over all pools.
func (c *Cluster) WorkerCount() int {
	n := 0
	for _, p := range c.Workers {
		n += p.Count
	}
	return n
}

func (v *validator) clusterAgainst(c *Cluster, all Set) {
	image, release := all[Ref{KindImage, c.Image}].Image, all[Ref{KindRelease, c.Release}].Release
	places := append([]placed{{"spec.network", c.Network}}, c.networks()...)
	for _, p := range places {
		if network := all[Ref{KindNetwork, p.network}].Network; network.Provider != c.Provider {
			v.fail(
				p.at, "a Network of provider "+c.Provider, "Network/%s lies on provider %s", p.network,
				network.Provider,
			)
		}
	}
	if image.Kubernetes != release.Kubernetes {
		v.fail(
			"spec.image", "an Image that carries "+release.Kubernetes,
			"Image/%s carries Kubernetes %s, and Release/%s is %s", c.Image, image.Kubernetes, c.Release,
			release.Kubernetes,
		)
	}
	for _, name := range c.Networks() {
		network, whose := all[Ref{KindNetwork, name}].Network, "the nodes' range"
		if name != c.Network {
			whose = "the range of Network/" + name
		}
		for _, r := range []struct {
			path string
			cidr netip.Prefix
		}{{"spec.pods.cidr", c.Pods.CIDR}, {"spec.services.cidr", c.Services.CIDR}} {
			if r.cidr.Overlaps(network.CIDR) {
				v.fail(r.path, "choose ranges that do not touch", "%s overlaps %s, %s", r.cidr, whose, network.CIDR)
			}
		}
	}
	vms := &vmValidator{v}
	for _, name := range c.Networks() {
		vms.addressesAgainst(c, name, all[Ref{KindNetwork, name}].Network, all)
	}
	vms.routesAgainst(c, all)
}

package model

import (
	"fmt"

	"github.com/director-kaas/kaas/director/libvirturi"
)

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

// providerKind is what the model knows of the kind Provider.
var providerKind = kind{
	name:    KindProvider,
	meaning: "A hypervisor installation that clusters can be placed on; any number of clusters share one.",
	spec:    func(d *Document) any { return ensure(&d.Provider) },
	validate: func(v *validator, d *Document) {
		v.providers().provider(d.Provider)
	},
	credentials: func(d *Document) []string { return []string{d.Provider.CredentialsName()} },
	columns:     [][2]string{{"TYPE", "type"}, {"HOSTS", "libvirt.hosts"}},
	effects: merged(
		of(Refused, whyHosts, "spec.type", "spec.libvirt.hosts[]", "spec.libvirt.hosts[].name",
			"spec.libvirt.hosts[].uri",
			"spec.vsphere.url", "spec.vsphere.datacenter", "spec.vsphere.cluster", "spec.sim.hosts[]",
			"spec.sim.hosts[].name"),
		of(Refused, "the disks of the VMs are there",
			"spec.libvirt.hosts[].pool", "spec.libvirt.hosts[].diskPool", "spec.vsphere.dataDatastore"),
		of(Later, whyNew, "spec.libvirt.domainType", "spec.libvirt.diskCache", "spec.libvirt.autostart",
			"spec.libvirt.machineType",
			"spec.libvirt.firmware", "spec.libvirt.cpuMode", "spec.libvirt.guestAgent", "spec.vsphere.resourcePool",
			"spec.vsphere.folder",
			"spec.vsphere.hosts", "spec.vsphere.datastores", "spec.vsphere.templateDatastore",
			"spec.vsphere.templateFolder",
			"spec.vsphere.clone", "spec.vsphere.firmware", "spec.vsphere.clusterPools",
			"spec.vsphere.customAttributes"),
		of(Later, whyLogin, "spec.vsphere.credentials", "spec.vsphere.user", "spec.vsphere.passwordFile",
			"spec.vsphere.thumbprint",
			"spec.vsphere.caFile"),
		of(Later, whyChecked, "spec.quota.machines", "spec.quota.cpus", "spec.quota.memory", "spec.budget.creations",
			"spec.budget.per",
			"spec.clusterQuota.machines", "spec.clusterQuota.cpus", "spec.clusterQuota.memory",
			"spec.overcommit.cpuPercent",
			"spec.overcommit.memoryPercent"),
		of(Later, "the provider only pretends", "spec.sim.hosts[].cpus", "spec.sim.hosts[].memory",
			"spec.sim.hosts[].disk",
			"spec.sim.verbs", "spec.sim.boot", "spec.sim.bootJitter", "spec.sim.seed"),
	),
}

func (v providerValidator) provider(p *Provider) {
	for _, s := range []struct {
		kind string
		set  bool
	}{{ProviderLibvirt, p.Libvirt != nil}, {ProviderVSphere, p.VSphere != nil}, {ProviderSim, p.Sim != nil}} {
		if s.set && s.kind != p.Type {
			v.fail("spec."+s.kind, "leave it out, or set type: "+s.kind, "has no meaning for type %s", p.Type)
		}
	}
	switch p.Type {
	case ProviderSim:
		v.sim(p)
	case ProviderLibvirt:
		v.libvirt(p)
	case ProviderVSphere:
		v.vsphere(p)
	}
}

func (v providerValidator) sim(p *Provider) {
	if p.Sim == nil || len(p.Sim.Hosts) == 0 {
		v.fail("spec.sim.hosts", "name at least one host", "is empty")
		return
	}
	names := map[string]int{}
	for i, h := range p.Sim.Hosts {
		at := fmt.Sprintf("spec.sim.hosts[%d]", i)
		v.match(at+".name", h.Name, domainPattern, "a host name", 63)
		if first, twice := names[h.Name]; twice {
			v.fail(at+".name", "", "is the name of hosts[%d] too", first)
		}
		names[h.Name] = i
	}
	verbs := map[string]int{}
	for i, verb := range p.Sim.Verbs {
		if first, twice := verbs[verb.Verb]; twice {
			v.fail(fmt.Sprintf("spec.sim.verbs[%d].verb", i), "keep one", "is the verb of verbs[%d] too", first)
		}
		verbs[verb.Verb] = i
	}
}

func (v providerValidator) libvirt(p *Provider) {
	if p.Libvirt == nil || len(p.Libvirt.Hosts) == 0 {
		v.fail("spec.libvirt.hosts", "name at least one host with its uri", "is empty")
		return
	}
	if m := p.Libvirt.MachineType; m != "" && !machinePattern.MatchString(m) {
		v.fail("spec.libvirt.machineType", "a machine of QEMU, such as q35 or pc-q35-7.2", "%q is not allowed", m)
	}
	if p.Libvirt.CPUMode == "host-passthrough" && p.Libvirt.DomainType == "qemu" {
		v.fail(
			"spec.libvirt.cpuMode", "leave it out, or set domainType: kvm",
			"host-passthrough needs KVM, and domainType is qemu",
		)
	}
	names := map[string]int{}
	for i, h := range p.Libvirt.Hosts {
		at := fmt.Sprintf("spec.libvirt.hosts[%d]", i)
		v.match(at+".name", h.Name, domainPattern, "a host name", 63)
		if first, twice := names[h.Name]; twice {
			v.fail(at+".name", "", "is the name of hosts[%d] too", first)
		}
		names[h.Name] = i
		if h.DiskPool != "" && h.DiskPool == h.Pool {
			v.fail(at+".diskPool", "leave it out", "is the same as pool")
		}
		if _, err := libvirturi.Parse(h.URI); err != nil {
			v.fail(at+".uri", "such as "+libvirturi.Examples, "%s", err)
		}
	}
}

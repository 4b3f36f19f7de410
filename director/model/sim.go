package model

// The types of providers.
const (
	ProviderLibvirt = "libvirt"
	ProviderSim     = "sim"
)

// Sim is a pretend hypervisor, for rehearsals and measurements. Its VMs are only counted.
type Sim struct {
	Hosts      []SimHost `json:"hosts" doc:"The pretend hosts, at least one." required:"true" maxItems:"1000"`
	Verbs      []SimVerb `json:"verbs,omitempty" doc:"How long calls take and how often they fail. A verb that is not named takes no time and never fails."`
	Boot       Duration  `json:"boot,omitempty" doc:"How long a VM takes from power on until it answers." max:"1h"`
	BootJitter Duration  `json:"bootJitter,omitempty" doc:"Up to so much longer, different for each VM." max:"1h"`
	Seed       int       `json:"seed,omitempty" doc:"Start of the random numbers for jitter and faults."`
}

// SimHost is one pretend hypervisor host.
type SimHost struct {
	Name   string `json:"name" doc:"How plans name the host." required:"true"`
	CPUs   int    `json:"cpus,omitempty" doc:"CPUs." default:"64" min:"1"`
	Memory Size   `json:"memory,omitempty" doc:"Memory." default:"512GiB" min:"1GiB"`
	Disk   Size   `json:"disk,omitempty" doc:"Space for disks." default:"16TiB" min:"1GiB"`
}

// SimVerb is how the calls of one verb go.
type SimVerb struct {
	Verb    string   `json:"verb" doc:"Which calls." enum:"ensure,get,list,set_power,delete,ensure_image,delete_image,ensure_network,delete_network,capacity,list_volumes,delete_volume,console_tail,adopt,discover" required:"true"`
	Latency Duration `json:"latency,omitempty" doc:"How long a call takes. Half of it passes after the act, so that a director that dies meanwhile finds it done." max:"1h"`
	Jitter  Duration `json:"jitter,omitempty" doc:"Up to so much longer." max:"1h"`
	Faults  int      `json:"faults,omitempty" doc:"Per cent of the calls that fail as if the hypervisor did not answer: before, in the middle of, or after the act." min:"0" max:"100"`
}

// HostNames returns the names of the hosts that VMs can be placed on, in the document's order; none where the
// hypervisor places them itself.
func (p *Provider) HostNames() []string {
	var names []string
	switch {
	case p.Type == ProviderLibvirt && p.Libvirt != nil:
		for _, h := range p.Libvirt.Hosts {
			names = append(names, h.Name)
		}
	case p.Type == ProviderVSphere && p.VSphere != nil:
		names = append(names, p.VSphere.Hosts...)
	case p.Type == ProviderSim && p.Sim != nil:
		for _, h := range p.Sim.Hosts {
			names = append(names, h.Name)
		}
	}
	return names
}

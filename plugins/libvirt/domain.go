package libvirt

import (
	"cmp"
	"encoding/xml"

	"github.com/google/uuid"
	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// domainUUID is computed from the stamp, so that a second Ensure meets what the first one made.
func domainUUID(s director.Stamp) string { return stampUUID("machine", s) }

func stampUUID(kind string, s director.Stamp) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(namespace+":"+kind+"/"+s.Director+"/"+s.Machine)).String()
}

// domain is a domain with what we know of it.
type domain struct {
	*virt.Domain
	name   string
	id     hypervisor.ID
	mark   mark
	active bool
	cpus   int
	memory int64 // bytes
	nics   []hypervisor.Adapter
}

func (d *domain) made() bool { return d.active || d.mark.Made == "yes" }

func (d *domain) vm(h *host) hypervisor.VM {
	power := hypervisor.PowerOff
	if d.active {
		power = hypervisor.PowerOn
	}
	return hypervisor.VM{
		ID: d.id, Name: d.name, Host: h.Name, Stamp: d.mark.stamp(), Power: power,
		Ready: d.active && d.mark.Made == "yes",
		CPUs:  d.cpus, Memory: d.memory, Adapters: d.nics,
	}
}

// power starts or stops the domain at once. No error if it is so already, or if another was quicker.
func (d *domain) power(on bool) error {
	if d.active == on {
		return nil
	}
	change := d.Destroy
	if on {
		change = d.Create
	}
	if err := change(); err != nil {
		if active, again := d.IsActive(); again != nil || active != on {
			return err
		}
	}
	d.active = on
	return nil
}

// inspect reads a domain, and frees it unless it returns one. It returns nil if the domain is gone.
func inspect(dom *virt.Domain) (*domain, error) {
	d := &domain{Domain: dom}
	err := d.read()
	if err == nil {
		return d, nil
	}
	_ = dom.Free()
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil, nil
	}
	return nil, err
}

func (d *domain) read() error {
	id, err := d.GetUUIDString()
	if err != nil {
		return err
	}
	d.id = hypervisor.ID(id)
	if d.name, err = d.GetName(); err != nil {
		return err
	}
	if d.active, err = d.IsActive(); err != nil {
		return err
	}
	info, err := d.GetInfo()
	if err != nil {
		return err
	}
	d.cpus, d.memory = int(info.NrVirtCpu), int64(info.MaxMem)<<10 // libvirt counts in KiB
	if d.nics, err = d.adapters(); err != nil {
		return err
	}
	text, err := d.GetMetadata(virt.DOMAIN_METADATA_ELEMENT, namespace, virt.DOMAIN_AFFECT_CURRENT)
	if is(err, virt.ERR_NO_DOMAIN_METADATA) {
		return nil
	}
	if err != nil {
		return err
	}
	d.mark, _ = parseMark("machine", text)
	return nil
}

// adapters returns the domain's adapters on networks of libvirt's, and on bridges.
func (d *domain) adapters() ([]hypervisor.Adapter, error) {
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	return adaptersOf(text)
}

// adaptersOf returns the adapters in the description of a domain. That of a domain that runs says of an adapter on a
// network with a bridge of the host's that it is on the bridge, and of which network that is; libvirtxml reads the
// bridge alone.
func adaptersOf(domain string) ([]hypervisor.Adapter, error) {
	var def struct {
		Interfaces []struct {
			MAC struct {
				Address string `xml:"address,attr"`
			} `xml:"mac"`
			Source struct {
				Network string `xml:"network,attr"`
				Bridge  string `xml:"bridge,attr"`
			} `xml:"source"`
		} `xml:"devices>interface"`
	}
	if err := xml.Unmarshal([]byte(domain), &def); err != nil {
		return nil, err
	}
	var nics []hypervisor.Adapter
	for _, i := range def.Interfaces {
		nics = append(nics, hypervisor.Adapter{MAC: i.MAC.Address, Network: cmp.Or(i.Source.Network, i.Source.Bridge)})
	}
	return nics, nil
}

// setMade says in the domain's metadata whether all its disks are complete.
func setMade(dom *virt.Domain, s director.Stamp, made string) error {
	m := mark{Director: s.Director, ID: s.Machine, Made: made}
	impact := virt.DOMAIN_AFFECT_CONFIG
	if active, err := dom.IsActive(); err == nil && active {
		impact |= virt.DOMAIN_AFFECT_LIVE
	}
	return dom.SetMetadata(virt.DOMAIN_METADATA_ELEMENT, m.element("machine", false), "kaas", namespace, impact)
}

// findDomain returns the domain with the id, or nil.
func findDomain(c *virt.Connect, id string) (*domain, error) {
	dom, err := c.LookupDomainByUUIDString(id)
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return inspect(dom)
}

package cloudinit

import (
	"net/netip"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Appliance is what the VM of a director is told at its first boot. The appliance has no cloud-init: it reads the
// section director of user-data, as its own page of the manual says.
type Appliance struct {
	InstanceID string // the machine's id
	Hostname   string
	Address    netip.Prefix
	Gateway    netip.Addr // invalid for a network without a way out
	DNS        []netip.Addr
	NTP        []string
	SSHKeys    []string
	// PasswordHash is of the first password of its user admin.
	PasswordHash director.Secret
	// Certificate and Key are of its pages, in PEM.
	Certificate string
	Key         director.Secret
}

// applianceProperties are the properties of the appliance that a seed says.
type applianceProperties struct {
	Hostname     string   `yaml:"hostname"`
	Address      string   `yaml:"address"`
	Gateway      string   `yaml:"gateway,omitempty"`
	DNS          []string `yaml:"dns,omitempty"`
	NTP          []string `yaml:"ntp,omitempty"`
	SSHKeys      []string `yaml:"ssh_keys,omitempty"`
	PasswordHash string   `yaml:"admin_password_hash"`
	Certificate  string   `yaml:"certificate"`
	Key          string   `yaml:"certificate_key"`
}

// RenderAppliance returns the documents for a. The same a gives the same bytes. Errors: invalid with every place that
// is wrong.
func RenderAppliance(a Appliance) (hypervisor.Seed, error) {
	var p problems
	p.want(oneLine(a.InstanceID), "instance_id", "is empty or has several lines")
	p.want(hostname.MatchString(a.Hostname) && len(a.Hostname) <= 64, "hostname", "%q is not a host name", a.Hostname)
	p.want(a.Address.IsValid(), "address", "is not an address with a prefix length")
	p.want(oneLine(a.PasswordHash.Reveal()), "password_hash", "is empty or has several lines")
	p.want(a.Certificate != "" && a.Key != "", "certificate", "is missing, or its key is")
	if err := director.Invalid("cloudinit.appliance", "the director's first-boot settings are wrong", p); err != nil {
		return hypervisor.Seed{}, err
	}
	own := applianceProperties{
		Hostname: a.Hostname, Address: a.Address.String(), NTP: slices.Clone(a.NTP), SSHKeys: slices.Clone(a.SSHKeys),
		PasswordHash: a.PasswordHash.Reveal(), Certificate: a.Certificate, Key: a.Key.Reveal(),
	}
	if a.Gateway.IsValid() {
		own.Gateway = a.Gateway.String()
	}
	for _, d := range a.DNS {
		own.DNS = append(own.DNS, d.String())
	}
	user, err := encode("#cloud-config\n", map[string]applianceProperties{"director": own})
	if err != nil {
		return hypervisor.Seed{}, err
	}
	meta, err := encode("", metaData{InstanceID: a.InstanceID, Hostname: a.Hostname})
	return hypervisor.Seed{MetaData: meta, UserData: user}, err
}

// RenderApplianceAgain returns the documents for the VM of an appliance whose data disk has its setup already. They say
// nothing of that: it may have been changed there.
func RenderApplianceAgain(instanceID string) (hypervisor.Seed, error) {
	meta, err := encode("", map[string]string{"instance-id": instanceID})
	return hypervisor.Seed{MetaData: meta, UserData: []byte("#cloud-config\n{}\n")}, err
}

package model

import (
	"fmt"
	"net/netip"
)

// Director is the VM of another director: an appliance that this director makes, upgrades and takes away by plans.
type Director struct {
	Provider string        `json:"provider" of:"Provider" doc:"Name of the Provider that the VM is on." required:"true"`
	Network  string        `json:"network" of:"Network" doc:"Name of the Network of the VM. Gateway, name servers and time servers are those of the Network." required:"true"`
	Host     string        `json:"host,omitempty" doc:"The provider's host for the VM. Default: the one with the fewest directors, then VMs." maxLength:"253"`
	Address  netip.Addr    `json:"address,omitzero" doc:"Address of the VM, in the range of the network. Default: the next free one of the network's pool."`
	Hostname string        `json:"hostname,omitempty" doc:"Host name of the VM, such as director.example.org. Default: the name of the document." maxLength:"64"`
	CPUs     int           `json:"cpus,omitempty" doc:"vCPUs, 2 to 64." default:"2" min:"2" max:"64"`
	Memory   Size          `json:"memory,omitempty" doc:"Memory, 4GiB to 512GiB." default:"4GiB" min:"4GiB" max:"512GiB"`
	Disk     Size          `json:"disk,omitempty" doc:"Root disk, at least as large as the image's." default:"8GiB" min:"7GiB"`
	DataDisk Size          `json:"dataDisk,omitempty" doc:"Disk with all that the director keeps. It outlives the VM." default:"100GiB" min:"8GiB"`
	Image    DirectorImage `json:"image" doc:"The appliance's root disk." required:"true"`
	SSHKeys  []string      `json:"sshKeys,omitempty" doc:"Public keys of those who may log in as admin over SSH, in authorized_keys form." maxLength:"8192"`
	// Credentials name what is sealed, so that the document holds no password and no key.
	Credentials string `json:"credentials" doc:"Name of the credentials whose password is the first password of admin, or its hash as director setup hash writes it." required:"true"`
	Certificate string `json:"certificate,omitempty" doc:"Name of the credentials whose password is the certificate of the VM's pages with its chain and its key, in PEM. Default: this director makes one for the VM alone."`
}

// DirectorImage is the file of an appliance's root disk.
type DirectorImage struct {
	Source   string `json:"source,omitempty" doc:"Path of the qcow2 file on this director, below one of its imageDirs. Left out for an image that was imported: its checksum finds it." maxLength:"4096"`
	SHA256   string `json:"sha256" doc:"SHA-256 of the file, 64 hexadecimal digits." required:"true"`
	Unsigned string `json:"unsigned,omitempty" doc:"Why the image is used without a signature, in words. Without them an image that is not signed is refused. A signature that is there must be right all the same." maxLength:"200"`
}

// ApplianceImage is the name of documents of appliances, as the names of images on providers have it: directors share
// an image there.
const ApplianceImage = "appliance"

// directorKind is what the model knows of the kind Director.
var directorKind = kind{
	name:    KindDirector,
	meaning: "The VM of another director; see [directors that a director makes](../operate/directors.md).",
	spec:    func(d *Document) any { return ensure(&d.Director) },
	validate: func(v *validator, d *Document) {
		v.director(d.Director)
	},
	references: func(d *Document) []Ref {
		return []Ref{{KindProvider, d.Director.Provider}, {KindNetwork, d.Director.Network}}
	},
	against: func(v *validator, d *Document, all Set) {
		v.directorAgainst(d, all)
	},
	credentials: func(d *Document) []string { return []string{d.Director.Credentials, d.Director.Certificate} },
	columns: [][2]string{
		{"PROVIDER", "provider"}, {"NETWORK", "network"}, {"ADDRESS", "address"}, {"HOSTNAME", "hostname"},
	},
	effects: merged(
		of(Refused, "the VM is there", "spec.provider", "spec.network", "spec.host", "spec.address", "spec.hostname",
			"spec.dataDisk"),
		of(Planned, "the VM is made again of it: directorctl director upgrade", "spec.cpus", "spec.memory",
			"spec.disk", "spec.image.sha256"),
		of(Later, whyNew, "spec.image.source", "spec.image.unsigned"),
		of(Later, "the VM is told at its first boot alone", "spec.sshKeys", "spec.credentials", "spec.certificate"),
	),
}

// AsImage returns the image as back ends and their checks know images of VMs.
func (i DirectorImage) AsImage() Image {
	return Image{Source: i.Source, Format: "qcow2", SHA256: i.SHA256, Arch: "amd64", Unsigned: i.Unsigned}
}

// HostnameOf returns the host name of the VM of the document with that name.
func (d *Director) HostnameOf(name string) string {
	if d.Hostname != "" {
		return d.Hostname
	}
	return name
}

// SameVM reports whether a VM of one document is a VM of the other: of the same image, and as large.
func (d *Director) SameVM(other *Director) bool {
	return d.Image.SHA256 == other.Image.SHA256 && d.CPUs == other.CPUs && d.Memory == other.Memory &&
		d.Disk == other.Disk
}

func (v *validator) director(d *Director) {
	v.match("spec.image.sha256", d.Image.SHA256, sha256Pattern, "64 hexadecimal digits, as sha256sum prints them", 64)
	v.absolute("spec.image.source", d.Image.Source)
	v.words("spec.image.unsigned", d.Image.Unsigned)
	for _, f := range [][2]string{{"spec.credentials", d.Credentials}, {"spec.certificate", d.Certificate}} {
		if f[1] != "" {
			v.match(f[0], f[1], credentialsPattern, "the name of credentials: letters a-z, digits and dashes", 40)
		}
	}
	if d.Certificate != "" && d.Certificate == d.Credentials {
		v.fail("spec.certificate", "keep the certificate in credentials of its own", "names the credentials of admin")
	}
	if d.Hostname != "" {
		v.match("spec.hostname", d.Hostname, hostPattern, "letters a-z, digits, dashes and dots", 64)
	}
	if d.Hostname == "localhost" {
		v.fail("spec.hostname", "such as director.example.org", "is every machine's own name")
	}
	vms := &vmValidator{v}
	for i, key := range d.SSHKeys {
		vms.sshKey(fmt.Sprintf("spec.sshKeys[%d]", i), key)
	}
}

// directorAgainst holds the VM against its provider and network, and keeps its name apart from those of clusters: plans
// and machines are known by that name.
func (v *validator) directorAgainst(doc *Document, all Set) {
	d := doc.Director
	if all[Ref{KindCluster, doc.Metadata.Name}] != nil {
		v.fail("metadata.name", "choose another name", "is the name of a cluster too")
	}
	network := all[Ref{KindNetwork, d.Network}].Network
	if network.Provider != d.Provider {
		v.fail("spec.network", "a Network of provider "+d.Provider, "Network/%s lies on provider %s", d.Network,
			network.Provider)
	}
	switch a := d.Address; {
	case !a.IsValid():
	case !network.CIDR.Contains(a):
		v.fail("spec.address", "an address in "+network.CIDR.String(), "%s is not in the range of Network/%s", a,
			d.Network)
	case a == network.Gateway:
		v.fail("spec.address", "choose another one", "%s is the gateway of Network/%s", a, d.Network)
	case a == network.CIDR.Masked().Addr() || !network.CIDR.Contains(a.Next()):
		v.fail("spec.address", "choose one in between", "%s is the first or the last of Network/%s", a, d.Network)
	}
	v.sameAddress(doc, all)
}

// sameAddress refuses an address that the document of another director has.
func (v *validator) sameAddress(doc *Document, all Set) {
	for ref, other := range all {
		if ref != doc.Ref() && other.Director != nil && doc.Director.Address.IsValid() &&
			other.Director.Network == doc.Director.Network && other.Director.Address == doc.Director.Address {
			v.fail("spec.address", "choose another one", "%s is the address of %s too", doc.Director.Address, ref)
		}
	}
}

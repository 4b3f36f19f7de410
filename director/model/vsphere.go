package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ProviderVSphere is the type of providers that are a vCenter.
const ProviderVSphere = "vsphere"

// VSphere is a cluster of hosts in a vCenter. Objects are named by their names or inventory paths, as govc does.
type VSphere struct {
	URL               string   `json:"url" doc:"Address of the vCenter, such as https://vcenter.example.org/sdk; without an account in it." required:"true"`
	User              string   `json:"user" doc:"Account, such as kaas@vsphere.local." required:"true"`
	PasswordFile      string   `json:"passwordFile" doc:"File on the director with the account's password and nothing else, readable by the director alone (mode 0600). It is read at every login." required:"true"`
	Thumbprint        string   `json:"thumbprint,omitempty" doc:"SHA-256 of the vCenter's certificate in hexadecimal digits, with or without colons, if no authority that the director knows has signed it. A connection that fails for it shows the one to compare."`
	CAFile            string   `json:"caFile,omitempty" doc:"File on the director with the certificates of authorities in PEM form, beside the system's."`
	Datacenter        string   `json:"datacenter" doc:"The datacenter." required:"true"`
	Cluster           string   `json:"cluster" doc:"The cluster of hosts." required:"true"`
	ResourcePool      string   `json:"resourcePool,omitempty" doc:"Resource pool of the VMs. Default: the cluster's own."`
	Folder            string   `json:"folder,omitempty" doc:"Folder of VMs; each Kubernetes cluster gets one of its own below it. Default: the datacenter's folder of VMs."`
	Hosts             []string `json:"hosts,omitempty" doc:"Hosts that VMs are placed on by the director. Empty leaves the choice to DRS, or where that is off to the free memory."`
	Datastores        []string `json:"datastores" doc:"Datastores of the VMs, at least one; each VM goes to the one with the most free space." required:"true"`
	TemplateDatastore string   `json:"templateDatastore,omitempty" doc:"Datastore of the images. Default: the first of datastores."`
	DataDatastore     string   `json:"dataDatastore,omitempty" doc:"Datastore of the data disks. Default: the first of datastores."`
	TemplateFolder    string   `json:"templateFolder,omitempty" doc:"Folder of the images. Default: folder."`
	Clone             string   `json:"clone,omitempty" doc:"How VMs are made of an image. linked shares what is unchanged with the image, and takes seconds; full copies the disk. auto links where it can." enum:"auto,linked,full" default:"auto"`
	Firmware          string   `json:"firmware,omitempty" doc:"Firmware of the VMs." enum:"bios,efi" default:"bios"`
}

var thumbprintPattern = regexp.MustCompile(`^([0-9A-Fa-f]{2}:?){19}[0-9A-Fa-f]{2}$|^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$`)

func (v *validator) vsphere(p *Provider) {
	s := p.VSphere
	if s == nil {
		v.fail("spec.vsphere", "name the vCenter with its url, account, datacenter, cluster and datastores", "is empty")
		return
	}
	switch {
	case strings.Contains(s.URL, "@"): // not repeated: it may hold a password
		v.fail("spec.vsphere.url", "leave it out: user and passwordFile have it", "holds an account")
	case strings.Contains(s.URL, "://") && !strings.HasPrefix(s.URL, "https://"):
		v.fail("spec.vsphere.url", "such as https://vcenter.example.org/sdk", "%q does not begin with https://", s.URL)
	}
	v.absolute("spec.vsphere.passwordFile", s.PasswordFile)
	v.absolute("spec.vsphere.caFile", s.CAFile)
	if s.Thumbprint != "" && !thumbprintPattern.MatchString(s.Thumbprint) {
		v.fail("spec.vsphere.thumbprint", "64 hexadecimal digits, with or without colons", "%q is not the SHA-256 of a certificate", s.Thumbprint)
	}
	if len(s.Datastores) == 0 {
		v.fail("spec.vsphere.datastores", "name at least one datastore", "is empty")
	}
	for _, list := range []struct {
		path  string
		names []string
	}{{"spec.vsphere.datastores", s.Datastores}, {"spec.vsphere.hosts", s.Hosts}} {
		for i, name := range list.names {
			at := fmt.Sprintf("%s[%d]", list.path, i)
			if name == "" {
				v.fail(at, "", "is empty")
			}
			if first := slices.Index(list.names, name); first < i {
				v.fail(at, "", "is the same as [%d]", first)
			}
		}
	}
}

// The mode of networks on vSphere.
const modePortGroup = "portgroup"

// modeOf checks that the network's mode is one that the provider's hypervisor has.
func (v *validator) modeOf(n *Network, p *Provider) {
	switch {
	case p.Type == ProviderVSphere && n.Mode != modePortGroup:
		v.fail("spec.mode", "set mode: portgroup, and portGroup to its inventory path", "mode %s is none of provider %s: networks on vSphere are port groups that exist", n.Mode, n.Provider)
	case p.Type == ProviderLibvirt && n.Mode == modePortGroup:
		v.fail("spec.mode", "open, nat, isolated or bridge", "provider %s is no vSphere and has no port groups", n.Provider)
	}
}

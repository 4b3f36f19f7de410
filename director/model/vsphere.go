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
	Credentials       string   `json:"credentials,omitempty" doc:"Name of the account that directorctl provider credentials set keeps sealed. It is opened at every login. Either this, or user and passwordFile."`
	User              string   `json:"user,omitempty" doc:"Account, such as kaas@vsphere.local, whose password is in passwordFile."`
	PasswordFile      string   `json:"passwordFile,omitempty" doc:"File on the director with the account's password and nothing else, readable by the director alone (mode 0600). It is read at every login."`
	Thumbprint        string   `json:"thumbprint,omitempty" doc:"SHA-256 of the vCenter's certificate in hexadecimal digits, with or without colons, if no authority that the director knows has signed it. A connection that fails for it shows the one to compare."`
	CAFile            string   `json:"caFile,omitempty" doc:"File on the director with the certificates of authorities in PEM form, in addition to the system's."`
	Datacenter        string   `json:"datacenter" doc:"The datacenter." required:"true"`
	Cluster           string   `json:"cluster" doc:"The cluster of hosts." required:"true"`
	ResourcePool      string   `json:"resourcePool,omitempty" doc:"Resource pool of the VMs. Default: the cluster's own."`
	Folder            string   `json:"folder,omitempty" doc:"Folder of VMs; each Kubernetes cluster gets one of its own below it. Default: the datacenter's folder of VMs."`
	Hosts             []string `json:"hosts,omitempty" doc:"Hosts that VMs are placed on by the director. Empty leaves the choice to DRS, or where that is off to the free memory." maxItems:"1000"`
	Datastores        []string `json:"datastores" doc:"Datastores of the VMs, at least one; each VM goes to the one with the most free space." required:"true"`
	TemplateDatastore string   `json:"templateDatastore,omitempty" doc:"Datastore of the images. Default: the first of datastores."`
	DataDatastore     string   `json:"dataDatastore,omitempty" doc:"Datastore of the data disks. Default: the first of datastores."`
	TemplateFolder    string   `json:"templateFolder,omitempty" doc:"Folder of the images. Default: folder."`
	Clone             string   `json:"clone,omitempty" doc:"How VMs are made of an image. linked shares what is unchanged with the image, and takes seconds; full copies the disk. auto links where it can." enum:"auto,linked,full" default:"auto"`
	Firmware          string   `json:"firmware,omitempty" doc:"Firmware of the VMs." enum:"bios,efi" default:"bios"`
	ClusterPools      bool     `json:"clusterPools,omitempty" doc:"Keep the VMs of each cluster in a resource pool of its own, below resourcePool; the director makes it, or takes one of the cluster's name that is there."`
	CustomAttributes  bool     `json:"customAttributes,omitempty" doc:"Set the custom attributes kaas.cluster and kaas.director of the VMs, for people who look for them in vCenter."`
}

var thumbprintPattern = regexp.MustCompile(`^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$`)

// providerValidator validates providers.
type providerValidator struct{ *validator }

func (v *validator) providers() providerValidator { return providerValidator{v} }

func (v providerValidator) vsphere(p *Provider) {
	s := p.VSphere
	if s == nil {
		v.fail("spec.vsphere", "name the vCenter with its url, account, datacenter, cluster and datastores", "is empty")
		return
	}
	switch {
	case strings.Contains(s.URL, "@"): // not repeated: it may hold a password
		v.fail("spec.vsphere.url", "leave it out: credentials names it", "holds an account")
	case strings.Contains(s.URL, "://") && !strings.HasPrefix(s.URL, "https://"):
		v.fail("spec.vsphere.url", "such as https://vcenter.example.org/sdk", "%q does not begin with https://", s.URL)
	}
	v.account(s)
	v.absolute("spec.vsphere.caFile", s.CAFile)
	if s.Thumbprint != "" && !thumbprintPattern.MatchString(s.Thumbprint) {
		v.fail(
			"spec.vsphere.thumbprint", "64 hexadecimal digits, with or without colons",
			"%q is not the SHA-256 of a certificate", s.Thumbprint,
		)
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

// account checks that there is one account and not two: the sealed credentials, or a user with the file of the
// password.
func (v providerValidator) account(s *VSphere) {
	const set = "set it to the name of credentials, and keep those sealed: directorctl provider credentials set " +
		"NAME --user USER"
	v.absolute("spec.vsphere.passwordFile", s.PasswordFile)
	if s.Credentials != "" && !ValidCredentialsName(s.Credentials) {
		v.fail(
			"spec.vsphere.credentials", "letters a-z, digits and dashes, beginning with a letter, at most 40",
			"%q is not a name of credentials", s.Credentials,
		)
	}
	switch {
	case s.Credentials != "" && s.User != "":
		v.fail(
			"spec.vsphere.user", "leave it out: the credentials have the account's name",
			"is given together with credentials",
		)
	case s.Credentials == "" && s.User == "" && s.PasswordFile == "":
		v.fail("spec.vsphere.credentials", set, "is empty, and there is no user with a passwordFile either")
	case s.Credentials == "" && s.User == "":
		v.fail("spec.vsphere.user", "name the account whose password is in passwordFile", "is empty")
	case s.Credentials == "" && s.PasswordFile == "":
		v.fail(
			"spec.vsphere.passwordFile", "name the file with the user's password, or use credentials instead of both",
			"is empty",
		)
	}
	if s.Credentials != "" && s.PasswordFile != "" {
		v.fail(
			"spec.vsphere.passwordFile", "leave it out: the credentials have the password",
			"is given together with credentials",
		)
	}
}

// The mode of networks on vSphere.
const modePortGroup = "portgroup"

// modeOf checks that the network's mode is one that the provider's hypervisor has.
func (v networkValidator) modeOf(n *Network, p *Provider) {
	switch {
	case p.Type == ProviderVSphere && n.Mode != modePortGroup:
		v.fail(
			"spec.mode", "set mode: portgroup, and portGroup to its inventory path",
			"mode %s is none of provider %s: networks on vSphere are port groups that exist", n.Mode, n.Provider,
		)
	case p.Type == ProviderLibvirt && n.Mode == modePortGroup:
		v.fail(
			"spec.mode", "open, nat, isolated or bridge", "provider %s is no vSphere and has no port groups",
			n.Provider,
		)
	}
}

package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// Set is the documents that exist, by name.
type Set map[Ref]*Document

// SetOf returns the documents as a set; a later one of a name replaces an earlier one.
func SetOf(docs []Document) Set {
	s := make(Set, len(docs))
	for i := range docs {
		s[docs[i].Ref()] = &docs[i]
	}
	return s
}

// References lists what the document names.
func (d *Document) References() []Ref {
	switch {
	case d.Network != nil:
		return []Ref{{KindProvider, d.Network.Provider}}
	case d.Cluster != nil:
		c := d.Cluster
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
		return append(refs, c.Backup.references()...)
	case d.Director != nil:
		return []Ref{{KindProvider, d.Director.Provider}, {KindNetwork, d.Director.Network}}
	case d.Project != nil:
		return d.Project.references()
	case d.Grant != nil:
		return d.Grant.references()
	}
	return nil
}

// Check returns every problem of the document with those that it names, as one invalid error, or nil. The document has
// passed Validate.
func Check(d *Document, all Set) error {
	v := validator{ref: d.Ref()}
	missing := false
	for _, r := range d.References() {
		if all[r] == nil {
			missing = true
			v.fail(d.mentions(r), "apply it first, or with this document", "there is no %s named %q", r.Kind, r.Name)
		}
	}
	if !missing {
		switch {
		case d.Network != nil:
			v.networkAgainst(d, all)
		case d.Cluster != nil:
			v.clusterAgainst(d.Cluster, all)
			v.inProject(d.Cluster, all)
			v.discoveryAgainst(d.Cluster, all)
		case d.Director != nil:
			v.directorAgainst(d, all)
		case d.Consul != nil:
			v.consulAgainst(d, all)
		case d.Project != nil:
			v.projectAgainst(d, all)
		case d.Grant != nil:
			v.grantAgainst(d.Grant, all)
		}
	}
	return invalid(v)
}

func field(k Kind) string {
	return map[Kind]string{
		KindRelease: "release", KindProvider: "provider", KindImage: "image", KindNetwork: "network",
		KindProject: "project", KindCluster: "cluster", KindConsul: "discovery.consul",
		KindCertificateAuthority: "certificates.authority",
	}[k]
}

// mentions returns the first field of the document that names r.
func (d *Document) mentions(r Ref) string {
	if d.Cluster != nil && r.Kind == KindNetwork && r.Name != d.Cluster.Network {
		for _, p := range d.Cluster.networks() {
			if p.network == r.Name {
				return p.at
			}
		}
	}
	switch {
	case d.Cluster != nil && r.Kind == KindNetwork && r.Name == d.Cluster.Backup.Drill.Network &&
		r.Name != d.Cluster.Network:
		return "spec.backup.drill.network"
	case d.Cluster != nil && r.Kind == KindBackupTarget:
		return fmt.Sprintf("spec.backup.targets[%d]", slices.Index(d.Cluster.Backup.Targets, r.Name))
	case d.Project != nil:
		return fmt.Sprintf("spec.%ss[%d]", field(r.Kind), slices.Index(d.Project.names(r.Kind), r.Name))
	case d.Grant != nil && r.Kind == KindIdentityProvider:
		i := slices.IndexFunc(d.Grant.Groups, func(g GrantGroup) bool { return g.Provider == r.Name })
		return fmt.Sprintf("spec.groups[%d].provider", i)
	}
	return "spec." + field(r.Kind)
}

func (v *validator) networkAgainst(d *Document, all Set) {
	v.modeOf(d.Network, all[Ref{KindProvider, d.Network.Provider}].Provider)
	for ref, other := range all {
		if ref.Kind == KindNetwork && ref != d.Ref() && other.Network.Provider == d.Network.Provider &&
			other.Network.CIDR.Overlaps(d.Network.CIDR) {
			v.fail(
				"spec.cidr", "choose another range", "%s overlaps %s, %s, on the same provider", d.Network.CIDR, ref,
				other.Network.CIDR,
			)
		}
	}
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

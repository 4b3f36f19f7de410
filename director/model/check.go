package model

import (
	"fmt"
	"slices"
	"strings"
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
	if k := d.Kind.about(); k.references != nil {
		return k.references(d)
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
	if k := d.Kind.about(); !missing && k.against != nil {
		k.against(&v, d, all)
	}
	return invalid(v)
}

// field is the field of a spec that names a document of the kind.
func field(k Kind) string {
	switch k {
	case KindConsul:
		return "discovery.consul"
	case KindCertificateAuthority:
		return "certificates.authority"
	}
	return strings.ToLower(string(k[:1])) + string(k[1:])
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
	case d.Cluster != nil && r.Kind == KindRegistry:
		return fmt.Sprintf("spec.registries[%d]", slices.Index(d.Cluster.Registries, r.Name))
	case d.Project != nil:
		return fmt.Sprintf("spec.%ss[%d]", field(r.Kind), slices.Index(d.Project.names(r.Kind), r.Name))
	case d.Grant != nil && r.Kind == KindIdentityProvider:
		i := slices.IndexFunc(d.Grant.Groups, func(g GrantGroup) bool { return g.Provider == r.Name })
		return fmt.Sprintf("spec.groups[%d].provider", i)
	}
	return "spec." + field(r.Kind)
}

package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Project is a set of clusters with a quota. A cluster says itself which project it belongs to.
type Project struct {
	Description string       `json:"description,omitempty" doc:"What the project is for."`
	Providers   []string     `json:"providers,omitempty" of:"Provider" doc:"The providers that clusters of the project may be on. Default: all."`
	Networks    []string     `json:"networks,omitempty" of:"Network" doc:"The networks that nodes of the project may be in. Default: all."`
	Quota       ProjectQuota `json:"quota,omitzero" doc:"Upper limits over all clusters of the project, as their documents say."`
}

// ProjectQuota limits the clusters and the images of a project. Zero means no limit.
type ProjectQuota struct {
	Clusters int  `json:"clusters,omitempty" doc:"Number of clusters." min:"1" max:"100000"`
	Machines int  `json:"machines,omitempty" doc:"Number of VMs." min:"1" max:"1000000"`
	CPUs     int  `json:"cpus,omitempty" doc:"Sum of vCPUs." min:"1" max:"10000000"`
	Memory   Size `json:"memory,omitempty" doc:"Sum of memory."`
	Images   Size `json:"images,omitempty" doc:"Sum of what its images in the director's registry have. It is looked at when images are pushed."`
}

// Grant gives a role to users and groups.
type Grant struct {
	Users   []string     `json:"users,omitempty" doc:"Names of users whom the director knows. It knows people of a directory once they have logged in."`
	Groups  []GrantGroup `json:"groups,omitempty" doc:"Groups of directories."`
	Role    string       `json:"role" doc:"What they may do there." enum:"admin,operator,user,auditor" required:"true"`
	Project string       `json:"project,omitempty" of:"Project" doc:"Name of the Project that it is for. With neither a project nor a cluster: the whole director."`
	Cluster string       `json:"cluster,omitempty" of:"Cluster" doc:"Name of the Cluster that the grant is for."`
}

// GrantGroup is a group of a directory.
type GrantGroup struct {
	Provider string `json:"provider" of:"IdentityProvider" doc:"Name of the IdentityProvider." required:"true"`
	Group    string `json:"group" doc:"Distinguished name of the group, as spec.roles of the provider has it." required:"true" maxLength:"1024"`
}

// grantValidator validates grants and projects.
type grantValidator struct{ *validator }

// grantKind is what the model knows of the kind Grant.
var grantKind = kind{
	name: KindGrant,
	meaning: "What users and groups may do in a project, on one cluster or on the whole director; see " +
		"[grants](../operate/grants.md).",
	spec: func(d *Document) any { return ensure(&d.Grant) },
	validate: func(v *validator, d *Document) {
		v.grants().grant(d.Grant)
	},
	references: func(d *Document) []Ref {
		return d.Grant.references()
	},
	against: func(v *validator, d *Document, all Set) {
		v.grants().grantAgainst(d.Grant, all)
	},
	columns: [][2]string{
		{"ROLE", "role"}, {"PROJECT", "project"}, {"CLUSTER", "cluster"}, {"USERS", "users"}, {"GROUPS", "groups"},
	},
	effects: of(Later, "no machine depends on it; it counts from the next request", "spec.users", "spec.groups",
		"spec.role", "spec.project", "spec.cluster"),
}

// projectKind is what the model knows of the kind Project.
var projectKind = kind{
	name:    KindProject,
	meaning: "A set of clusters with its people and its quota; see [grants](../operate/grants.md).",
	spec:    func(d *Document) any { return ensure(&d.Project) },
	references: func(d *Document) []Ref {
		return d.Project.references()
	},
	against: func(v *validator, d *Document, all Set) {
		v.grants().projectAgainst(d, all)
	},
	columns: [][2]string{
		{"CLUSTERS", "quota.clusters"},
		{"MACHINES", "quota.machines"},
		{"CPUS", "quota.cpus"},
		{"MEMORY", "quota.memory"},
		{"NETWORKS", "networks"},
		{"DESCRIPTION", "description"},
	},
	effects: of(Later, "no machine depends on it; it is checked when documents are applied", "spec.description",
		"spec.providers", "spec.networks", "spec.quota.clusters", "spec.quota.machines", "spec.quota.cpus",
		"spec.quota.memory", "spec.quota.images"),
}

func (v *validator) grants() grantValidator { return grantValidator{v} }

// names returns the documents of the kind that clusters of the project may name.
func (p *Project) names(k Kind) []string {
	if k == KindProvider {
		return p.Providers
	}
	return p.Networks
}

func (p *Project) references() []Ref {
	var refs []Ref
	for _, k := range []Kind{KindProvider, KindNetwork} {
		for _, name := range p.names(k) {
			refs = append(refs, Ref{k, name})
		}
	}
	return refs
}

func (g *Grant) references() []Ref {
	var refs []Ref
	for _, group := range g.Groups {
		refs = append(refs, Ref{KindIdentityProvider, group.Provider})
	}
	if g.Project != "" {
		refs = append(refs, Ref{KindProject, g.Project})
	}
	if g.Cluster != "" {
		refs = append(refs, Ref{KindCluster, g.Cluster})
	}
	return refs
}

func (v grantValidator) grant(g *Grant) {
	if len(g.Users)+len(g.Groups) == 0 {
		v.fail("spec.users", "name users or groups", "is empty, and so is spec.groups: the grant is for no one")
	}
	if g.Project != "" && g.Cluster != "" {
		v.fail("spec.cluster", "write two grants", "cannot be set together with spec.project")
	}
}

// grantAgainst checks that the groups are asked for: a group that its provider does not name would never count.
func (v grantValidator) grantAgainst(g *Grant, all Set) {
	for i, group := range g.Groups {
		roles := all[Ref{KindIdentityProvider, group.Provider}].IdentityProvider.Roles
		if !slices.ContainsFunc(roles, func(r GroupRole) bool { return r.Group == group.Group }) {
			v.fail(
				fmt.Sprintf("spec.groups[%d].group", i), "add it there, with the role none if it is to have no other",
				"is not in spec.roles of IdentityProvider/%s", group.Provider,
			)
		}
	}
}

// projectAgainst holds the clusters of the project against its quota.
func (v grantValidator) projectAgainst(d *Document, all Set) {
	var clusters, machines, cpus int
	var memory Size
	var names []string
	for ref, c := range all {
		if ref.Kind != KindCluster || c.Cluster.Project != d.Metadata.Name {
			continue
		}
		names = append(names, ref.Name)
		clusters++
		add := func(count int, vm VMSize) {
			machines += count
			cpus += count * vm.CPUs
			memory += Size(count) * vm.Memory
		}
		add(c.Cluster.Masters.Count, c.Cluster.Masters.VMSize)
		for _, p := range c.Cluster.Workers {
			add(p.Count, p.VMSize)
		}
	}
	slices.Sort(names)
	list := short(strings.Join(names, ", "))
	over := func(field string, need, most int64, text func(int64) string) {
		if most > 0 && need > most {
			v.fail(
				"spec.quota."+field, "make a cluster smaller, or ask an administrator for a greater quota",
				"is %s, and the clusters of the project (%s) would have %s", text(most), list, text(need),
			)
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	q := d.Project.Quota
	over("clusters", int64(clusters), int64(q.Clusters), number)
	over("machines", int64(machines), int64(q.Machines), number)
	over("cpus", int64(cpus), int64(q.CPUs), number)
	over("memory", int64(memory), int64(q.Memory), func(n int64) string { return Size(n).String() })
}

// inProject checks that the cluster keeps to what its project may use.
func (v grantValidator) inProject(c *Cluster, all Set) {
	if c.Project == "" {
		return
	}
	p := all[Ref{KindProject, c.Project}].Project
	if len(p.Providers) > 0 && !slices.Contains(p.Providers, c.Provider) {
		v.fail(
			"spec.provider", "one of "+strings.Join(p.Providers, ", "), "is not for clusters of Project/%s", c.Project,
		)
	}
	if len(p.Networks) == 0 {
		return
	}
	for _, place := range append([]placed{{"spec.network", c.Network}}, c.networks()...) {
		if !slices.Contains(p.Networks, place.network) {
			v.fail(place.at, "one of "+strings.Join(p.Networks, ", "), "is not for clusters of Project/%s", c.Project)
		}
	}
}

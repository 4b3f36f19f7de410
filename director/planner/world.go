package planner

import (
	"slices"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Seen is what the cluster's own API says of a node.
type Seen struct {
	Ready bool
	Etcd  bool // its etcd member runs and is ready
}

// alive returns the machines that exist or are about to, masters first, then by pool and number.
func (w World) alive() []director.Machine {
	var out []director.Machine
	for _, m := range w.Machines {
		if m.Deleted.IsZero() {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, byPlace)
	return out
}

// Nodes returns the rows of the machines that exist or are about to, masters first, then by pool and number.
func (w World) Nodes() []director.Machine { return w.alive() }

// members returns the machines that are nodes of the cluster, masters first.
func (w World) members() []director.Machine {
	return slices.DeleteFunc(w.alive(), func(m director.Machine) bool { return m.Kubernetes == "" })
}

func (w World) masters() []director.Machine {
	return slices.DeleteFunc(w.members(), func(m director.Machine) bool { return m.Role != director.RoleMaster })
}

// up reports whether the node answers, as far as anybody knows: without a look at the cluster a member is taken to be
// well.
func (w World) up(node string) bool {
	if len(w.Lost) > 0 &&
		slices.ContainsFunc(w.Machines, func(m director.Machine) bool {
			return m.Name == node && m.Deleted.IsZero() && w.hosts().lost(m)
		}) {
		return false
	}
	if w.Seen == nil {
		return true
	}
	return w.Seen[node].Ready
}

// endpoint is where the cluster's API answers: the virtual address, or that of the first of its masters.
func (w World) endpoint(masters []sized) string {
	host := masters[0].Address
	if vip := w.Cluster.Cluster.API.VIP; vip.IsValid() {
		host = vip.String()
	}
	return host + ":" + strconv.Itoa(model.APIPort)
}

// machine returns the living machine of that name, or not_found with the names that there are.
func (w World) machine(op, name string) (director.Machine, error) {
	var names []string
	for _, m := range w.alive() {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return director.Machine{}, director.Errorf(
		director.KindNotFound, op, "cluster %s has no node %q", w.Cluster.Metadata.Name, name,
	).
		WithHint("its nodes are %s", strings.Join(names, ", "))
}

// sized returns the machine with the size of its pool in the document; a machine of a pool that is gone has only what
// the ledger knows.
func (w World) sized(m director.Machine) sized {
	c := w.Cluster.Cluster
	if m.Role == director.RoleMaster || m.Role == director.RoleDirector {
		return sized{m, c.Masters.VMSize, c.Masters.Persist, c.Masters.VMModel}
	}
	for _, p := range c.Workers {
		if p.Name == m.Pool {
			return sized{m, p.VMSize, p.Persist, p.VMModel}
		}
	}
	return sized{Machine: m, VMSize: model.VMSize{CPUs: m.CPUs, Memory: model.Size(m.Memory)}}
}

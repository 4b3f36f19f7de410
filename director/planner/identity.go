package planner

import (
	"fmt"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// mostSerials bounds how often a name was used before, as far as MadeFor looks.
const mostSerials = 1000

// NodeNames returns the names that the cluster's document gives to nodes.
func NodeNames(cluster string, c *model.Cluster) []string {
	var out []string
	pool := func(name string, count int) {
		for n := range count {
			out = append(out, nodeName(cluster, name, n+1))
		}
	}
	pool("master", c.Masters.Count)
	for _, p := range c.Workers {
		pool(p.Name, p.Count)
	}
	return out
}

func nodeName(cluster, pool string, n int) string { return fmt.Sprintf("%s-%s-%d", cluster, pool, n) }

// MadeFor reports whether the machine id is one that this planner gave to a node of that name in the cluster of that
// uid. An id comes from nothing else, so that a VM's stamp proves which cluster it was made for, also when no row is
// left.
func MadeFor(clusterUID, name, id string) bool {
	for serial := range mostSerials {
		if MachineID(clusterUID, name, serial) == id {
			return true
		}
	}
	return false
}

// fewSerials bounds how often a name was used before, as far as NodeWithID looks: it looks at many names.
const fewSerials = 20

// NodeWithID returns which of the names the planner gave the machine id to, in the cluster of that uid; false if to
// none recently.
func NodeWithID(clusterUID string, names []string, id string) (string, bool) {
	for _, n := range names {
		for serial := range fewSerials {
			if MachineID(clusterUID, n, serial) == id {
				return n, true
			}
		}
	}
	return "", false
}

// Member returns the row of a node of that name and id as the cluster's document would have it, without addresses;
// false if the document has no such pool. hasMAC tells which MAC addresses its VM has; nil if that is not known.
func Member(cluster model.Stored, name, id string, hasMAC func(mac string) bool) (director.Machine, bool) {
	c := cluster.Cluster
	rest, ours := strings.CutPrefix(name, cluster.Metadata.Name+"-")
	pool, n, numbered := cutLast(rest, "-")
	if !ours || !numbered || nodeName(cluster.Metadata.Name, pool, number(director.Machine{Name: name})) != name ||
		n == "" {
		return director.Machine{}, false
	}
	mac := func(id string) string { return macAmong(id, hasMAC) }
	m := director.Machine{
		ID: id, ClusterUID: cluster.UID, Cluster: cluster.Metadata.Name, Name: name, Role: director.RoleWorker,
		Pool: pool, Provider: c.Provider,
		Network: c.Network, Image: c.Image, MAC: mac(id), State: director.MachinePresent,
	}
	if pool == "master" {
		m.Role, m.CPUs, m.Memory = director.RoleMaster, c.Masters.CPUs, int64(c.Masters.Memory)
		m.NICs = furtherNICs(id, c.Masters.VMModel, mac)
		return m, true
	}
	for _, p := range c.Workers {
		if p.Name == pool {
			m.CPUs, m.Memory = p.CPUs, int64(p.Memory)
			m.NICs = furtherNICs(id, p.VMModel, mac)
			return m, true
		}
	}
	return director.Machine{}, false
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// quorum refuses to take master m out if etcd could not agree then. out holds the masters that the plan has taken out before; m is added to it.
//
// A member is removed by a majority of the members that there are, m among them if it is well, and afterwards a majority of the others has to be well.
// Beside that, a majority of the masters that the document asks for stays: what is taken out for a time is to come back to a cluster that can lose nothing
// more, and not to one that is a single master by accident.
func (d *draft) quorum(m sized, out map[string]bool) error {
	if m.Role != director.RoleMaster {
		return nil
	}
	const op = "planner.quorum"
	members, well, wellOthers := 0, 0, 0
	for _, o := range d.masters {
		if out[o.Name] {
			continue
		}
		members++
		if d.w.Seen != nil && (!d.w.Seen[o.Name].Ready || !d.w.Seen[o.Name].Etcd) {
			continue
		}
		well++
		if o.Name != m.Name {
			wellOthers++
		}
	}
	if members == 1 {
		return conflict(op, m.Name+" is the last master of cluster "+d.Cluster+": without it there is no cluster", "delete the cluster instead: directorctl delete cluster "+d.Cluster)
	}
	if d.w.Blind != "" {
		return conflict(op, "the masters of cluster "+d.Cluster+" cannot be seen, so nobody knows whether etcd would keep its quorum: "+d.w.Blind,
			"bring the Kubernetes API back first; see: directorctl node list "+d.Cluster)
	}
	if well < majority(members) || wellOthers < majority(members-1) {
		return conflict(op, fmt.Sprintf("without %s etcd would lose its quorum: %d of its %d members are well, and %d of the other %d", m.Name, well, members, wellOthers, members-1),
			"bring the other masters back first, one by one: directorctl node rejoin "+d.Cluster+" NODE")
	}
	if asked := d.w.Cluster.Cluster.Masters.Count; members-1 < majority(asked) {
		return conflict(op, fmt.Sprintf("without %s cluster %s would have %d of the %s that its document asks for, and %d must stay", m.Name, d.Cluster, members-1,
			count(asked, "master"), majority(asked)), "bring the other masters back first, one by one: directorctl node rejoin "+d.Cluster+" NODE")
	}
	out[m.Name] = true
	return nil
}

// TakeOut refuses to take nodes of the host out for a time while nodes on other hosts are out, if fewer masters than a majority of what the document asks
// for would stay, or more workers would be out than the document allows. A host is taken out as a whole when no other one is out, however many workers it
// has. leaving are the nodes that another plan is taking out now.
func TakeOut(w World, host string, nodes, leaving []string) error {
	const op = "planner.take_out"
	var away []director.Machine // on other hosts
	masters, goingMasters, workersAway := 0, 0, 0
	var going []string
	for _, m := range w.alive() {
		master, goes := m.Role == director.RoleMaster, slices.Contains(nodes, m.Name)
		switch {
		case Out(m) || slices.Contains(leaving, m.Name):
			if m.Host == host {
				continue
			}
			away = append(away, m)
			if !master {
				workersAway++
			}
		case m.Kubernetes == "":
		case master:
			masters++
			if goes {
				goingMasters++
			}
		case goes:
			going = append(going, m.Name)
		}
	}
	name, asked := w.Cluster.Metadata.Name, w.Cluster.Cluster.Masters.Count
	first, hint := "", fmt.Sprintf("the masters of cluster %s on host %s cannot be away together: put them on different hosts, or delete the cluster", name, host)
	if asked == 1 {
		hint = "a cluster with one master stands still without it: work on this host without the director when that is allowed, and repair the cluster afterwards: directorctl node repair " + name
	}
	if len(away) > 0 {
		var out []string
		for _, m := range away {
			if m.Host == away[0].Host {
				out = append(out, m.Name)
			}
		}
		first = fmt.Sprintf("host %s is out with %s of cluster %s, and ", away[0].Host, strings.Join(out, ", "), name)
		hint = "finish that host first: directorctl phase post-node-unlock --host " + away[0].Host + " --task-id ID --wait"
	}
	if left := masters - goingMasters; goingMasters > 0 && left < majority(asked) {
		return conflict(op, fmt.Sprintf("%swithout the masters on host %s cluster %s would have %d of the %s that its document asks for, and %d must stay",
			first, host, name, left, count(asked, "master"), majority(asked)), hint)
	}
	allowed := max(w.Cluster.Cluster.Maintenance.MaxUnavailable, 1)
	if sum := workersAway + len(going); workersAway > 0 && len(going) > 0 && sum > allowed {
		return conflict(op, fmt.Sprintf("%swith %s on host %s %s would be out, and spec.maintenance.maxUnavailable is %d",
			first, strings.Join(going, ", "), host, count(sum, "worker"), allowed), hint)
	}
	return nil
}

// Out reports whether the machine has left its cluster and its VM stays, or has come back only half way.
func Out(m director.Machine) bool {
	return m.Kubernetes == "" && (m.State == director.MachineDetached || m.State == director.MachinePresent)
}

// majority is how many of n members have to agree.
func majority(n int) int { return n/2 + 1 }

// losses is how many of n members may fail before etcd stops.
func losses(n int) int { return max(n-majority(n), 0) }

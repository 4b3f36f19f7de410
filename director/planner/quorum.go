package planner

import (
	"fmt"

	"github.com/director-kaas/kaas/director"
)

// quorum refuses to take master m out if etcd could not agree then. out holds the masters that the plan has taken out before; m is added to it.
//
// A member is removed by a majority of the members that there are, m among them if it is well, and afterwards a majority of the others has to be well.
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
	out[m.Name] = true
	return nil
}

// majority is how many of n members have to agree.
func majority(n int) int { return n/2 + 1 }

// losses is how many of n members may fail before etcd stops.
func losses(n int) int { return max(n-majority(n), 0) }

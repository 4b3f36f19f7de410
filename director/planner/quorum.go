package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

const opQuorum = "planner.quorum"

// voices are the etcd members of a cluster as a plan finds them at one of its steps.
type voices struct {
	members    int
	well       int // of members
	wellOthers int // well without the master that is worked on
}

// voices counts the masters that the plan has not taken out. Those that it brings in are well: each is ready before the
// next step starts.
func (d *draft) voices(m sized, out map[string]bool) voices {
	var v voices
	for _, o := range d.masters {
		if out[o.Name] {
			continue
		}
		v.members++
		if d.w.hosts().lost(o) {
			continue
		}
		if d.w.Seen != nil && !d.fresh[o.Name] && (!d.w.Seen[o.Name].Ready || !d.w.Seen[o.Name].Etcd) {
			continue
		}
		v.well++
		if o.Name != m.Name {
			v.wellOthers++
		}
	}
	return v
}

// blind refuses to touch a master while the others cannot be seen.
func (d *draft) blind() error {
	if d.w.Blind == "" {
		return nil
	}
	return conflict(opQuorum, "the masters of cluster "+d.Cluster+
		" cannot be seen, so it is unknown whether etcd would keep its quorum: "+d.w.Blind,
		"bring the Kubernetes API back first; see: directorctl node list "+d.Cluster)
}

// quorum refuses to take master m out if etcd could not agree then. out holds the masters that the plan has taken out
// before; m is added to it.
//
// A member is removed by a majority of the members that there are, m among them if it is well, and afterwards a
// majority of the others has to be well. In addition, a majority of the masters that the document asks for stays: what
// is taken out for a time is to come back to a cluster that can lose nothing more, and not to one that is a single
// master by accident.
func (d *draft) quorum(m sized, out map[string]bool) error { return d.quorumWith(m, out, 0) }

// quorumWith is quorum behind steps that have added so many masters, each of which is ready by then.
func (d *draft) quorumWith(m sized, out map[string]bool, added int) error {
	if m.Role != director.RoleMaster {
		return nil
	}
	v := d.voices(m, out)
	v.members, v.well, v.wellOthers = v.members+added, v.well+added, v.wellOthers+added
	if v.members == 1 {
		return conflict(
			opQuorum, m.Name+" is the last master of cluster "+d.Cluster+": without it there is no cluster",
			"delete the cluster instead: directorctl delete cluster "+d.Cluster,
		)
	}
	if err := d.blind(); err != nil {
		return err
	}
	if v.well < majority(v.members) || v.wellOthers < majority(v.members-1) {
		return d.noQuorum(m, v)
	}
	if asked := d.w.Cluster.Cluster.Masters.Count; v.members-1 < majority(asked) {
		return conflict(opQuorum, fmt.Sprintf("without %s cluster %s would have %d of the %s that its document asks "+
			"for, and %d must stay", m.Name, d.Cluster, v.members-1,
			director.Count(asked, "master"), majority(asked)),
			"bring the other masters back first, one by one: directorctl node rejoin "+d.Cluster+" NODE")
	}
	out[m.Name] = true
	return nil
}

func (d *draft) noQuorum(m sized, v voices) error {
	hint := "bring the other masters back first, one by one: directorctl node rejoin " + d.Cluster + " NODE"
	if runs, _ := d.w.Behind(); runs != "" {
		hint = "name the release of " + runs + " in the document until all masters are well; " + hint
	}
	return conflict(opQuorum, fmt.Sprintf("without %s etcd would lose its quorum: %d of its %d members are well, "+
		"and %d of the other %d", m.Name, v.well, v.members, v.wellOthers,
		v.members-1), hint)
}

// quorumWithout refuses to stop master m for a while if the others could not agree meanwhile: m stays a member, so its
// voice counts and is not given. A single master has no others. Of two neither can agree alone: if both are well the
// API only pauses, which the plan warns of.
func (d *draft) quorumWithout(m sized) error {
	if m.Role != director.RoleMaster {
		return nil
	}
	v := d.voices(m, nil)
	if v.members == 1 {
		return nil
	}
	if err := d.blind(); err != nil {
		return err
	}
	switch {
	case v.members == 2 && v.well == 2:
		d.warn(
			"etcd has two members, and neither can agree alone: the Kubernetes API does not answer while the etcd " +
				"of a master restarts",
		)
	case v.wellOthers < majority(v.members):
		return d.noQuorum(m, v)
	}
	return nil
}

// quorumSwap refuses to replace master m by another one that joins first if etcd could not agree at some point: when
// the new member has come, and when m has gone.
func (d *draft) quorumSwap(m sized) error {
	if m.Role != director.RoleMaster {
		return nil
	}
	if err := d.blind(); err != nil {
		return err
	}
	v := d.voices(m, nil)
	if v.well < majority(v.members) || v.well+1 < majority(v.members+1) || v.wellOthers+1 < majority(v.members) {
		return d.noQuorum(m, v)
	}
	return nil
}

// TakeOut refuses to take nodes of the host out for a time while nodes on other hosts are out, if fewer masters than a
// majority of what the document asks for would stay, or more workers would be out than the document allows. A host is
// taken out as a whole when no other one is out, however many workers it has. leaving are the nodes that another plan
// is taking out now.
func TakeOut(w World, host string, nodes, leaving []string) error {
	const op = "planner.take_out"
	var away []director.Machine // on other hosts
	masters, goingMasters, workersAway := 0, 0, 0
	var going []string
	spare := w.Spare()
	for _, m := range w.alive() {
		if spare[m.Name] {
			continue // it is out for good
		}
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
	first, hint := whyNot(name, host, asked, away)
	if left := masters - goingMasters; goingMasters > 0 && left < majority(asked) {
		return conflict(op, fmt.Sprintf("%swithout the masters on host %s cluster %s would have %d of the %s that "+
			"its document asks for, and %d must stay",
			first, host, name, left, director.Count(asked, "master"), majority(asked)), hint)
	}
	allowed := max(w.Cluster.Cluster.Maintenance.MaxUnavailable, 1)
	if sum := workersAway + len(going); workersAway > 0 && len(going) > 0 && sum > allowed {
		return conflict(op, fmt.Sprintf("%swith %s on host %s %s would be out, and spec.maintenance.maxUnavailable "+
			"is %d",
			first, strings.Join(going, ", "), host, director.Count(sum, "worker"), allowed), hint)
	}
	return nil
}

// whyNot returns what comes first in a refusal of TakeOut, and what to do. away are the machines that are out.
func whyNot(name, host string, asked int, away []director.Machine) (first, hint string) {
	hint = fmt.Sprintf(
		"the masters of cluster %s on host %s cannot be away together: put them on different hosts, or delete "+
			"the cluster",
		name, host,
	)
	if asked == 1 {
		hint = "a cluster with one master does nothing without it: work on this host without the director when that " +
			"is allowed, and repair the cluster afterwards: directorctl node repair " + name
	}
	if len(away) > 0 {
		var out []string
		for _, m := range away {
			if m.Host == away[0].Host {
				out = append(out, m.Name)
			}
		}
		first = fmt.Sprintf("host %s is out with %s of cluster %s, and ", away[0].Host, strings.Join(out, ", "), name)
		hint = "finish that host first: directorctl phase post-node-unlock --host " + away[0].Host +
			" --task-id ID --wait"
	}
	return first, hint
}

// Out reports whether the machine has left its cluster and its VM stays, or has come back only half way.
func Out(m director.Machine) bool {
	return m.Kubernetes == "" && (m.State == director.MachineDetached || m.State == director.MachinePresent)
}

// majority is how many of n members have to agree.
func majority(n int) int { return n/2 + 1 }

// losses is how many of n members may fail before etcd stops.
func losses(n int) int { return max(n-majority(n), 0) }

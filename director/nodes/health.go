package nodes

import (
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// The states of a cluster's health.
const (
	HealthGood    = "good"
	HealthWeak    = "degraded" // it serves, and something is to be seen to
	HealthBad     = "broken"   // too few masters are ready for etcd to take changes
	HealthUnknown = "unknown"  // no node of it was seen
)

// Health is how a cluster is, by its nodes as they were seen last.
type Health struct {
	State       string
	Cause       string         // why it is not good
	States      map[string]int // nodes by state
	Versions    map[string]int // nodes by the version that the kubelet reports
	Members     []string       // masters that are members of etcd
	Strangers   []string       // masters that are not
	Certificate Certificate    // the one that ends first; without a name if none was seen
	Node        string         // that has it
	Seen        time.Time      // when the node that was seen longest ago was seen; zero if one never was
}

// HealthOf judges the nodes of one cluster.
func HealthOf(list []Listed) Health {
	h := Health{State: HealthGood, States: map[string]int{}, Versions: map[string]int{}}
	ready, masters := 0, 0
	for i, n := range list {
		h.States[n.Status]++
		if n.Kubelet != "" {
			h.Versions[n.Kubelet]++
		}
		if i == 0 || n.Seen.Before(h.Seen) {
			h.Seen = n.Seen
		}
		h.soonest(n)
		if n.Role != string(director.RoleMaster) {
			continue
		}
		masters++
		if n.Ready {
			ready++
		}
		if n.Etcd {
			h.Members = append(h.Members, n.Name)
		} else {
			h.Strangers = append(h.Strangers, n.Name)
		}
	}
	h.judge(list, ready, masters)
	return h
}

// soonest keeps the certificate that ends first.
func (h *Health) soonest(n Listed) {
	for _, c := range n.Certificates {
		if !c.Unchecked && (h.Certificate.Name == "" || c.Ends.Before(h.Certificate.Ends)) {
			h.Certificate, h.Node = c, n.Name
		}
	}
}

func (h *Health) judge(list []Listed, ready, masters int) {
	unseen, why := h.States[StateUnseen], ""
	var ill []string
	for _, n := range list {
		switch {
		case n.Status == StateUnseen && why == "":
			why = n.Unseen
		case n.Status == StateProblem:
			ill = append(ill, n.Name+": "+n.Problem)
		}
	}
	switch quorum := masters/2 + 1; {
	case len(list) == 0:
		h.State, h.Cause = HealthUnknown, "it has no nodes"
	case unseen == len(list):
		h.State, h.Cause = HealthUnknown, "it was not seen"
		if why != "" {
			h.Cause += ": " + why
		}
	case ready < quorum:
		h.State = HealthBad
		h.Cause = fmt.Sprintf("%d of %d masters are ready, and etcd needs %d to take changes", ready, masters, quorum)
	case len(ill)+unseen+h.States[StatePending] > 0:
		h.State = HealthWeak
		h.Cause = fmt.Sprintf("%d of %d nodes are no ready members", len(ill)+unseen+h.States[StatePending], len(list))
	}
	if len(ill) > 0 {
		h.Cause += "; " + strings.Join(ill[:min(len(ill), 3)], "; ")
	}
}

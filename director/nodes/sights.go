package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// The states of a node, as it was seen last.
const (
	StateReady    = "ready"
	StateCordoned = "cordoned" // ready, and takes no new pods
	StatePending  = "pending"  // no member of the cluster yet, or no more
	StateProblem  = "problem"  // something is wrong with it
	StateUnseen   = "unseen"   // its cluster could not be asked, or was not looked at yet
)

// States are the states of nodes.
func States() []string {
	return []string{StateReady, StateCordoned, StatePending, StateProblem, StateUnseen}
}

// Listed is a node of any cluster as it was seen last.
type Listed struct {
	Node
	Cluster  string
	Provider string
	Status   string    // one of States
	Seen     time.Time // when the cluster last said what is here; zero if it never was looked at
	Unseen   string    // why the cluster could not be asked since
}

// Query narrows List and Count. What is empty does not narrow.
type Query struct {
	director.Page
	Text     string
	Clusters []string
	Roles    []string
	States   []string
	Host     string
	Version  string // that the kubelet reports
	Problem  *bool
	Visible  *director.Visible // nil for all
}

func (q Query) stored() store.NodeQuery {
	return store.NodeQuery{
		Text: q.Text, Clusters: q.Clusters, Roles: q.Roles, States: q.States, Host: q.Host, Kubelet: q.Version,
		Problem: q.Problem, Visible: q.Visible,
	}
}

// Count is how many nodes are in a state, and what is to be seen to among them.
type Count struct {
	Total   int
	States  map[string]int
	Problem int       // have a problem, also such that are in another state
	Ending  int       // have a certificate that has ended or ends soon
	Ended   int       // have a certificate that has ended
	Next    time.Time // the soonest end of a certificate; zero if none was seen
	Soon    time.Time // what ends before ends soon
}

// sight is what is kept of a node beyond what lists search.
type sight struct {
	Power        string        `json:"power,omitempty"`
	Wanted       string        `json:"wanted,omitempty"`
	Ready        bool          `json:"ready,omitempty"`
	Cordoned     bool          `json:"cordoned,omitempty"`
	Etcd         bool          `json:"etcd,omitempty"`
	Spare        bool          `json:"spare,omitempty"`
	HostLost     bool          `json:"host_lost,omitempty"`
	HostDown     string        `json:"host_down,omitempty"`
	Reason       string        `json:"reason,omitempty"`
	Repair       string        `json:"repair,omitempty"`
	Hint         string        `json:"hint,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Last         string        `json:"last,omitempty"` // its state before it was unseen
}

// List lists the nodes of all clusters as they were seen last. No cluster is asked.
func (s *Service) List(ctx context.Context, q Query) ([]Listed, *director.Place, error) {
	items, next, err := s.Store.NodePage(ctx, q.stored(), q.Page)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Listed, len(items))
	for i, item := range items {
		out[i] = listedOf(item)
	}
	return out, next, nil
}

func listedOf(item store.NodeItem) Listed {
	var b sight
	_ = json.Unmarshal(item.Sight.Body, &b) // what was never seen has none
	m := item.Machine
	l := Listed{
		Cluster: m.Cluster, Provider: m.Provider, Status: item.Sight.State, Seen: item.Seen, Unseen: item.Unseen,
		Node: Node{
			Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, Host: m.Host, State: string(m.State),
			KeptBy: m.KeptBy, Version: m.Kubernetes, Kubelet: item.Sight.Kubelet, Problem: item.Sight.Problem,
			Power: b.Power, Wanted: b.Wanted, Ready: b.Ready, Cordoned: b.Cordoned, Etcd: b.Etcd, Spare: b.Spare,
			HostLost: b.HostLost, HostDown: b.HostDown, Reason: b.Reason, Repair: plan.Operation(b.Repair),
			Hint: b.Hint, Certificates: b.Certificates,
		},
	}
	if l.Status == "" {
		l.Status = StateUnseen
	}
	return l
}

// Count counts the nodes that the query leaves, by state. Its States do not narrow.
func (s *Service) Count(ctx context.Context, q Query) (Count, error) {
	now := s.Now()
	out := Count{States: map[string]int{}, Soon: now.Add(certSoon).UTC().Truncate(time.Second)}
	f := q.stored()
	f.States = nil
	counts, err := s.Store.CountNodes(ctx, f, now, out.Soon)
	for _, c := range counts {
		out.Total += c.Count
		out.States[c.State] = c.Count
		out.Problem += c.Problem
		out.Ending += c.Ending
		out.Ended += c.Ended
		if !c.Next.IsZero() && (out.Next.IsZero() || c.Next.Before(out.Next)) {
			out.Next = c.Next
		}
	}
	return out, err
}

// changes is what a look at a cluster found that the look before had not.
type changes struct {
	nodes  []store.NodeSight
	gone   []string // machines
	unseen bool     // why the cluster could not be asked has changed
	events []director.StreamEvent
}

func (c changes) none() bool { return len(c.nodes) == 0 && len(c.gone) == 0 && !c.unseen }

// keep keeps what was seen of the world's nodes, and announces what has changed since the look before. When nothing
// has, it calls again with the uid of the cluster if that answered, and writes nothing itself.
func (s *Service) keep(ctx context.Context, w planner.World, v View, again seenAgain) error {
	uid, now := w.Cluster.UID, s.instant()
	unseen := v.Unseen
	if unseen == pretends || w.Installed == nil {
		unseen = ""
	}
	was, before, err := s.Store.Sights(ctx, uid)
	if err != nil {
		return err
	}
	c, err := s.compare(w, v, unseen, was, before)
	switch {
	case err != nil:
		return err
	case !c.none():
	case unseen != "":
		return nil
	default:
		return again(ctx, uid)
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		was, before, err := tx.Sights(uid)
		if err != nil {
			return err
		}
		c, err := s.compare(w, v, unseen, was, before) // again: another look may have been written meanwhile
		if err != nil {
			return err
		}
		for _, e := range c.events {
			tx.AnnounceNode(e)
		}
		return tx.SaveSights(uid, c.nodes, c.gone, now, unseen)
	})
}

// compare compares a look at the world's nodes with what was seen before, by machine, and why the cluster could not be
// asked with why it could not before.
func (s *Service) compare(
	w planner.World, v View, unseen string, was map[string]store.NodeSight, before string,
) (changes, error) {
	cluster, now := w.Cluster.Metadata.Name, s.instant()
	ids := map[string]string{}
	for _, m := range w.Nodes() {
		ids[m.Name] = m.ID
	}
	out := changes{unseen: before != unseen}
	for _, n := range v.Nodes {
		id := ids[n.Name]
		old, known := was[id]
		delete(was, id)
		next, event, err := s.sightOf(n, old, v.Unseen == pretends, unseen != "")
		if err != nil {
			return out, err
		}
		next.Machine = id
		if !known || !same(old, next) {
			out.nodes = append(out.nodes, next)
		}
		if event && (known || next.State == StateProblem) {
			out.events = append(out.events, director.StreamEvent{
				At: now, Kind: director.KindNode, Name: n.Name, Cluster: cluster, What: next.State,
				Message: n.Problem, Hint: n.Hint,
			})
		}
	}
	for id := range was {
		out.gone = append(out.gone, id)
	}
	if out.unseen {
		e := director.StreamEvent{
			At: now, Kind: string(model.KindCluster), Name: cluster, Cluster: cluster, What: "seen", Message: unseen,
		}
		if unseen != "" {
			e.What = StateUnseen
		}
		out.events = append(out.events, e)
	}
	return out, nil
}

// sightOf is what is kept of the node, and whether it is news. A node whose cluster could not be asked keeps what was
// seen before.
func (s *Service) sightOf(n Node, old store.NodeSight, pretended, blind bool) (store.NodeSight, bool, error) {
	var before sight
	_ = json.Unmarshal(old.Body, &before) // what was never seen has none
	b := sight{
		Power: n.Power, Wanted: n.Wanted, Ready: n.Ready, Cordoned: n.Cordoned, Etcd: n.Etcd, Spare: n.Spare,
		HostLost: n.HostLost, HostDown: n.HostDown, Reason: n.Reason, Repair: string(n.Repair), Hint: n.Hint,
		Certificates: n.Certificates,
	}
	out := store.NodeSight{Kubelet: n.Kubelet, Problem: n.Problem, State: stateOf(n, pretended, blind)}
	if pretended && n.Version != "" {
		out.Kubelet = n.Version
		b.Ready = out.State == StateReady
		b.Etcd = b.Ready && n.Role == string(director.RoleMaster)
	}
	was := old.State
	if was == StateUnseen && before.Last != "" {
		was = before.Last
	}
	if blind {
		out.Kubelet = old.Kubelet
		b.Ready, b.Cordoned, b.Etcd, b.Reason = before.Ready, before.Cordoned, before.Etcd, before.Reason
		b.Last = was
	}
	for _, c := range b.Certificates {
		if !c.Unchecked {
			out.Ends = c.Ends
			break // the soonest end is the first
		}
	}
	text, err := json.Marshal(b)
	out.Body = text
	news := out.State != StateUnseen && (out.State != was || old.Problem != out.Problem)
	return out, news, err
}

// stateOf is the state of a node. The nodes of a cluster that only pretends are ready while their VMs are on.
func stateOf(n Node, pretended, blind bool) string {
	switch {
	case n.Problem != "":
		return StateProblem
	case n.Version == "" || n.Spare:
		return StatePending
	case pretended:
		if n.Power == string(hypervisor.PowerOn) {
			return StateReady
		}
		return StateUnseen
	case blind:
		return StateUnseen
	case n.Cordoned:
		return StateCordoned
	}
	return StateReady
}

func same(a, b store.NodeSight) bool {
	return a.State == b.State && a.Kubelet == b.Kubelet && a.Problem == b.Problem && a.Ends.Equal(b.Ends) &&
		bytes.Equal(a.Body, b.Body)
}

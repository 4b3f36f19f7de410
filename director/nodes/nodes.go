// Package nodes shows the nodes of clusters as the ledger, the hypervisor and the cluster itself have them, tells what
// a drain would do, and repairs nodes on its own where a document asks for it.
package nodes

import (
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// View is the nodes of a cluster.
type View struct {
	Nodes  []Node // masters first, then by pool and number
	Unseen string // why the cluster's API could not be asked; empty if it answered
	Plan   string // that holds the cluster
	// AutoRepair says what automatic repair does, or why it does nothing; empty if it is off or has not looked yet.
	AutoRepair string
}

// Node is one node: what the ledger says, what the hypervisor says, and what the cluster says.
type Node struct {
	Name, Role, Pool, Address, Host string
	State                           string // of the ledger's row
	// of the VM: on, off, missing, or empty if the hypervisor could not be asked
	Power    string
	KeptBy   string // who keeps its VM outside of the cluster
	HostLost bool   // its host was declared lost
	HostDown string // why its host does not answer, unless it was declared lost
	// the document does not ask for it, and it is kept: nothing is to be done about it
	Spare                 bool
	Version               string         // that it was brought to as a member; empty while it is none
	Wanted                string         // of the cluster's document
	Kubelet               string         // version that the kubelet reports
	Ready, Cordoned, Etcd bool           // as the cluster shows them
	Reason                string         // why it is not ready
	Problem               string         // what is wrong with it, for people; empty if nothing is
	Repair                plan.Operation // what would mend that
	Hint                  string         // the command that mends it where no operation on nodes does
	Certificates          []Certificate  // that could be seen, the soonest end first
}

// Certificate is one of a node's certificates, as others see it.
type Certificate struct {
	Name      string // apiserver, etcd, kubelet, kubelet-client
	Ends      time.Time
	Seen      time.Time // when it was seen last
	Unchecked bool      // nothing relies on it: the kubelet has signed it itself
}

// Worlds reads what is known of a cluster, and asks it and its hypervisor. *snapshot.Reader implements it.
type Worlds interface {
	Members(ctx context.Context, cluster string) (planner.World, error)
	// Nodes asks the installed cluster for its nodes; nil from one that only pretends.
	Nodes(ctx context.Context, inst store.Installed) ([]kube.Node, error)
	// View returns the back end of the world's provider without the hosts that the world takes for lost.
	View(ctx context.Context, w planner.World) (hypervisor.Backend, error)
}

// Clusters connects to installed clusters, and knocks at machines. steps.Env implements it.
type Clusters interface {
	Cluster(ctx context.Context, uid, name, endpoint string) (steps.API, error)
	ClusterPKI(ctx context.Context, uid string) (pki.ClusterPKI, error)
	Answers(ctx context.Context, m director.Machine) (bool, error)
}

// Plans makes the plans of automatic repairs and starts them.
type Plans interface {
	MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error)
	// Start starts the plan with the hash.
	Start(ctx context.Context, actor, id, hash string) error
	// WantsApproval reports whether a person has to agree to the plan before it starts.
	WantsApproval(p plan.Plan, s plan.State) bool
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Worlds   Worlds
	Clusters Clusters
	Plans    Plans
	Director string        // id, in the stamps of its VMs
	PlanLife time.Duration // how long a plan can be started after it was made; zero is for ever
	// Serving returns what a server shows to the client; nil where no server is asked.
	Serving func(ctx context.Context, address, ca string, client pki.Pair) (*x509.Certificate, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Service shows nodes and repairs them. It is safe for concurrent use.
type Service struct {
	Config
	certs   *certificates
	repairs *repairs
	powers  *powers
}

// New returns the service.
func New(c Config) *Service {
	return &Service{
		Config: c, certs: newCertificates(), powers: &powers{known: map[string]*power{}},
		repairs: &repairs{since: map[string]map[string]time.Time{}, said: map[string]string{}},
	}
}

// pretends is why the cluster of a simulation is not seen.
const pretends = "the cluster only pretends"

// missing is the power state of a VM that the hypervisor does not have.
const missing = "missing"

// Nodes returns the nodes of the cluster as its ledger, its hypervisor and its own API show them (requirement B12),
// with their certificates. What cannot be asked is left out, and said so.
func (s *Service) Nodes(ctx context.Context, cluster string) (View, error) {
	return s.look(ctx, cluster, s.powerBeside, func(ctx context.Context, uid string) error {
		return s.Store.SeenAgain(ctx, []string{uid}, s.instant())
	})
}

// asking says which VMs are on, by machine id, and which hosts do not answer.
type asking func(ctx context.Context, w planner.World) (power, down map[string]string, err error)

// seenAgain keeps that the cluster of the uid answered, and had nothing new.
type seenAgain func(ctx context.Context, uid string) error

// look looks at the nodes of the cluster and keeps what it sees.
func (s *Service) look(ctx context.Context, cluster string, power asking, again seenAgain) (View, error) {
	w, err := s.Worlds.Members(ctx, cluster)
	if err != nil {
		return View{}, err
	}
	v, err := s.nodesOf(ctx, w, power)
	if err != nil {
		return v, err
	}
	v.AutoRepair = s.repairs.saying(cluster)
	if w.Installed != nil && v.Unseen != pretends {
		s.lookAtCertificates(ctx, w, &v)
	}
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Problem == "" {
			n.Problem, _ = endingCertificates(n.Certificates, s.Now())
		}
	}
	return v, s.keep(ctx, w, v, again)
}

// nodes is Nodes without what is asked of the nodes themselves.
func (s *Service) nodes(ctx context.Context, cluster string) (View, error) {
	w, err := s.Worlds.Members(ctx, cluster)
	if err != nil {
		return View{}, err
	}
	return s.nodesOf(ctx, w, s.powerBeside)
}

func (s *Service) nodesOf(ctx context.Context, w planner.World, ask asking) (View, error) {
	cluster := w.Cluster.Metadata.Name
	var v View
	var err error
	if v.Plan, err = s.Store.Holder(ctx, cluster); err != nil {
		return v, err
	}
	nodes := map[string]kube.Node{}
	if w.Installed == nil {
		v.Unseen = "cluster " + cluster + " is not installed"
	} else if seen, err := s.Worlds.Nodes(ctx, installed(w)); err != nil {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		v.Unseen = director.MessageOf(err)
	} else if seen == nil {
		v.Unseen = pretends
	} else {
		for _, n := range seen {
			nodes[n.Name] = n
		}
	}
	power, down, err := ask(ctx, w)
	if err != nil && ctx.Err() != nil {
		return v, ctx.Err()
	}
	spare := w.Spare()
	for _, m := range w.Nodes() {
		n := Node{
			Name: m.Name, Role: string(
				m.Role,
			), Pool: m.Pool, Address: m.Address, Host: m.Host, State: string(m.State), Version: m.Kubernetes,
			Wanted: w.Release.Release.Kubernetes, KeptBy: m.KeptBy, Spare: spare[m.Name], HostLost: w.Lost[m.Host],
			HostDown: down[m.Host],
		}
		if power != nil && !n.HostLost && n.HostDown == "" {
			n.Power = power[m.ID]
			if n.Power == "" {
				n.Power = missing
			}
		}
		seen, joined := nodes[m.Name]
		n.Kubelet, n.Ready, n.Cordoned, n.Etcd = seen.Version, seen.Ready, seen.Unschedulable, seen.Etcd
		if joined && !seen.Ready {
			n.Reason = seen.Reason + ": " + seen.Message
		}
		if !n.Spare {
			n.Problem, n.Repair = problemOf(m, n, joined, v.Unseen == "", v.Plan != "")
			if n.Problem == notJoined {
				n.Hint = "directorctl plan " + cluster
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v, nil
}

// Ill names the nodes of the cluster that are not well, each with what is wrong with it. Certificates that only end
// soon do not make a node ill. unseen says why the cluster could not be asked.
func (s *Service) Ill(ctx context.Context, cluster string) (ill []string, unseen string, err error) {
	v, err := s.Nodes(ctx, cluster)
	if err != nil {
		return nil, "", err
	}
	for _, n := range v.Nodes {
		switch soon, ended := endingCertificates(n.Certificates, s.Now()); {
		case n.Problem != "" && (n.Problem != soon || ended):
			text := n.Name + ": " + n.Problem
			if n.Hint != "" {
				text += " (" + n.Hint + ")"
			}
			ill = append(ill, text)
		case n.Version == "" && !n.Spare:
			ill = append(ill, n.Name+": it is not in the cluster yet")
		}
	}
	if v.Unseen == pretends {
		v.Unseen = ""
	}
	return ill, v.Unseen, nil
}

// notJoined is the problem of a VM that its plan left behind half way. No operation on nodes mends it: the next plan of
// the cluster does.
const notJoined = "it has not joined the cluster"

// problemOf says what is wrong with a node and which operation mends it. The VM is looked at first: a node whose VM is
// off has no other trouble yet. busy reports whether a plan holds the cluster.
func problemOf(m director.Machine, n Node, joined, asked, busy bool) (string, plan.Operation) {
	member := m.Kubernetes != ""
	switch {
	case n.HostLost:
		return "its host " + m.Host + " was declared lost", plan.NodeReplace
	case n.HostDown != "":
		return "its host " + m.Host + " does not answer", plan.NodeReplace
	case m.State == director.MachineDetached:
		return "it was taken out of the cluster", plan.NodeRejoin
	case !member && m.State != director.MachinePresent:
		return "", "" // a plan makes it, or takes it away
	case n.Power == missing && member:
		return "its VM is gone", plan.NodeReplace
	case n.Power == string(hypervisor.PowerOff):
		return "its VM is switched off", plan.NodeRejoin
	case !member && !busy:
		return notJoined, ""
	case !asked || !member:
		return "", ""
	case !joined:
		return "the cluster does not know it", plan.NodeRejoin
	case !n.Ready:
		return "it is not ready", plan.NodeReplace
	case m.Role == director.RoleMaster && !n.Etcd:
		return "its etcd member is not ready", plan.NodeReplace
	case n.Kubelet != m.Kubernetes:
		return "its kubelet runs " + n.Kubelet + ", and it was brought to " + m.Kubernetes, ""
	}
	return "", ""
}

// installed is what connects to the world's cluster, which is installed.
func installed(w planner.World) store.Installed {
	return store.Installed{UID: w.Cluster.UID, Name: w.Cluster.Metadata.Name, Endpoint: w.Installed.Endpoint}
}

// powerIn returns the power state of each VM by machine id, as the hypervisor says.
func (s *Service) powerIn(ctx context.Context, b hypervisor.Backend) (map[string]string, error) {
	vms, err := b.List(ctx, hypervisor.Filter{Director: s.Director})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, vm := range vms {
		out[vm.Stamp.Machine] = string(vm.Power)
	}
	return out, nil
}

// listPatience is how long the hosts may take to list their VMs before each of them is asked whether it answers at all.
const listPatience = 10 * time.Second

// powerBeside is power also while hosts do not answer: down says why, by host, and nothing is known of the VMs there.
func (s *Service) powerBeside(ctx context.Context, w planner.World) (power, down map[string]string, err error) {
	b, err := s.Worlds.View(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	soon, cancel := context.WithTimeout(ctx, listPatience)
	power, err = s.powerIn(soon, b)
	cancel()
	if err == nil {
		return power, nil, nil
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return nil, nil, err
	}
	states, serr := hosts.HostStates(ctx)
	if serr != nil {
		return nil, nil, err
	}
	down = map[string]string{}
	out := keys(w.Lost)
	for _, s := range states {
		if s.Err != nil && !w.Lost[s.Host] {
			down[s.Host] = director.MessageOf(s.Err)
			out = append(out, s.Host)
		}
	}
	power, err = s.powerIn(ctx, hosts.Without(out...))
	return power, down, err
}

// instant is now, as exactly as the store keeps it.
func (s *Service) instant() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

func keys(set map[string]bool) []string {
	var out []string
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

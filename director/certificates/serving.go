// Package certificates looks after the certificates of living clusters: it approves those that kubelets serve with, at
// first and whenever they renew them.
package certificates

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
)

// Cluster is the API of a cluster, as far as requests for certificates go.
type Cluster interface {
	ApproveServing(ctx context.Context, nodes []kube.Known) (approved []string, refused []kube.Refused, err error)
	Close()
}

const (
	atOnce = 8                // clusters that are asked at the same time
	limit  = 20 * time.Second // for one cluster
	most   = 4096             // refused requests that are remembered
)

// Approver approves what kubelets ask for: serving certificates for exactly the names and addresses that the ledger has
// for their machines. Every director may run one; approving twice is the same as once.
type Approver struct {
	// Machines returns the living machines of all clusters.
	Machines func(context.Context) ([]director.Machine, error)
	// Connect connects to a cluster at an endpoint. A cluster that has no authorities yet is not_found. A nil Cluster
	// has nothing to approve.
	Connect func(ctx context.Context, uid, name, endpoint string) (Cluster, error)
	Log     *slog.Logger

	mu   sync.Mutex
	told map[string]bool // refused requests that were told of
}

// Pass looks at every cluster with a master once. A cluster that does not answer is left to the next pass.
func (a *Approver) Pass(ctx context.Context) error {
	return a.pass(ctx, func(string) bool { return true })
}

// PassOf is Pass for the clusters of those names.
func (a *Approver) PassOf(ctx context.Context, clusters []string) error {
	return a.pass(ctx, func(name string) bool { return slices.Contains(clusters, name) })
}

func (a *Approver) pass(ctx context.Context, wanted func(cluster string) bool) error {
	machines, err := a.Machines(ctx)
	if err != nil {
		return err
	}
	clusters := map[string][]director.Machine{}
	for _, m := range machines {
		if m.Deleted.IsZero() && m.ClusterUID != "" && wanted(m.Cluster) {
			clusters[m.ClusterUID] = append(clusters[m.ClusterUID], m)
		}
	}
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for uid, members := range clusters {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			a.look(ctx, uid, members)
		})
	}
	all.Wait()
	return nil
}

// look asks the masters of a cluster one after the other until one answers.
func (a *Approver) look(ctx context.Context, uid string, members []director.Machine) {
	var nodes []kube.Known
	var endpoints []string
	for _, m := range members {
		nodes = append(nodes, known(m))
		if m.Role == director.RoleMaster && m.Address != "" {
			endpoints = append(endpoints, net.JoinHostPort(m.Address, strconv.Itoa(model.APIPort)))
		}
	}
	slices.Sort(endpoints)
	for _, endpoint := range endpoints {
		err := a.ask(ctx, uid, members[0].Cluster, endpoint, nodes)
		if err == nil || director.KindOf(err) == director.KindNotFound {
			return
		}
		a.Log.DebugContext(
			ctx, "a cluster was not asked for requests of kubelets", "cluster", members[0].Cluster, "endpoint",
			endpoint, "err", err,
		)
	}
}

func (a *Approver) ask(ctx context.Context, uid, name, endpoint string, nodes []kube.Known) error {
	if !listens(ctx, endpoint) {
		return errors.New("nothing listens")
	}
	c, err := a.Connect(ctx, uid, name, endpoint)
	if err != nil || c == nil {
		return err
	}
	defer c.Close()
	approved, refused, err := c.ApproveServing(ctx, nodes)
	for _, node := range approved {
		a.Log.InfoContext(ctx, "approved the serving certificate of a kubelet", "cluster", name, "node", node)
	}
	for _, r := range refused {
		if a.first(uid + "/" + r.Request) {
			a.Log.WarnContext(
				ctx, "left a request for a serving certificate alone", "cluster", name, "request", r.Request, "asked",
				r.Asked, "why", r.Why,
			)
		}
	}
	return err
}

// listens reports whether something takes connections there: before a cluster is there, and while a master is off, a
// certificate for it is not worth its making.
func listens(ctx context.Context, endpoint string) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// first reports whether the request was not told of before.
func (a *Approver) first(request string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[request] {
		return false
	}
	if a.told == nil || len(a.told) >= most {
		a.told = map[string]bool{}
	}
	a.told[request] = true
	return true
}

// known returns what the ledger knows the machine as.
func known(m director.Machine) kube.Known {
	k := kube.Known{Name: m.Name}
	for _, text := range append([]string{m.Address}, addresses(m.NICs)...) {
		if ip, err := netip.ParseAddr(text); err == nil {
			k.Addresses = append(k.Addresses, ip.Unmap())
		}
	}
	return k
}

func addresses(nics []director.NIC) []string {
	var all []string
	for _, n := range nics {
		all = append(all, n.Address)
	}
	return all
}

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/planner"
)

// The certificates of a node that can be seen without logging in to it.
const (
	certAPI           = "apiserver"      // kubeadm makes it together with the others of the control plane
	certEtcd          = "etcd"           // of the member, towards clients
	certKubelet       = "kubelet"        // of the kubelet's own port
	certKubeletClient = "kubelet-client" // with which the kubelet comes to the API server
)

const (
	certSoon  = 30 * 24 * time.Hour // what ends sooner is a problem
	certFresh = 10 * time.Minute    // how long a look counts
	// the same for what a kubelet is asked for: its answer is long, and the certificate lives for months.
	metricFresh = 6 * time.Hour
	certTime    = 5 * time.Second // bounds all looks of one view
	certSilent  = 5 * time.Minute // how long what did not answer is not asked again, so that no view waits for it
	certLooks   = 16              // at once
)

// certificates remembers what was seen last. A master that is off still has certificates that end.
type certificates struct {
	mu     sync.Mutex
	known  map[certKey]Certificate
	silent map[certKey]time.Time // what did not answer, and when
}

func newCertificates() *certificates {
	return &certificates{known: map[certKey]Certificate{}, silent: map[certKey]time.Time{}}
}

type certKey struct{ machine, name string }

// fresh reports whether the certificate need not be looked at again. One that ends soon is looked at more often: it may
// be in renewal.
func fresh(c Certificate, now time.Time) bool {
	span := certFresh
	if c.Name == certKubeletClient && c.Ends.After(now.Add(certSoon)) {
		span = metricFresh
	}
	return now.Before(c.Seen.Add(span))
}

// certLook is a certificate that is to be looked at.
type certLook struct {
	key  certKey
	look func(context.Context) (Certificate, error)
}

// looks returns what there is to look at on the machine.
func (s *Service) looks(
	m director.Machine, p pki.ClusterPKI, client pki.Pair, kubelets func(context.Context, string) (time.Time, error),
) []certLook {
	serving := func(name string, port int, ca string, as pki.Pair) certLook {
		return certLook{certKey{m.ID, name}, func(ctx context.Context) (Certificate, error) {
			c, err := s.Serving(ctx, net.JoinHostPort(m.Address, strconv.Itoa(port)), ca, as)
			if err != nil {
				return Certificate{}, err
			}
			return Certificate{
				Name: name, Ends: c.NotAfter, Unchecked: name == certKubelet && !pki.Signed(p.CA.Cert, c),
			}, nil
		}}
	}
	const etcdPort, kubeletPort = 2379, 10250
	var all []certLook
	if s.Serving != nil {
		all = append(all, serving(certKubelet, kubeletPort, "", pki.Pair{}))
	}
	if s.Serving != nil && m.Role == director.RoleMaster {
		all = append(
			all, serving(certAPI, model.APIPort, p.CA.Cert, pki.Pair{}),
			serving(certEtcd, etcdPort, p.EtcdCA.Cert, client),
		)
	}
	if kubelets != nil {
		all = append(all, certLook{certKey{
			m.ID, certKubeletClient,
		}, func(ctx context.Context) (Certificate, error) {
			ends, err := kubelets(ctx, m.Name)
			return Certificate{Name: certKubeletClient, Ends: ends}, err
		}})
	}
	return all
}

// lookAtCertificates looks at the members' certificates that were not looked at lately, and puts what is known of them
// into the view. What does not answer keeps what was seen last.
func (s *Service) lookAtCertificates(ctx context.Context, w planner.World, v *View) {
	authorities, err := s.Clusters.ClusterPKI(ctx, w.Cluster.UID)
	if err != nil {
		return // none were made yet
	}
	client, err := pki.ClientCert(authorities.EtcdCA, "director", nil, 10*time.Minute)
	if err != nil {
		s.Log.WarnContext(ctx, "no certificate for etcd", "cluster", w.Cluster.Metadata.Name, "err", err)
	}
	var kubelets func(context.Context, string) (time.Time, error)
	if v.Unseen == "" {
		inst := installed(w)
		if c, err := s.Clusters.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint); err == nil {
			defer c.Close()
			kubelets = c.KubeletClientEnd
		}
	}
	ended, err := s.Store.EndedPlans(ctx, w.Cluster.Metadata.Name)
	if err != nil {
		s.Log.WarnContext(ctx, "no plans", "cluster", w.Cluster.Metadata.Name, "err", err)
	}
	now := s.instant()
	machines := map[string]director.Machine{}
	for _, m := range w.Machines {
		if m.Deleted.IsZero() && m.Kubernetes != "" {
			machines[m.Name] = m
		}
	}
	var due []certLook
	for i := range v.Nodes {
		n := &v.Nodes[i]
		m, member := machines[n.Name]
		if !member || n.Power == string(hypervisor.PowerOff) || n.Power == missing {
			continue
		}
		ask := kubelets
		if !n.Ready {
			ask = nil
		}
		for _, l := range s.looks(m, authorities, client, ask) {
			if s.certs.due(l.key, now, ended[w.Cluster.Metadata.Name]) {
				due = append(due, l)
			}
		}
	}
	s.certs.look(ctx, due, now)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if m, member := machines[n.Name]; member {
			n.Certificates = s.certs.of(m.ID)
		}
	}
}

// look looks at all that is due, within certTime.
func (c *certificates) look(ctx context.Context, due []certLook, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, certTime)
	defer cancel()
	slots := make(chan struct{}, certLooks)
	var all sync.WaitGroup
	for _, l := range due {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			got, err := l.look(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.silent[l.key] = now
				return
			}
			delete(c.silent, l.key)
			got.Ends, got.Seen = got.Ends.UTC().Truncate(time.Second), now
			c.known[l.key] = got
		})
	}
	all.Wait()
}

// due reports whether the certificate is to be looked at. A look of before a plan of the cluster ended counts no more:
// the plan may have renewed the certificate.
func (c *certificates) due(k certKey, now, ended time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, silent := c.silent[k]; silent && now.Before(at.Add(certSilent)) && !at.Before(ended) {
		return false
	}
	got, known := c.known[k]
	return !known || !fresh(got, now) || got.Seen.Before(ended)
}

// of returns what is known of the machine's certificates, the soonest end first.
func (c *certificates) of(machine string) []Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Certificate
	for _, name := range []string{certAPI, certEtcd, certKubelet, certKubeletClient} {
		if got, ok := c.known[certKey{machine, name}]; ok {
			out = append(out, got)
		}
	}
	slices.SortStableFunc(out, func(a, b Certificate) int { return a.Ends.Compare(b.Ends) })
	return out
}

// endingCertificates says which certificates have ended or end soon, or "". ended reports whether one of them is of no
// use any more.
func endingCertificates(certs []Certificate, now time.Time) (text string, ended bool) {
	var said []string
	for _, c := range certs {
		left := c.Ends.Sub(now)
		if c.Unchecked || left >= certSoon {
			continue
		}
		if left <= 0 {
			ended = true
			said = append(said, fmt.Sprintf("its %s certificate ended on %s", c.Name, c.Ends.Format(time.DateOnly)))
			continue
		}
		said = append(
			said, fmt.Sprintf("its %s certificate ends on %s, in %s", c.Name, c.Ends.Format(time.DateOnly), days(left)),
		)
	}
	return strings.Join(said, "; "), ended
}

func days(d time.Duration) string {
	n := int(d / (24 * time.Hour))
	return cmp.Or(map[int]string{0: "less than a day", 1: "1 day"}[n], fmt.Sprintf("%d days", n))
}

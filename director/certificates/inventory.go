package certificates

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

// Store keeps what was seen.
type Store interface {
	Machines(ctx context.Context) ([]director.Machine, error)
	// Members lists the machines that are nodes of their clusters, by name.
	Members(ctx context.Context) ([]director.Member, error)
	// EndedPlans returns when the last plan ended that has changed something on the nodes of each cluster, or
	// of those named, by name.
	EndedPlans(ctx context.Context, clusters ...string) (map[string]time.Time, error)
	PutCertificates(ctx context.Context, sights []director.CertificateSight) error
	KeepCertificates(ctx context.Context, nodes map[string][]string) error
	Certificates(
		ctx context.Context, f director.CertificateQuery, p director.Page,
	) ([]director.Certificate, *director.Place, error)
	CertificateEnds(ctx context.Context, uid string) (map[string]time.Time, error)
}

// Holder is the API of a cluster, as far as the certificates in it go.
type Holder interface {
	HeldCertificates(ctx context.Context) ([]kube.HeldCertificate, error)
	Close()
}

// Config is what NewInventory needs.
type Config struct {
	Store Store
	// PKI returns the authorities of a cluster; not_found before there are any.
	PKI func(ctx context.Context, uid string) (pki.ClusterPKI, error)
	// Serving returns what a server shows to the client; nil where no server is asked. pki.Serving is the real one.
	Serving func(ctx context.Context, address, ca string, client pki.Pair) (*x509.Certificate, error)
	// Read runs the script as root on the machine and returns what it printed; nil where no machine can be read.
	Read func(ctx context.Context, m director.Machine, script string) (string, error)
	// Connect connects to a cluster; nil where clusters are not asked. A nil Holder has none.
	Connect func(ctx context.Context, uid, name, endpoint string) (Holder, error)
	// Own returns the director's own certificates, and those of outer authorities. No two have the same place.
	Own func(ctx context.Context) ([]Own, error)
	// Keys returns the keys of a cluster that are no certificates, and OwnKeys those of the director.
	Keys    func(ctx context.Context, uid string) ([]director.Key, error)
	OwnKeys func(ctx context.Context) ([]director.Key, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Own are certificates of the director under one name.
type Own struct {
	Name, Place, PEM string
	Problem          string // what is wrong with them; empty if nothing is
	Err              error  // why they could not be read
}

// Inventory knows which certificates there are, where they were seen, and when. Looking needs no API server: nodes are
// asked over TLS and SSH. It is safe for concurrent use.
type Inventory struct {
	Config
	verifying sync.Mutex

	ticking sync.Mutex
	looked  time.Time         // at everything, by Tick
	members map[string]string // of each cluster, as Tick looked at them last, by uid
	ended   map[string]time.Time
}

// NewInventory returns the inventory.
func NewInventory(c Config) *Inventory { return &Inventory{Config: c} }

const (
	lookers   = 32               // machines that are asked at the same time
	lookLimit = 20 * time.Second // for one source
)

// The ports that nodes serve at.
const (
	etcdPort    = 2379
	kubeletPort = 10250
)

// List lists what was seen of certificates.
func (i *Inventory) List(
	ctx context.Context, f director.CertificateQuery, p director.Page,
) ([]director.Certificate, *director.Place, error) {
	return i.Store.Certificates(ctx, f, p)
}

// Every is how often Tick looks at everything.
const Every = 10 * time.Minute

// Tick looks at everything when that is due, and otherwise at the clusters whose members are others than before, such
// as new ones, and at those on which a plan has ended since. Call it every few seconds; what failed is looked at again
// by the next call.
func (i *Inventory) Tick(ctx context.Context) error {
	i.ticking.Lock()
	defer i.ticking.Unlock()
	list, err := i.Store.Members(ctx)
	if err != nil {
		return err
	}
	ended, err := i.Store.EndedPlans(ctx) // before the look: what ends meanwhile is looked at by the next call
	if err != nil {
		return err
	}
	members, names := map[string]string{}, map[string]string{}
	for _, m := range list {
		members[m.ClusterUID] += m.Name + " " + m.Address + "\n"
		names[m.ClusterUID] = m.Cluster
	}
	now := i.Now()
	if now.Sub(i.looked) >= Every {
		if err := i.Look(ctx, ""); err != nil {
			return err
		}
		i.looked, i.members, i.ended = now, members, ended
		return nil
	}
	for uid, name := range names {
		if i.members[uid] == members[uid] && !ended[name].After(i.ended[name]) {
			continue
		}
		if err := i.Look(ctx, name); err != nil {
			return err
		}
		i.members[uid], i.ended[name] = members[uid], ended[name]
	}
	return nil
}

// member says whether the machine is a node of its cluster.
func member(m director.Machine) bool { return m.Kubernetes != "" && m.Address != "" }

// Look looks at all certificates of the named cluster, or of all clusters and the director, and writes down what it
// sees. What does not answer keeps what was seen of it last.
func (i *Inventory) Look(ctx context.Context, cluster string) error {
	machines, err := i.Store.Machines(ctx)
	if err != nil {
		return err
	}
	clusters, nodes := map[string][]director.Machine{}, map[string][]string{}
	for _, m := range machines {
		if m.Deleted.IsZero() && m.ClusterUID != "" && (cluster == "" || m.Cluster == cluster) {
			clusters[m.ClusterUID] = append(clusters[m.ClusterUID], m)
			nodes[m.ClusterUID] = append(nodes[m.ClusterUID], m.Name)
		}
	}
	if cluster == "" {
		if err := i.LookAtOwn(ctx); err != nil {
			return err
		}
	}
	slots := make(chan struct{}, lookers)
	var all sync.WaitGroup
	errs := make(chan error, len(clusters))
	for uid, members := range clusters {
		all.Go(func() { errs <- i.lookAt(ctx, uid, members, slots) })
	}
	all.Wait()
	close(errs)
	for e := range errs {
		err = cmp.Or(err, e)
	}
	if cluster == "" && err == nil {
		err = i.Store.KeepCertificates(ctx, nodes)
	}
	return err
}

// LookAtOwn looks at the director's own certificates, and those of outer authorities, and writes down what it sees.
func (i *Inventory) LookAtOwn(ctx context.Context) error {
	own, err := i.own(ctx)
	if err != nil {
		return err
	}
	return i.Store.PutCertificates(ctx, own)
}

// own looks at the director's own. What cannot be read keeps what was seen of it last, and so does the rest then that
// is gone.
func (i *Inventory) own(ctx context.Context) ([]director.CertificateSight, error) {
	own, err := i.Own(ctx)
	if err != nil {
		return nil, err
	}
	whole := director.CertificateSight{Source: director.CertificateDatabase, At: i.Now()}
	var each []director.CertificateSight
	for _, o := range own {
		one := director.CertificateSight{Source: whole.Source, Place: o.Place, At: whole.At}
		if o.Err != nil {
			one.Problem, whole.Problem = line(o.Err.Error()), "not all could be read"
		}
		one.Certificates = parsed(o.Name, o.Place, o.PEM)
		for k := range one.Certificates {
			one.Certificates[k].Problem = line(o.Problem)
		}
		whole.Certificates = append(whole.Certificates, one.Certificates...)
		each = append(each, one)
	}
	if whole.Problem != "" {
		return each, nil
	}
	return []director.CertificateSight{whole}, nil
}

// source is one that is looked at.
type source struct {
	sight director.CertificateSight
	look  func(context.Context) ([]director.Certificate, error)
}

// lookAt looks at one cluster.
func (i *Inventory) lookAt(ctx context.Context, uid string, members []director.Machine, slots chan struct{}) error {
	authorities, err := i.PKI(ctx, uid)
	if err != nil {
		if director.KindOf(err) == director.KindNotFound {
			return nil // none were made yet
		}
		return err
	}
	sources := i.sources(uid, members, authorities)
	var all sync.WaitGroup
	for n := range sources {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			s := &sources[n].sight
			found, err := sources[n].look(ctx)
			s.At, s.Certificates = i.Now(), found
			if err != nil {
				s.Problem = line(err.Error())
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err() // not that nothing answered
	}
	sights := make([]director.CertificateSight, len(sources))
	for n := range sources {
		sights[n] = sources[n].sight
	}
	return i.Store.PutCertificates(ctx, sights)
}

func (i *Inventory) sources(uid string, members []director.Machine, p pki.ClusterPKI) []source {
	sight := func(node string, from director.CertificateSource, place string) director.CertificateSight {
		return director.CertificateSight{
			ClusterUID: uid, Cluster: members[0].Cluster, Node: node, Source: from, Place: place,
		}
	}
	all := []source{{
		sight("", director.CertificateDatabase, ""),
		func(context.Context) ([]director.Certificate, error) { return kept(p) },
	}}
	var endpoints []string
	for _, m := range members {
		if !member(m) {
			continue
		}
		for _, s := range i.served(m, p) {
			all = append(all, source{sight(m.Name, director.CertificateTLS, s.place), s.look})
		}
		if i.Read != nil {
			all = append(all, source{
				sight(m.Name, director.CertificateFile, ""), func(ctx context.Context) ([]director.Certificate, error) {
					out, err := i.Read(ctx, m, readScript)
					if err != nil {
						return nil, err
					}
					return files(out, p, i.Now())
				},
			})
		}
		if m.Role == director.RoleMaster {
			endpoints = append(endpoints, net.JoinHostPort(m.Address, strconv.Itoa(model.APIPort)))
		}
	}
	if i.Connect != nil && len(endpoints) > 0 {
		slices.Sort(endpoints)
		all = append(all, source{
			sight("", director.CertificateAPI, ""), func(ctx context.Context) ([]director.Certificate, error) {
				return i.held(ctx, uid, members[0].Cluster, endpoints)
			},
		})
	}
	return all
}

type servedAt struct {
	place string
	look  func(context.Context) ([]director.Certificate, error)
}

// served is what the machine shows over TLS.
func (i *Inventory) served(m director.Machine, p pki.ClusterPKI) []servedAt {
	at := func(name string, port int, authority pki.Pair, proof bool) servedAt {
		place := net.JoinHostPort(m.Address, strconv.Itoa(port))
		return servedAt{place, func(ctx context.Context) ([]director.Certificate, error) {
			var as pki.Pair
			if proof {
				var err error
				if as, err = pki.ClientCert(authority, "director", nil, 10*time.Minute); err != nil {
					return nil, err
				}
			}
			c, err := i.Serving(ctx, place, "", as)
			if err != nil {
				return nil, err
			}
			out := noted(name, place, c)
			out.Problem = unsigned(c, authority)
			return []director.Certificate{out}, nil
		}}
	}
	if i.Serving == nil {
		return nil
	}
	all := []servedAt{at("kubelet-server", kubeletPort, p.CA, false)}
	if m.Role == director.RoleMaster {
		all = append(all, at("apiserver", model.APIPort, p.CA, false), at("etcd-server", etcdPort, p.EtcdCA, true))
	}
	return all
}

// held asks the masters one after the other for what the cluster's objects hold, until one answers.
func (i *Inventory) held(
	ctx context.Context, uid, name string, endpoints []string,
) (out []director.Certificate, err error) {
	for _, endpoint := range endpoints {
		var h Holder
		if h, err = i.Connect(ctx, uid, name, endpoint); err != nil || h == nil {
			continue
		}
		var found []kube.HeldCertificate
		found, err = h.HeldCertificates(ctx)
		h.Close()
		if err != nil {
			continue
		}
		for _, f := range found {
			out = append(out, parsed(f.Name, f.Place, f.PEM)...)
		}
		return out, nil
	}
	return nil, err
}

// kept are the authorities that the director keeps of a cluster.
func kept(p pki.ClusterPKI) ([]director.Certificate, error) {
	var out []director.Certificate
	for _, a := range []struct {
		name string
		pki.Pair
	}{{"ca", p.CA}, {"front-proxy-ca", p.FrontProxyCA}, {"etcd-ca", p.EtcdCA}} {
		out = append(out, parsed(a.name, "director", a.Cert)...)
	}
	return out, nil
}

// Ends returns when the first certificate in the files of each node ends, by node.
func (i *Inventory) Ends(ctx context.Context, uid string) (map[string]time.Time, error) {
	return i.Store.CertificateEnds(ctx, uid)
}

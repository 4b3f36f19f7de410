// Package snapshot reads the world for one planning pass: documents, the ledger's rows, the VMs of the hypervisor and
// the nodes of the cluster. Each is read once, and the planner and the pre-checks share it.
package snapshot

import (
	"context"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Store is what a snapshot reads of the database. *store.Store implements it.
type Store interface {
	StepTimes(ctx context.Context) (map[string]time.Duration, error)
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
	Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error)
	Machines(ctx context.Context, f store.MachineFilter) ([]director.Machine, error)
	KeptDisks(ctx context.Context, f store.DiskFilter) ([]director.KeptDisk, error)
	MACs(ctx context.Context) (map[string]bool, error)
	LostHosts(ctx context.Context, provider string) ([]director.LostHost, error)
	LostMachines(ctx context.Context, provider string) ([]director.Machine, error)
	Installed(ctx context.Context, cluster string) (store.Installed, bool, error)
	Credentials(ctx context.Context, name string) (director.Credentials, []byte, error)
}

// Backends finds the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Clusters connects to installed clusters and knocks at machines. steps.Env implements it.
type Clusters interface {
	Cluster(ctx context.Context, uid, name, endpoint string) (steps.API, error)
	Answers(ctx context.Context, m director.Machine) (bool, error)
}

// Config is what a Reader reads from.
type Config struct {
	Store    Store
	Backends Backends
	Clusters Clusters
	Bundles  Bundles
	Director planner.Director
}

// Reader takes snapshots. It is safe for concurrent use.
type Reader struct{ c Config }

// New returns a reader.
func New(c Config) *Reader { return &Reader{c} }

// Snapshot is the world of a cluster in one planning pass. It is not safe for concurrent use.
type Snapshot struct {
	planner.World
	// Rows are the living machines of the provider, and all of the cluster, those that were deleted too.
	Rows []director.Machine

	r         *Reader
	documents map[model.Ref]model.Stored
	installed *store.Installed
	backend   hypervisor.Backend
	vms       []hypervisor.VM
	vmsErr    error
	listed    bool
}

// Of returns a snapshot of a world that was put together elsewhere.
func (r *Reader) Of(w planner.World) *Snapshot { return &Snapshot{World: w, r: r} }

// Take reads from the database and the bundles what a plan of the cluster is made from. With an error, the snapshot
// holds what was read before.
func (r *Reader) Take(ctx context.Context, cluster string) (*Snapshot, error) {
	return r.TakeAs(ctx, cluster, nil)
}

// TakeAs is Take with the cluster's document as change makes it; nil leaves it as it is.
func (r *Reader) TakeAs(
	ctx context.Context, cluster string, change func(model.Stored) (model.Stored, error),
) (*Snapshot, error) {
	s := r.empty()
	return s, s.readAll(
		ctx, s.readCluster(cluster, change), s.readTimes, s.readDocuments, s.readMachines, s.readNetworks,
		s.readLost, s.readInstalled, s.readFormers,
		s.readBundle,
	)
}

// TakeDirector is Take for the VM of the director of that name.
func (r *Reader) TakeDirector(ctx context.Context, name string) (*Snapshot, error) {
	s := r.empty()
	return s, s.readAll(
		ctx, s.readDirector(name), s.readTimes, s.readMachines, s.readNetworks, s.readLost, s.readInstalled,
	)
}

// readDirector reads the document of the director, with the documents that it names.
func (s *Snapshot) readDirector(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		doc, err := s.document(ctx, model.Ref{Kind: model.KindDirector, Name: name})
		if err != nil {
			return err
		}
		s.Cluster, s.Image = planner.OfDirector(doc)
		provider, network := doc.Director.Provider, doc.Director.Network
		if s.Provider, err = s.document(ctx, model.Ref{Kind: model.KindProvider, Name: provider}); err != nil {
			return err
		}
		s.Network, err = s.document(ctx, model.Ref{Kind: model.KindNetwork, Name: network})
		return err
	}
}

func (r *Reader) empty() *Snapshot {
	return &Snapshot{
		World: planner.World{
			Director: r.c.Director, Used: map[netip.Addr]bool{}, Host: map[string]int{}, Peers: map[string]int{},
		},
		r: r, documents: map[model.Ref]model.Stored{},
	}
}

func (s *Snapshot) readAll(ctx context.Context, reads ...func(context.Context) error) error {
	for _, read := range reads {
		if err := read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readCluster reads the cluster's document as change makes it.
func (s *Snapshot) readCluster(
	name string, change func(model.Stored) (model.Stored, error),
) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		s.Cluster, err = s.document(ctx, model.Ref{Kind: model.KindCluster, Name: name})
		if err == nil && change != nil {
			s.Cluster, err = change(s.Cluster)
		}
		return err
	}
}

func (s *Snapshot) readBundle(context.Context) (err error) {
	s.Bundle, err = s.r.c.Bundles.Read(*s.Release.Release)
	if err != nil && len(s.Machines) > 0 {
		s.NoBundle, err = err, nil
	}
	return err
}

// Members is the world for who looks at the cluster's nodes and plans nothing: the documents of the cluster, its
// provider, its image and its release, its living machines, and which hosts are lost. Every cluster is looked at once a
// minute, so this opens no bundle, and what it reads does not grow with the other clusters. An index leads to the
// living machines; those that were deleted are found by going through all rows.
func (r *Reader) Members(ctx context.Context, cluster string) (planner.World, error) {
	s := r.empty()
	err := s.readAll(
		ctx, s.readCluster(cluster, nil), s.readNamed, func(ctx context.Context) (err error) {
			s.Machines, err = s.r.c.Store.Machines(ctx, store.MachineFilter{ClusterUID: s.Cluster.UID})
			return err
		}, s.readLostHosts, s.readInstalled,
	)
	return s.World, err
}

// World is the world of a snapshot that looks at nothing else.
func (r *Reader) World(ctx context.Context, cluster string) (planner.World, error) {
	s, err := r.Take(ctx, cluster)
	return s.World, err
}

// document returns one document, read once.
func (s *Snapshot) document(ctx context.Context, ref model.Ref) (model.Stored, error) {
	if d, known := s.documents[ref]; known {
		return d, nil
	}
	d, err := s.r.c.Store.Document(ctx, ref)
	if err == nil {
		s.documents[ref] = d
	}
	return d, err
}

// kind returns every document of the kind, and remembers each.
func (s *Snapshot) kind(ctx context.Context, kind model.Kind) ([]model.Stored, error) {
	docs, err := s.r.c.Store.Documents(ctx, kind)
	for _, d := range docs {
		s.documents[d.Ref()] = d
	}
	return docs, err
}

func (s *Snapshot) readTimes(ctx context.Context) (err error) {
	s.Times, err = s.r.c.Store.StepTimes(ctx)
	return err
}

// readDocuments reads what the cluster's document names. All images and releases are read, because members may run
// others than the document names.
func (s *Snapshot) readDocuments(ctx context.Context) error {
	for _, k := range []model.Kind{model.KindImage, model.KindRelease} {
		if _, err := s.kind(ctx, k); err != nil {
			return err
		}
	}
	hooks, err := s.kind(ctx, model.KindHook)
	if err != nil {
		return err
	}
	for _, h := range hooks {
		if h.Hook.For(s.Cluster.Metadata.Name, "") {
			s.Hooks = append(s.Hooks, h)
		}
	}
	if err := s.readNamed(ctx); err != nil {
		return err
	}
	c := s.Cluster.Cluster
	if s.Network, err = s.document(ctx, model.Ref{Kind: model.KindNetwork, Name: c.Network}); err != nil {
		return err
	}
	if name := c.Discovery.Consul; name != "" {
		if s.Consul, err = s.document(ctx, model.Ref{Kind: model.KindConsul, Name: name}); err != nil {
			return err
		}
	}
	return s.readRegistries(ctx)
}

// readRegistries reads the outer registries of the cluster. Credentials that are not there are a matter of the plan.
func (s *Snapshot) readRegistries(ctx context.Context) error {
	for _, name := range s.Cluster.Cluster.Registries {
		doc, err := s.document(ctx, model.Ref{Kind: model.KindRegistry, Name: name})
		if err != nil {
			return err
		}
		r := planner.Registry{Stored: doc}
		if account := doc.Registry.Credentials; account != "" {
			c, _, err := s.r.c.Store.Credentials(ctx, account)
			if err != nil && director.KindOf(err) != director.KindNotFound {
				return err
			}
			r.Revision = c.Revision
		}
		s.Registries = append(s.Registries, r)
	}
	return nil
}

// readNamed reads the provider, the image and the release that the cluster's document names.
func (s *Snapshot) readNamed(ctx context.Context) error {
	c := s.Cluster.Cluster
	for _, d := range []struct {
		into *model.Stored
		kind model.Kind
		name string
	}{
		{&s.Provider, model.KindProvider, c.Provider},
		{&s.Image, model.KindImage, c.Image},
		{&s.Release, model.KindRelease, c.Release},
	} {
		var err error
		if *d.into, err = s.document(ctx, model.Ref{Kind: d.kind, Name: d.name}); err != nil {
			return err
		}
	}
	return nil
}

// readMachines reads the rows of the cluster and its provider, and the provider's kept disks.
func (s *Snapshot) readMachines(ctx context.Context) error {
	provider := s.Cluster.Cluster.Provider
	var err error
	s.Rows, err = s.r.c.Store.Machines(ctx, store.MachineFilter{
		Provider: provider, ClusterUID: s.Cluster.UID, Around: true,
	})
	if err != nil {
		return err
	}
	for _, m := range s.Rows {
		if m.ClusterUID == s.Cluster.UID {
			s.Machines = append(s.Machines, m)
		}
	}
	for _, m := range s.Neighbours() {
		s.Host[m.Host]++
		if m.Role == director.RoleDirector {
			s.Peers[m.Host]++
		}
	}
	if s.Disks, err = s.r.c.Store.KeptDisks(ctx, store.DiskFilter{Provider: provider}); err != nil {
		return err
	}
	s.MACs, err = s.r.c.Store.MACs(ctx)
	return err
}

// Neighbours returns the living machines of the provider.
func (s *Snapshot) Neighbours() []director.Machine {
	var out []director.Machine
	for _, m := range s.Rows {
		if m.Deleted.IsZero() && m.Provider == s.Cluster.Cluster.Provider {
			out = append(out, m)
		}
	}
	return out
}

// Buried returns the machines of the provider that were deleted.
func (s *Snapshot) Buried(ctx context.Context) ([]director.Machine, error) {
	return s.r.c.Store.Machines(ctx, store.MachineFilter{Provider: s.Provider.Metadata.Name, Buried: true})
}

func (s *Snapshot) readInstalled(ctx context.Context) error {
	inst, ok, err := s.r.c.Store.Installed(ctx, s.Cluster.Metadata.Name)
	if err != nil || !ok {
		return err
	}
	s.installed = &inst
	if inst.UID != s.Cluster.UID {
		return nil
	}
	runs := model.Stored{Document: inst.Document}
	if runs.Director != nil {
		runs, _ = planner.OfDirector(runs)
	}
	s.Installed = &planner.Installed{
		Generation: inst.Generation, Cluster: *runs.Cluster, Labels: inst.Document.Metadata.Labels,
		Endpoint: inst.Endpoint, Registries: inst.Registries, Director: inst.Document.Director,
	}
	return nil
}

// lose takes the host for lost.
func (s *Snapshot) lose(host string) {
	if s.Lost == nil {
		s.Lost = map[string]bool{}
	}
	s.Lost[host] = true
}

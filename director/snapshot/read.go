package snapshot

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// OnNetwork returns the addresses of the network that machines have, and which clusters but that with the uid have
// machines there.
func OnNetwork(machines []director.Machine, network, uid string) (used map[netip.Addr]bool, sharers []string) {
	used = map[netip.Addr]bool{}
	for _, m := range machines {
		address := m.On(network)
		if address == "" {
			continue
		}
		if a, err := netip.ParseAddr(address); err == nil {
			used[a] = true
		}
		if m.ClusterUID != uid && !slices.Contains(sharers, m.Cluster) {
			sharers = append(sharers, m.Cluster)
		}
	}
	sort.Strings(sharers)
	return used, sharers
}

// readNetworks reads the further networks: those of the document, and those that machines of the cluster are on. One of
// the latter may have no document any more; then nothing can be done about it, and nothing has to be.
func (s *Snapshot) readNetworks(ctx context.Context) error {
	neighbours := s.Neighbours()
	s.Used, s.Sharers = OnNetwork(neighbours, s.Cluster.Cluster.Network, s.Cluster.UID)
	named := s.Cluster.Cluster.Networks()
	names := slices.Clone(named)
	for _, m := range s.Machines {
		for _, n := range m.NICs {
			if !slices.Contains(names, n.Network) {
				names = append(names, n.Network)
			}
		}
	}
	for _, name := range names {
		if name == s.Cluster.Cluster.Network {
			continue
		}
		doc, err := s.document(ctx, model.Ref{Kind: model.KindNetwork, Name: name})
		if director.KindOf(err) == director.KindNotFound && !slices.Contains(named, name) {
			continue
		}
		if err != nil {
			return err
		}
		if s.Underlays == nil {
			s.Underlays = map[string]planner.Underlay{}
		}
		u := planner.Underlay{Stored: doc}
		u.Used, u.Sharers = OnNetwork(neighbours, name, s.Cluster.UID)
		s.Underlays[name] = u
	}
	return nil
}

// readFormers finds the documents of what members run, other than the cluster's own release, and of what their VMs were
// made from. A bundle that cannot be read is left out: the planner says what cannot be done without it.
func (s *Snapshot) readFormers(context.Context) error {
	wanted, from := map[string]bool{}, map[string]bool{}
	for _, m := range s.Machines {
		if m.Deleted.IsZero() && m.Kubernetes != "" {
			wanted[m.Kubernetes] = m.Kubernetes != s.Release.Release.Kubernetes
			from[m.Image] = true
		}
	}
	if len(from) == 0 {
		return nil // there is no node to roll back
	}
	images := map[string]planner.NodeImage{}
	for _, d := range s.of(model.KindImage) {
		// The first is how rows know an image from before its checksum was part of its name.
		for _, name := range []string{d.Metadata.Name, d.Image.NameOnProviders(d.Metadata.Name)} {
			if from[name] {
				images[name] = planner.NodeImage{Document: d.Metadata.Name, Image: *d.Image}
			}
		}
	}
	first := ""
	if s.Installed != nil {
		first = s.Installed.Cluster.Release // of several of a version the one that was installed counts
	}
	releases := map[string]planner.Release{}
	for _, d := range s.of(model.KindRelease) {
		if !wanted[d.Release.Kubernetes] {
			continue
		}
		if _, have := releases[d.Release.Kubernetes]; have && d.Metadata.Name != first {
			continue
		}
		if b, err := s.r.c.Bundles.Read(*d.Release); err == nil {
			releases[d.Release.Kubernetes] = planner.Release{Name: d.Metadata.Name, Release: *d.Release, Bundle: b}
		}
	}
	s.Releases, s.Images = releases, images
	return nil
}

// of returns the documents of the kind that were read, by name.
func (s *Snapshot) of(kind model.Kind) []model.Stored {
	var out []model.Stored
	for ref, d := range s.documents {
		if ref.Kind == kind {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b model.Stored) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	return out
}

// readLostHosts reads which hosts of the provider were declared lost.
func (s *Snapshot) readLostHosts(ctx context.Context) error {
	lost, err := s.r.c.Store.LostHosts(ctx, s.Cluster.Cluster.Provider)
	for _, h := range lost {
		s.lose(h.Host)
	}
	return err
}

// readLost reads which hosts of the provider were declared lost, and keeps what VMs that were given up may still have
// from everybody else.
func (s *Snapshot) readLost(ctx context.Context) error {
	if err := s.readLostHosts(ctx); err != nil {
		return err
	}
	given, err := s.r.c.Store.LostMachines(ctx, s.Cluster.Cluster.Provider)
	if err != nil {
		return err
	}
	for _, m := range given {
		for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address, MAC: m.MAC}}, m.NICs...) {
			s.MACs[n.MAC] = true
			used := s.Used
			if u, ok := s.Underlays[n.Network]; ok {
				used = u.Used
			} else if n.Network != s.Cluster.Cluster.Network {
				continue
			}
			if a, err := netip.ParseAddr(n.Address); err == nil {
				used[a] = true
			}
		}
	}
	return nil
}

// ReadDrills reads the network of the cluster's restore drills, and which machines they have had. A document that names
// no network is left to the planner.
func (s *Snapshot) ReadDrills(ctx context.Context) error {
	drills := store.MachineFilter{ClusterUID: director.DrillUID(s.Cluster.UID), Tombstones: true}
	var err error
	if s.Drills, err = s.r.c.Store.Machines(ctx, drills); err != nil {
		return err
	}
	name := s.Cluster.Cluster.Backup.Drill.Network
	if name == "" {
		return nil
	}
	doc, err := s.document(ctx, model.Ref{Kind: model.KindNetwork, Name: name})
	if err != nil {
		return err
	}
	u := planner.Underlay{Stored: doc}
	u.Used, u.Sharers = OnNetwork(s.Neighbours(), name, s.Cluster.UID)
	underlays := maps.Clone(s.Underlays)
	if underlays == nil {
		underlays = map[string]planner.Underlay{}
	}
	underlays[name] = u
	s.Underlays = underlays
	return nil
}

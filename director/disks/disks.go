// Package disks looks after the disks that outlive their VMs: it lists them, and deletes one that a person names.
package disks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Backends gives the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Service lists and deletes kept disks. It is safe for concurrent use.
type Service struct {
	store    *store.Store
	backends Backends
	director string
	now      func() time.Time
}

// New returns the service of the director with the id.
func New(s *store.Store, b Backends, directorID string, now func() time.Time) *Service {
	return &Service{s, b, directorID, now}
}

// Filter narrows List; an empty field selects all.
type Filter struct {
	Providers []string
	Cluster   string
	Plan      string // only what this plan kept, as the ledger has it; no hypervisor is asked
}

// View is what List found, with the providers that were asked.
type View struct {
	Items     []ledger.Disk
	Providers []ledger.Compared
}

// List returns the disks that outlived their VMs, by provider, cluster and node. A provider that does not answer is
// named, and its disks are shown as the ledger has them. Errors: not_found for a provider that there is not.
func (s *Service) List(ctx context.Context, f Filter) (View, error) {
	names, err := s.store.ProviderNames(ctx, f.Providers)
	if err != nil {
		return View{}, err
	}
	var v View
	// before the rows: a row is written before its VM is made, and before it goes
	seen := map[string][]hypervisor.VolumeInfo{}
	for _, name := range names {
		c := ledger.Compared{Name: name}
		if f.Plan == "" {
			if seen[name], c.Err = s.volumes(ctx, name); c.Err != nil && ctx.Err() != nil {
				return View{}, ctx.Err()
			}
		}
		v.Providers = append(v.Providers, c)
	}
	kept, err := s.store.KeptDisks(ctx, store.DiskFilter{Plan: f.Plan})
	if err != nil {
		return View{}, err
	}
	rows, err := s.store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return View{}, err
	}
	hosts, err := s.store.LostHosts(ctx, "")
	if err != nil {
		return View{}, err
	}
	for _, c := range v.Providers {
		lost := map[string]bool{}
		for _, h := range hosts {
			lost[h.Host] = lost[h.Host] || h.Provider == c.Name
		}
		list := ledger.Disks(ledger.Volumes{
			Lost:     lost,
			Provider: c.Name, Director: s.director, Seen: f.Plan == "" && c.Err == nil, Volumes: seen[c.Name],
			Kept: kept, Rows: rows,
		})
		v.Items = append(
			v.Items,
			slices.DeleteFunc(list, func(d ledger.Disk) bool { return f.Cluster != "" && d.Cluster != f.Cluster })...,
		)
	}
	return v, nil
}

// OnProviders returns the disks on the named providers, and how each provider answered.
func (s *Service) OnProviders(ctx context.Context, providers []string) ([]ledger.Disk, []ledger.Compared, error) {
	v, err := s.List(ctx, Filter{Providers: providers})
	return v.Items, v.Providers, err
}

func (s *Service) volumes(ctx context.Context, provider string) ([]hypervisor.VolumeInfo, error) {
	b, err := s.backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	v, ok := hypervisor.Capability[hypervisor.Volumes](b)
	if !ok {
		return nil, nil
	}
	return v.ListVolumes(ctx, s.director)
}

// Delete deletes a kept disk or an orphan with everything on it. A disk that someone else attached, or that is missing,
// is only removed from the list. The call can be repeated until the disk is gone. Errors: not_found if there is no such
// disk, conflict if a machine or a VM has it.
func (s *Service) Delete(ctx context.Context, actor, provider, id string) (ledger.Disk, error) {
	const op = "disks.delete"
	v, err := s.List(ctx, Filter{Providers: []string{provider}})
	if err != nil {
		return ledger.Disk{}, err
	}
	if err := v.Providers[0].Err; err != nil {
		return ledger.Disk{}, err
	}
	i := slices.IndexFunc(v.Items, func(d ledger.Disk) bool { return d.ID == id })
	if i < 0 {
		return ledger.Disk{}, director.Errorf(director.KindNotFound, op, "provider %s keeps no disk %q", provider, id).
			WithHint("see: directorctl disks list")
	}
	d := v.Items[i]
	if d.State == ledger.DiskTaken || d.VM != "" {
		return d, director.Errorf(
			director.KindConflict, op, "the disk %s is in use by %s", id, strings.TrimSpace(d.Holder+" "+d.VM),
		).
			WithHint("delete that node first")
	}
	if err := s.needed(ctx, d); err != nil {
		return d, err
	}
	if err := s.claim(ctx, actor, d); err != nil {
		return d, err
	}
	if !d.Foreign() {
		if err := s.destroy(ctx, provider, d); err != nil {
			return d, err
		}
	}
	return d, s.store.ForgetDisk(ctx, id)
}

// needed is a conflict for a copy whose plan has not ended: it may be all that is left of the data.
func (s *Service) needed(ctx context.Context, d ledger.Disk) error {
	if d.CopyOf == "" {
		return nil
	}
	_, state, err := s.store.Plan(ctx, d.Plan)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		return nil
	}
	final := []plan.Status{plan.StatusDone, plan.StatusUndone, plan.StatusDiscarded}
	if err != nil || slices.Contains(final, state.Status) {
		return err
	}
	return director.Errorf(
		director.KindConflict, "disks.delete", "the disk %s is a copy for plan %s, which is %s", d.ID, d.Plan,
		state.Status,
	).WithHint("let the plan end, or give it up: directorctl discard %s", d.Plan)
}

// claim writes down that the disk goes, before it does: from then on no machine can take it over. An orphan must not
// have become a machine's.
func (s *Service) claim(ctx context.Context, actor string, d ledger.Disk) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		if d.State == ledger.DiskOrphan {
			if row, there, err := tx.Machine(d.Machine); err != nil {
				return err
			} else if there && row.Deleted.IsZero() {
				return director.Errorf(
					director.KindConflict, "disks.delete", "the disk %s belongs to machine %s of cluster %s", d.ID,
					row.Name, row.Cluster,
				)
			}
		} else if err := tx.SetDiskHolder(d.ID, director.DiskGoing); err != nil {
			return err
		}
		return tx.Audit(s.now(), actor, "delete", "Disk/"+d.ID+" ("+d.Node+") on Provider/"+d.Provider)
	})
}

func (s *Service) destroy(ctx context.Context, provider string, d ledger.Disk) error {
	b, err := s.backends.Backend(ctx, provider)
	if err != nil {
		return err
	}
	v, ok := hypervisor.Capability[hypervisor.Volumes](b)
	if !ok {
		return director.Errorf(director.KindInvalid, "disks.delete", "provider %s cannot delete disks", provider).
			WithHint("delete it with the hypervisor's own tools")
	}
	return v.DeleteVolume(ctx, director.Stamp{Director: s.director, Machine: d.Machine}, d.Serial)
}

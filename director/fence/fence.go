// Package fence looks after hypervisor hosts that were declared lost, and the VMs that were given up with them: when a
// host answers again, those VMs are powered off before the director works with it.
package fence

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/store"
)

// actor is who takes a host off the list of lost ones in the audit trail.
const actor = "fencing"

// Backends gives the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Service powers off what was given up. It is safe for concurrent use, and several directors may do so at once.
type Service struct {
	store    *store.Store
	backends Backends
	director string
	now      func() time.Time
	log      *slog.Logger
}

// New returns the service of the director with the id.
func New(s *store.Store, b Backends, directorID string, now func() time.Time, log *slog.Logger) *Service {
	return &Service{s, b, directorID, now, log}
}

// Sweep looks at every provider with lost hosts or with VMs that were given up. Those VMs that are seen to run are
// powered off; none is ever started. A host that answers, and whose VMs are off, is lost no longer. One that an
// administrator has taken off its provider is forgotten, with what was given up there. It can be cut off anywhere and
// repeated. Errors of one provider do not keep others from being looked at.
func (s *Service) Sweep(ctx context.Context) error {
	hosts, err := s.store.LostHosts(ctx, "")
	if err != nil {
		return err
	}
	machines, err := s.store.LostMachines(ctx, "")
	if err != nil {
		return err
	}
	providers := map[string]*provider{}
	of := func(name string) *provider {
		if providers[name] == nil {
			providers[name] = &provider{Service: s, name: name, given: map[string]director.Machine{}}
		}
		return providers[name]
	}
	for _, h := range hosts {
		of(h.Provider).lost = append(of(h.Provider).lost, h.Host)
	}
	for _, m := range machines {
		of(m.Provider).given[m.ID] = m
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		if err := providers[name].sweep(ctx); err != nil && ctx.Err() == nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

type provider struct {
	*Service
	name  string
	lost  []string                    // hosts
	given map[string]director.Machine // up with their hosts, by id
}

func (p *provider) sweep(ctx context.Context) error {
	b, err := p.backends.Backend(ctx, p.name)
	if director.KindOf(err) == director.KindNotFound {
		return nil // its document is gone, so its VMs cannot be listed
	}
	if err != nil {
		return err
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return nil
	}
	states, err := hosts.HostStates(ctx)
	if err != nil {
		return err
	}
	var down []string
	up := map[string]bool{}
	for _, s := range states {
		if up[s.Host] = s.Err == nil; s.Err != nil {
			down = append(down, s.Host)
		}
	}
	gone := func(h string) bool { _, known := up[h]; return !known } // an administrator has taken it off the provider
	if !slices.ContainsFunc(p.lost, func(h string) bool { return up[h] || gone(h) }) && len(p.given) == 0 {
		return nil
	}
	seen := hosts.Without(down...)
	vms, err := seen.List(ctx, hypervisor.Filter{Director: p.director})
	if err != nil {
		return err
	}
	fencer, ok := hypervisor.Capability[hypervisor.Hosts](seen)
	if !ok {
		return nil
	}
	there := map[string]bool{}
	for _, vm := range vms {
		m, given := p.given[vm.Stamp.Machine]
		if !given {
			continue
		}
		there[m.ID] = true
		if vm.Power == hypervisor.PowerOff && !slices.Contains(p.lost, vm.Host) {
			continue
		}
		if err := fencer.Fence(ctx, vm.ID, vm.Stamp); err != nil && director.KindOf(err) != director.KindNotFound {
			return err // its host stays lost
		}
		p.log.WarnContext(
			ctx, "a VM that was given up with its host was found and is off", "provider", p.name, "host", vm.Host, "vm",
			vm.Name, "machine", m.ID, "was", string(vm.Power),
		)
	}
	return p.forget(ctx, func(h string) bool { return up[h] || gone(h) }, there, len(down) == 0)
}

// forget takes hosts that answer, or that the provider does not have any more, off the list, and machines whose VMs are
// gone for certain: every host was asked.
func (p *provider) forget(ctx context.Context, known func(host string) bool, there map[string]bool, whole bool) error {
	return p.store.Update(ctx, func(tx *store.Tx) error {
		for _, h := range p.lost {
			if !known(h) {
				continue
			}
			was, err := tx.FindHost(p.name, h)
			if err != nil {
				return err
			}
			if was {
				p.log.InfoContext(
					ctx, "a host that was declared lost answers again, or was taken off its provider", "provider",
					p.name, "host", h,
				)
				if err := tx.Audit(p.now(), actor, "no longer lost", "host "+h+" of Provider/"+p.name); err != nil {
					return err
				}
			}
		}
		for id, m := range p.given {
			if whole && known(m.Host) && !there[id] {
				if err := tx.ForgetLost(id); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

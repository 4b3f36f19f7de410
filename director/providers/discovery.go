package providers

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
)

// How long a person waits for a provider. DiscoveryPatience, also for capacity, is longer than a back end waits for one
// host, so that the hosts that answer are told of. A test is what finds out why a provider is slow.
const (
	DiscoveryPatience = 25 * time.Second
	TestPatience      = 5 * time.Minute
)

// Discover returns what the provider has that documents may name. One discovery of a provider runs at a time, so that
// a hypervisor that hangs is not asked by everybody at once. Errors: not_found if there is no such provider,
// unavailable if it does not answer in time, invalid if its back end cannot tell, and what its credentials are refused
// for.
func (s *Service) Discover(ctx context.Context, name string) (hypervisor.Discovery, error) {
	const op = "providers.discover"
	doc, err := s.Vault.Store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	if doc.Provider.CredentialsName() != "" {
		if err := s.tryCredentials(ctx, name, *doc.Provider); err != nil {
			return hypervisor.Discovery{}, err
		}
	}
	soon, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	d, err := s.discover(soon, op, name)
	return d, hypervisor.Late(ctx, soon, op, name, s.Patience, err)
}

func (s *Service) discover(ctx context.Context, op, name string) (hypervisor.Discovery, error) {
	release, err := s.discoveries.Lock(ctx, name)
	if err != nil {
		return hypervisor.Discovery{}, director.Errorf(director.KindUnavailable, op, "interrupted: %w", err)
	}
	defer release()
	b, err := s.Backends.Backend(ctx, name)
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	return tell(ctx, op, name, b)
}

// tell asks the back end what it has.
func tell(ctx context.Context, op, name string, b hypervisor.Backend) (hypervisor.Discovery, error) {
	teller, ok := hypervisor.Capability[hypervisor.Discoverer](b)
	if !ok {
		return hypervisor.Discovery{}, director.Errorf(
			director.KindInvalid, op, "provider %s does not tell what it has", name,
		).
			WithHint("type the names that its hypervisor shows")
	}
	return teller.Discover(ctx)
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/wire"
)

// Providers is what the API offers of providers besides their documents. All methods return *director.Error and are
// safe for concurrent use.
type Providers interface {
	// SetCredentials seals and stores an account, or replaces the one of the name.
	SetCredentials(
		ctx context.Context, actor, name, user string, password director.Secret,
	) (director.Credentials, error)
	// ListCredentials returns all credentials without their passwords.
	ListCredentials(ctx context.Context) ([]providers.CredentialsView, error)
	// DeleteCredentials removes credentials; conflict names the providers that use them.
	DeleteCredentials(ctx context.Context, actor, name string) error
	// TestProvider connects to the provider and looks at what the director needs of it. Nothing is changed.
	TestProvider(ctx context.Context, name string) ([]hypervisor.Probe, error)
	// Discover returns what the provider has; unavailable if it does not answer in time.
	Discover(ctx context.Context, name string) (hypervisor.Discovery, error)
	// DiscoverDraft is Discover for a provider that need not be stored. Nothing is stored.
	DiscoverDraft(ctx context.Context, actor string, d providers.Draft) (hypervisor.Discovery, error)
}

const kindCredentials = "Credentials"

type credentialsInput struct {
	Name string `path:"name" maxLength:"40" doc:"Name of the credentials."`
	Body wire.CredentialsChange
}

type credentialsRef struct {
	Name string `path:"name" maxLength:"40" doc:"Name of the credentials."`
}

type providerRef struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the provider."`
}

func (s *providerRoutes) providers(api huma.API) {
	tags := []string{"Providers"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-credentials", Method: http.MethodGet, Path: "/credentials", Tags: tags,
		Summary: "List the credentials of providers, without their passwords",
	}, director.ActRead, kindCredentials, s.listCredentials)
	operation(s.server, api, huma.Operation{
		OperationID: "set-credentials", Method: http.MethodPut, Path: "/credentials/{name}", Tags: tags,
		Summary: "Set or change the credentials of providers",
		Description: "The password is sealed, and never shown again. Providers that name the credentials take a " +
			"change up at their next login; nothing else changes.",
	}, director.ActCredentials, kindCredentials, s.setCredentials)
	operation(s.server, api, huma.Operation{
		OperationID: "delete-credentials", Method: http.MethodDelete, Path: "/credentials/{name}", Tags: tags,
		Summary: "Delete credentials that no provider names",
		Errors:  []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActCredentials, kindCredentials,
		func(ctx context.Context, a director.Actor, in *credentialsRef) (*empty, error) {
			return nil, s.Providers.DeleteCredentials(ctx, a.User, in.Name)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "test-provider", Method: http.MethodPost, Path: "/providers/{name}/test", Tags: tags,
		Summary: "Connect to a provider and say what is wrong",
		Description: "Everything that the director needs of the provider is looked at, each thing by itself. " +
			"Nothing is changed.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindProvider, s.testProvider)
	operation(s.server, api, huma.Operation{
		OperationID: "discover-provider", Method: http.MethodGet, Path: "/providers/{name}/discovery", Tags: tags,
		Summary: "Tell what a provider has that documents may name",
		Description: "Hosts; of libvirt storage pools, networks and bridges; of vSphere datacenters, clusters, " +
			"resource pools, datastores, port groups, folders and templates. The hypervisor is asked, for 25 seconds " +
			"at most. Nothing is changed. At most 500 items of each kind are told.",
		Errors: []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, director.ActPlan, kindProvider, s.discoverProvider)
	operation(s.server, api, huma.Operation{
		OperationID: "discover-draft", Method: http.MethodPost, Path: "/providers/discover", Tags: tags,
		Summary: "Tell what a provider has that is not stored yet",
		Description: "The answer is that of a stored provider. The document in the request needs a type, an address " +
			"and an account; the names that are looked for may be missing or wrong. The account is that of the " +
			"request, or the sealed credentials that the document names, unless those were set for another address. " +
			"Nothing is stored but who asked which address, in the audit trail. Who asks may also set credentials. " +
			"One such request of a person runs at a time, for 25 seconds at most.",
		MaxBodyBytes: 128 << 10,
		Errors:       []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, director.ActCredentials, kindProvider, s.discoverDraft)
	operation(s.server, api, huma.Operation{
		OperationID: "test-identity-provider", Method: http.MethodPost, Path: "/identity-providers/{name}/test",
		Tags: tags, Summary: "Ask a directory with people and say what is wrong",
		Description: "Each stage is looked at by itself, on every server: resolve, connect, tls, bind, search, " +
			"groups. With a user, the person is looked up and the role is named. Nothing is changed.",
		Errors: []int{http.StatusNotFound},
	}, director.ActUsers, kindIdentityProvider, s.testIdentityProvider)
}

const kindIdentityProvider = string(model.KindIdentityProvider)

func (s *providerRoutes) testIdentityProvider(
	ctx context.Context, _ director.Actor, in *struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the identity provider."`
		User string `query:"user" maxLength:"256" doc:"Name of a person to look up."`
	},
) (*body[wire.ProviderTest], error) {
	findings, err := s.People.Test(ctx, in.Name, in.User)
	if err != nil {
		return nil, err
	}
	out := wire.ProviderTest{OK: true, Probes: make([]wire.Probe, len(findings))}
	for i, f := range findings {
		out.Probes[i] = wire.Probe{Host: f.Server, What: string(f.Stage), OK: f.Passed, Found: f.Msg}
		if !f.Passed {
			out.OK = false
			out.Probes[i].Found, out.Probes[i].Problem, out.Probes[i].Hint = "", f.Msg, f.Hint
		}
	}
	return &body[wire.ProviderTest]{out}, nil
}

func (s *providerRoutes) listCredentials(
	ctx context.Context, _ director.Actor, _ *empty,
) (*body[wire.CredentialsList], error) {
	list, err := s.Providers.ListCredentials(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.CredentialsList{Items: make([]wire.Credentials, len(list))}
	for i, c := range list {
		out.Items[i] = credentialsOf(c)
	}
	return &body[wire.CredentialsList]{out}, nil
}

func (s *providerRoutes) setCredentials(
	ctx context.Context, a director.Actor, in *credentialsInput,
) (*body[wire.Credentials], error) {
	c, err := s.Providers.SetCredentials(ctx, a.User, in.Name, in.Body.User, director.Secret(in.Body.Password))
	if err != nil {
		return nil, err
	}
	return &body[wire.Credentials]{credentialsOf(providers.CredentialsView{Credentials: c})}, nil
}

func (s *providerRoutes) testProvider(
	ctx context.Context, _ director.Actor, in *providerRef,
) (*body[wire.ProviderTest], error) {
	probes, err := s.Providers.TestProvider(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := wire.ProviderTest{OK: true, Probes: make([]wire.Probe, len(probes))}
	for i, p := range probes {
		out.Probes[i] = wire.Probe{Host: p.Host, What: p.What, OK: p.Err == nil, Found: p.Found}
		if p.Err != nil {
			out.OK = false
			out.Probes[i].Found, out.Probes[i].Problem, out.Probes[i].Hint = "", publicMessage(p.Err),
				director.HintOf(p.Err)
		}
	}
	return &body[wire.ProviderTest]{out}, nil
}

func (s *providerRoutes) discoverProvider(
	ctx context.Context, _ director.Actor, in *providerRef,
) (*body[wire.Discovery], error) {
	d, err := s.Providers.Discover(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &body[wire.Discovery]{discoveryOf(in.Name, d)}, nil
}

func (s *providerRoutes) discoverDraft(
	ctx context.Context, a director.Actor, in *struct{ Body wire.DiscoverRequest },
) (*body[wire.Discovery], error) {
	d, err := s.Providers.DiscoverDraft(ctx, a.User, providers.Draft{
		Text: []byte(in.Body.Document), User: in.Body.User, Password: director.Secret(in.Body.Password),
	})
	if err != nil {
		return nil, err
	}
	return &body[wire.Discovery]{discoveryOf("", d)}, nil
}

func discoveryOf(provider string, d hypervisor.Discovery) wire.Discovery {
	out := wire.Discovery{Provider: provider, Version: d.Version, Items: make([]wire.Discovered, len(d.Items))}
	for i, f := range d.Items {
		out.Items[i] = wire.Discovered{
			Kind: string(f.Kind), In: f.In, Name: f.Name, About: f.About, Problem: f.Problem, SizeBytes: f.Size,
			FreeBytes: f.Free, CPUs: f.CPUs, MemoryBytes: f.Memory, MemoryFreeBytes: f.MemoryFree, VMs: f.VMs,
		}
	}
	for _, kind := range hypervisor.DiscoveredKinds() {
		if n := d.Left[kind]; n > 0 {
			out.Left = append(out.Left, wire.DiscoveredLeft{Kind: string(kind), Count: n})
		}
	}
	for _, u := range d.Unseen {
		out.Unseen = append(out.Unseen, wire.DiscoveredUnseen{
			Host: u.Host, Problem: publicMessage(u.Err), Hint: director.HintOf(u.Err),
		})
	}
	return out
}

func credentialsOf(c providers.CredentialsView) wire.Credentials {
	return wire.Credentials{
		Name: c.Name, User: c.User, Revision: c.Revision, CreatedAt: c.Created.UTC(), UpdatedAt: c.Updated.UTC(),
		UpdatedBy: c.By, Providers: c.Providers,
	}
}

package apitest

import (
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
)

// Providers implements api.Providers. The credentials "used" are named by the provider lab; a provider with the label
// broken has a host that is down.
type Providers struct {
	*Operations
	list []director.Credentials
}

var _ api.Providers = (*Providers)(nil)

func (p *Providers) find(name string) int {
	return slices.IndexFunc(p.list, func(c director.Credentials) bool { return c.Name == name })
}

// SetCredentials keeps credentials.
func (p *Providers) SetCredentials(
	_ context.Context, actor, name, user string, password director.Secret,
) (director.Credentials, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.find(name)
	if i < 0 {
		i = len(p.list)
		p.list = append(p.list, director.Credentials{Name: name, Created: p.now()})
	}
	c := &p.list[i]
	c.User, c.Password, c.By, c.Updated = user, password, actor, p.now()
	c.Revision++
	return *c, nil
}

// ListCredentials lists credentials.
func (p *Providers) ListCredentials(context.Context) ([]providers.CredentialsView, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []providers.CredentialsView
	for _, c := range p.list {
		v := providers.CredentialsView{Credentials: c}
		if c.Name == "used" {
			v.Providers = []string{"lab"}
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b providers.CredentialsView) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// DeleteCredentials forgets credentials.
func (p *Providers) DeleteCredentials(_ context.Context, _, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.find(name)
	switch {
	case i < 0:
		return notFound("there are no credentials %s", name)
	case name == "used":
		return director.Errorf(
			director.KindConflict, "apitest.credentials", "credentials used are used by Provider/lab",
		).
			WithHint("let the provider name others first")
	}
	p.list = slices.Delete(p.list, i, i+1)
	return nil
}

// Discover tells of one host; one labelled broken has another that does not answer.
func (p *Providers) Discover(ctx context.Context, name string) (hypervisor.Discovery, error) {
	d, err := p.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	return discovery(d.Metadata.Labels["broken"] != ""), nil
}

// DiscoverDraft tells of one host, and of the account at a vCenter.
func (p *Providers) DiscoverDraft(_ context.Context, actor string, d providers.Draft) (hypervisor.Discovery, error) {
	docs, err := model.Parse(d.Text, "document")
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	out := discovery(docs[0].Metadata.Labels["broken"] != "")
	if d.User != "" {
		out.Items = []hypervisor.Discovered{{
			Kind: hypervisor.FoundDatacenter, Name: "/DC0", About: "seen by " + d.User + " for " + actor,
		}}
	}
	return out, nil
}

func discovery(broken bool) hypervisor.Discovery {
	out := hypervisor.Discovery{
		Version: "libvirt 9.0.0",
		Items: []hypervisor.Discovered{
			{
				Kind: hypervisor.FoundHost, Name: "host1", About: "qemu:///system", CPUs: 8, Memory: 32 << 30,
				MemoryFree: 20 << 30, VMs: 3,
			},
			{
				Kind: hypervisor.FoundStoragePool, In: "host1", Name: "default", About: "dir at /srv", Size: 100 << 30,
				Free: 40 << 30,
			},
			{Kind: hypervisor.FoundStoragePool, In: "host1", Name: "fast", About: "zfs", Problem: "it is not started"},
			{Kind: hypervisor.FoundBridge, In: "host1", Name: "br0", About: "eth0"},
		},
	}
	if broken {
		out.Left = map[hypervisor.DiscoveredKind]int{hypervisor.FoundBridge: 12}
		out.Unseen = []hypervisor.HostState{{Host: "host2", Err: director.Errorf(
			director.KindUnavailable, "apitest.discover", "host host2 does not answer within 15s").
			WithHint("look at the host and at the network")}}
	}
	return out
}

// TestProvider looks at nothing.
func (p *Providers) TestProvider(ctx context.Context, name string) ([]hypervisor.Probe, error) {
	d, err := p.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return nil, err
	}
	out := []hypervisor.Probe{{Host: "host1", What: "connection", Found: "libvirt 9.0.0 at qemu:///system"}}
	if d.Metadata.Labels["broken"] != "" {
		out = append(out, hypervisor.Probe{Host: "host1", What: "storage pool fast", Err: director.Errorf(
			director.KindNotFound, "apitest.pool", "host host1 has no storage pool fast").
			WithHint("make it there, or name another in spec.libvirt.hosts[].pool")})
	}
	return out, nil
}

package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/plugins/libvirt"
	"github.com/director-kaas/kaas/plugins/vsphere"
)

// engineStore is the store as the engine wants it.
type engineStore struct{ *store.Store }

var _ engine.Store = engineStore{}

// Update runs fn in a transaction.
func (s engineStore) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return s.Store.Update(ctx, func(tx *store.Tx) error { return fn(tx) })
}

// Active lists the plans that have steps to run or to end.
func (s engineStore) Active(ctx context.Context) ([]string, error) {
	return s.Plans(ctx, store.PlanFilter{Statuses: plan.Driven()})
}

// clusterRecords is the store as the steps want it.
type clusterRecords struct{ *store.Store }

// SetNode records what the machine of a node is to its cluster. Idempotent.
func (c clusterRecords) SetNode(ctx context.Context, p step.NodeParams) error {
	return c.SetMembership(ctx, p.Machine, store.Membership{
		State: p.State, Kubernetes: p.Version, Image: p.Image, KeptBy: p.KeptBy,
	})
}

// ClusterInstalled records what was installed. Idempotent.
func (c clusterRecords) ClusterInstalled(ctx context.Context, p step.ClusterParams, at time.Time) error {
	doc := model.Document{
		Kind: model.KindCluster, Metadata: model.Metadata{Name: p.Name, Labels: p.Labels}, Cluster: &p.Document,
	}
	return c.Update(ctx, func(tx *store.Tx) error {
		if err := tx.SetMembers(p.UID, p.Nodes, p.Kubernetes); err != nil {
			return err
		}
		return tx.PutInstalled(store.Installed{
			UID: p.UID, Name: p.Name, Generation: p.Generation, Document: doc, Endpoint: p.Endpoint,
			Registries: p.Registries, At: at,
		})
	})
}

// ForgetCluster removes the record, the secrets and the document of the cluster. Idempotent. Conflict while the cluster
// has machines: a step that was skipped has left them.
func (c clusterRecords) ForgetCluster(ctx context.Context, p step.ClusterParams, actor string, at time.Time) error {
	return c.Update(ctx, func(tx *store.Tx) error {
		machines, err := tx.Living(p.UID)
		if err != nil {
			return err
		}
		if len(machines) > 0 {
			return director.Errorf(
				director.KindConflict, "cluster.forget", "cluster %s still has %s", p.Name,
				strings.Join(machines, ", "),
			).
				WithHint("discard this plan and plan the deletion again: directorctl delete cluster %s", p.Name)
		}
		// The start of the deletion has given up all others.
		err = tx.DiscardPlansOf(
			store.LaneDrills, p.Name, "the cluster was deleted", actor, at, plan.StatusPlanned, plan.StatusApproved,
			plan.StatusFailed, plan.StatusCancelled,
		)
		if err != nil {
			return err
		}
		if err := tx.ForgetCluster(p.UID, p.Name); err != nil {
			return err
		}
		return tx.Audit(at, actor, "deleted", "Cluster/"+p.Name)
	})
}

// backends opens the back end of a provider at its first use, and opens it again when its document has changed.
type backends struct {
	store  *store.Store
	log    *slog.Logger
	opener opener

	mu   sync.Mutex
	open map[string]openBackend
}

// opener opens the back end of the provider with that name.
type opener func(name string, p model.Provider) (hypervisor.Backend, error)

type openBackend struct {
	hypervisor.Backend
	uid        string
	generation int64
}

func newBackends(s *store.Store, log *slog.Logger, open opener, onStop func(func(context.Context) error)) *backends {
	b := &backends{store: s, log: log, opener: open, open: map[string]openBackend{}}
	onStop(b.close)
	return b
}

// Backend returns the back end of the provider, without the hosts that were declared lost. It is shared: callers must
// not close it.
func (b *backends) Backend(ctx context.Context, provider string) (hypervisor.Backend, error) {
	whole, err := b.whole(ctx, provider)
	if err != nil {
		return nil, err
	}
	lost, err := b.store.LostHosts(ctx, provider)
	if err != nil || len(lost) == 0 {
		return whole, err
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](whole)
	if !ok {
		return whole, nil
	}
	var names []string
	for _, h := range lost {
		names = append(names, h.Host)
	}
	return hosts.Without(names...), nil
}

func (b *backends) whole(ctx context.Context, provider string) (hypervisor.Backend, error) {
	doc, err := b.store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: provider})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	have, ok := b.open[provider]
	if ok && have.uid == doc.UID && have.generation == doc.Generation {
		return have.Backend, nil
	}
	fresh, err := b.opener(provider, *doc.Provider)
	if err != nil {
		return nil, err
	}
	if ok {
		err := have.Close() // a call that still runs on it fails as unavailable and is tried again
		if err != nil {
			b.log.WarnContext(ctx, "closing a back end failed", "backend", provider, "err", err)
		}
	}
	b.open[provider] = openBackend{fresh, doc.UID, doc.Generation}
	return fresh, nil
}

func (b *backends) close(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for name, o := range b.open {
		errs = append(errs, o.Close())
		delete(b.open, name)
	}
	return errors.Join(errs...)
}

// realProviders are the types of providers of a director that does not simulate.
var realProviders = []string{model.ProviderLibvirt, model.ProviderVSphere}

// account opens the sealed credentials that the provider names.
type account func(ctx context.Context, provider string, s model.VSphere) (director.Credentials, error)

// openReal is the one place that knows every back end.
func openReal(accounts account, rules confine.Rules, log *slog.Logger) opener {
	return func(name string, p model.Provider) (hypervisor.Backend, error) {
		switch p.Type {
		case model.ProviderLibvirt:
			return openLibvirt(p, rules, log)
		case model.ProviderVSphere:
			return openVSphere(name, p, accounts, rules, log)
		case model.ProviderSim:
			return nil, director.Errorf(
				director.KindInvalid, "daemon.provider",
				"provider %s only pretends, and this director does not simulate", name,
			).
				WithHint("name a real hypervisor in its document, or simulate with: director simulate")
		}
		return nil, director.Errorf(
			director.KindInvalid, "daemon.provider", "this director has no back end of type %q", p.Type,
		)
	}
}

func openLibvirt(p model.Provider, rules confine.Rules, log *slog.Logger) (hypervisor.Backend, error) {
	cfg := libvirt.Config{
		DomainType: p.Libvirt.DomainType, Autostart: p.Libvirt.Autostart, MachineType: p.Libvirt.MachineType,
		Firmware: p.Libvirt.Firmware,
		CPUMode:  p.Libvirt.CPUMode, NoGuestAgent: p.Libvirt.GuestAgent == "off",
		Doors: libvirt.Doors{
			Files: rules.ProviderFiles, Sockets: rules.ProviderSockets, Networks: rules.ProviderNetworks,
		}, Log: log,
	}
	if p.Libvirt.DiskCache != "default" {
		cfg.DiskCache = p.Libvirt.DiskCache
	}
	for _, h := range p.Libvirt.Hosts {
		cfg.Hosts = append(cfg.Hosts, libvirt.HostConfig{Name: h.Name, URI: h.URI, Pool: h.Pool, DiskPool: h.DiskPool})
	}
	return libvirt.Open(cfg)
}

func openVSphere(
	name string, p model.Provider, accounts account, rules confine.Rules, log *slog.Logger,
) (hypervisor.Backend, error) {
	s := p.VSphere
	return vsphere.Open(vsphere.Config{
		URL: s.URL, Thumbprint: s.Thumbprint, CAFile: s.CAFile, Files: rules.ProviderFiles,
		Networks:    rules.ProviderNetworks,
		Credentials: vsphereCredentials(name, *s, accounts, rules.ProviderFiles),
		Datacenter:  s.Datacenter, Cluster: s.Cluster, ResourcePool: s.ResourcePool, Folder: s.Folder, Hosts: s.Hosts,
		Datastores:        s.Datastores,
		TemplateDatastore: s.TemplateDatastore, DataDatastore: s.DataDatastore, TemplateFolder: s.TemplateFolder,
		Clone: s.Clone, Firmware: s.Firmware,
		ClusterPools: s.ClusterPools, Attributes: s.CustomAttributes,
		Log: log,
	})
}

// vsphereCredentials is where the account of a vCenter comes from: the sealed credentials, or the file of the password.
// Either is asked at every login, so that a new password is taken up without a restart.
func vsphereCredentials(
	name string, s model.VSphere, accounts account, files confine.Dirs,
) func(context.Context) (string, director.Secret, error) {
	return func(ctx context.Context) (string, director.Secret, error) {
		if s.Credentials == "" {
			password, err := passwordFile(name, s, files)
			return s.User, password, err
		}
		c, err := accounts(ctx, name, s)
		return c.User, c.Password, err
	}
}

// mostPassword is the size that a file with a password may have.
const mostPassword = 4096

// passwordFile reads the password of the provider's account. The file is opened once, and neither its size nor its mode
// can change meanwhile to what is refused.
func passwordFile(name string, s model.VSphere, files confine.Dirs) (director.Secret, error) {
	const op = "daemon.credentials"
	refuse := func(kind director.Kind, format string, args ...any) (director.Secret, error) {
		return "", director.Errorf(kind, op, "provider "+name+": "+format, args...).
			WithHint(
				"write the password of %s to the file that spec.vsphere.passwordFile names, with mode 0600; or keep "+
					"it sealed, and name it in spec.vsphere.credentials",
				s.User,
			)
	}
	f, err := files.Open(s.PasswordFile)
	switch {
	case errors.Is(err, confine.ErrOutside):
		return "", director.Errorf(director.KindInvalid, op, "provider %s: spec.vsphere.passwordFile: %s", name, err).
			WithHint("move it there, or name its directory in providerFiles of the director's configuration")
	case errors.Is(err, os.ErrNotExist):
		return refuse(director.KindNotFound, "there is no password file %s", s.PasswordFile)
	case err != nil:
		return refuse(director.KindInvalid, "the password file %s cannot be read", s.PasswordFile)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return refuse(director.KindInvalid, "the password file %s cannot be read", s.PasswordFile)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return refuse(
			director.KindInvalid, "the password file %s can be read by others (mode %04o)", s.PasswordFile,
			info.Mode().Perm(),
		)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostPassword+1))
	if err != nil {
		return refuse(director.KindInvalid, "the password file %s cannot be read", s.PasswordFile)
	}
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case len(text) > mostPassword:
		return refuse(director.KindInvalid, "the password file %s has more than %d bytes", s.PasswordFile, mostPassword)
	case password == "":
		return refuse(director.KindInvalid, "the password file %s is empty", s.PasswordFile)
	}
	return director.Secret(password), nil
}

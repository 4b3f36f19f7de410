// Package daemon puts the rooms together: it reads the configuration, starts everything in order and stops it in
// reverse.
package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/access"
	"github.com/director-kaas/kaas/director/acme"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/claims"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/console"
	"github.com/director-kaas/kaas/director/discovery"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/fence"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/manual"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/notifications"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/registry"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/schedules"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Build says which director this is.
type Build struct {
	Version string
	Commit  string
}

// Daemon is a running director.
type Daemon struct {
	cfg   Config
	log   *slog.Logger
	stops []func(context.Context) error // in the order of starting
	addr  net.Addr

	registryAddr  net.Addr
	images        func() error                  // why nothing can be pulled; nil while all is well
	pushers       *registryPeople               // who may push and pull
	stock         *registryReleases             // whose images stay
	engine        atomic.Pointer[engine.Engine] // nil before it was made
	docs          *documents.Service
	services      services
	backups       *backups.Service
	saves         *schedule.Backups // of the director itself
	peers         peerCalls
	campaigns     *campaigns.Service
	fencing       *fence.Service
	people        *people.Service
	issuer        *issuer.Service
	hooks         *hooks.Service
	notifications *notifications.Service
	discovery     *discovery.Service
	acme          *acme.Manager                  // nil without an ACME server
	apiAddr       atomic.Pointer[netip.AddrPort] // nil before the API listens
	nodes         steps.Nodes                    // seam for tests: instead of the real ones
	held          atomic.Bool                    // it works on nothing: of a root that is tried, or handed over
	handedOver    atomic.Bool                    // it is held until it takes its clusters over again
	run           director.Claim                 // what it writes into clusters
	claims        *claims.Service
}

// Start starts a director and returns when its API answers. out gets what a person must see once: where the first
// password is. On an error nothing is left running.
func Start(ctx context.Context, cfg Config, build Build, log *slog.Logger, out io.Writer) (*Daemon, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, log: log}
	d.held.Store(cfg.Held)
	if err := d.start(ctx, build, out); err != nil {
		return nil, errors.Join(err, d.Stop(context.WithoutCancel(ctx)))
	}
	return d, nil
}

// Addr returns the address that the API listens on.
func (d *Daemon) Addr() net.Addr { return d.addr }

// Stop stops everything in reverse order. Running steps are interrupted and continue at the next start. It is
// idempotent.
func (d *Daemon) Stop(ctx context.Context) error {
	var errs []error
	for i := len(d.stops) - 1; i >= 0; i-- {
		errs = append(errs, d.stops[i](ctx))
	}
	d.stops = nil
	return errors.Join(errs...)
}

func (d *Daemon) onStop(fn func(context.Context) error) { d.stops = append(d.stops, fn) }

func (d *Daemon) path(parts ...string) string {
	return filepath.Join(append([]string{d.cfg.StateDir}, parts...)...)
}

// startRegistry starts the registry with a password that only this process knows, and returns how to push into it.
func (d *Daemon) startRegistry(
	ctx context.Context, db *store.Store, box *seal.Box, identity *pki.Server,
) (bundle.PushOptions, error) {
	password := make([]byte, 32)
	_, _ = rand.Read(password) // crypto/rand.Read never fails
	secret := director.Secret(base64.RawURLEncoding.EncodeToString(password))
	access := &pulls{
		db: db, keys: steps.Keys{Secrets: db, Sealer: box}, anonymous: d.cfg.RegistryAnonymous, log: d.log,
		now: time.Now, known: map[string]pullAnswer{},
	}
	if without, err := db.AnonymousPulls(ctx); err != nil {
		return bundle.PushOptions{}, err
	} else if len(without) > 0 && d.cfg.RegistryAnonymous == anonymousExisting {
		d.log.WarnContext(
			ctx,
			"anyone may pull from the registry, because clusters were set up without credentials for it; see "+
				"registryAnonymous",
			"clusters", without,
		)
	}
	images, err := d.cfg.RegistryBucket.place()
	if err != nil {
		return bundle.PushOptions{}, err
	}
	d.pushers, d.stock = newRegistryPeople(db, access), newRegistryReleases(d.held.Load)
	reg, err := registry.New(registry.Config{
		Root: d.path("registry"), Bucket: images, Artifacts: d.path("artifacts"), Addr: d.cfg.RegistryListen,
		TLS: identity.TLSConfig(), User: "director", Password: secret, Reader: access.read, People: d.pushers,
		Releases: d.stock.needed, Room: health{d}.checkPushes, Logger: d.log,
	})
	if err != nil {
		return bundle.PushOptions{}, err
	}
	if err := reg.Start(ctx); err != nil {
		return bundle.PushOptions{}, err
	}
	d.onStop(reg.Stop)
	d.registryAddr, d.images, d.stock.registry = reg.Addr(), reg.Content, reg
	return bundle.PushOptions{Username: "director", Password: secret}, nil
}

// runner returns what plays playbooks, after it ended what an earlier process has left.
func (d *Daemon) runner(
	ctx context.Context, db *store.Store, m *metrics.Metrics, h hands, runs string,
) (*ansible.Runner, error) {
	kept := d.path("ansible")
	work := d.workDir(kept)
	if err := errors.Join(os.MkdirAll(runs, 0o700), os.MkdirAll(work, 0o700)); err != nil {
		return nil, director.Errorf(
			director.KindInternal, "daemon.state",
			"the state directory or the directory of runs cannot be used: %w", err,
		)
	}
	if err := ownDirectory("the directory of runs", work); err != nil {
		return nil, err
	}
	plays := ansible.Config{
		Binary: h.playbook, StateDir: work, Forks: d.cfg.Forks, Logger: d.log, Observer: m,
	}
	if d.cfg.CausesFile != "" {
		var err error
		if plays.Causes, err = ansible.ReadCauses(d.cfg.CausesFile); err != nil {
			return nil, err
		}
	}
	if db.Pool() != nil { // peers may be there
		plays.Silence = engine.DefaultLease / 2
	}
	runner, err := ansible.New(plays)
	if err != nil {
		return nil, err
	}
	runners := []*ansible.Runner{runner}
	if _, err := os.Stat(kept); work != kept && err == nil { // a former process may have had no other directory
		plays.StateDir = kept
		former, err := ansible.New(plays)
		if err != nil {
			return nil, err
		}
		runners = append(runners, former)
	}
	for _, r := range runners {
		survivors, err := r.EndSurvivors(ctx)
		for _, run := range survivors {
			d.log.WarnContext(ctx, "ended a run that an earlier process left behind", "run", run)
		}
		if err != nil {
			return nil, err
		}
	}
	return runner, nil
}

// workDir returns the directory of runs. Several directors may be told the same one: each has a part of it.
func (d *Daemon) workDir(kept string) string {
	dir := d.cfg.RunDir
	if dir == "" { // systemd names several with colons between them
		dir, _, _ = strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	}
	if dir == "" {
		return kept
	}
	own := sha256.Sum256([]byte(d.cfg.StateDir))
	return filepath.Join(dir, fmt.Sprintf("plays-%x", own[:6]))
}

// ports puts what the API offers behind its ports.
func (d *Daemon) ports(box *seal.Box, h hands, scheduler *schedule.Scheduler, users *identity.Service) api.Ports {
	s := d.services
	return api.Ports{
		Documents: d.docs, Drafts: d.docs, Previews: s.planning,
		Clusters: s.clusters, Fleet: s.nodes, Waits: s.journal, Logs: s.journal,
		Nodes: s.nodes, Planning: s.planning, Phases: s.phases, Capacity: s.capacity,
		Journal: s.journal, Archives: s.archives, Campaigns: d.campaigns, Hooks: d.hooks,
		Notifications: d.notifications,
		Images:        s.images, Releases: s.releases, Mirrors: s.mirrors, Stock: d.stock.registry,
		Ledger: s.vms, Disks: s.disks,
		Backups: s.backups,
		Users:   users, Trail: s.audit, People: d.people,
		Issuer:       d.issuer,
		Consuls:      d.discovery,
		Appliance:    s.upgrades,
		Authorities:  s.outer,
		OwnAuthority: s.own,
		Directors:    clusters.Directors{Store: s.db, Certificate: s.env.DirectorCertificate},
		Shells:       d.shells(s, h),
		Certificates: s.inventory,
		Scopes:       s.db,
		Access:       access.New(s.db, s.planning, s.env, time.Now),
		Schedules:    schedules.New(s.db, scheduler, time.Now),
		Providers: providers.New(providers.Config{
			Vault: d.vault(s.db, box), Backends: s.env.Backends, Director: s.db.DirectorID(), Simulates: h.simulates(),
			Now: time.Now, Open: h.draft, Check: d.docs.CheckAlone,
		}),
	}
}

func (d *Daemon) startAPI(
	ctx context.Context, db *store.Store, ports api.Ports, service *auth.Service, identity *pki.Server, build Build,
	m *metrics.Metrics,
) error {
	tlsConfig, err := d.apiTLS(identity.TLSConfig())
	if err != nil {
		return err
	}
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	token, err := d.metricsToken()
	if err != nil {
		stop()
		return err
	}
	logins := api.NewLogins(service, nil)
	d.pushers.door.Store(&door{auth: service, logins: logins, trail: d.services.audit})
	handler := api.New(api.Config{
		Ports: ports, Auth: service, Logins: logins, Keys: db, Log: d.log, Version: build.Version, Commit: build.Commit,
		Settings: d.cfg.settings(),
		Stopping: stopping, Held: d.held.Load, HandedOver: d.handedOver.Load,
		Ready: health{d}.checks(db), Metrics: m.Handler(), MetricsToken: token, Observer: m,
		Manual: manual.Built(), Console: console.Built(),
		Proxies: d.cfg.TrustedProxies, Audit: d.services.audit,
	})
	server := api.NewServer(d.peers.answering(handler, d.services.journal, d.services.files), tlsConfig, d.log)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.cfg.Listen)
	if err != nil {
		stop()
		return director.Errorf(
			director.KindConflict, "daemon.listen", "the API cannot listen on %s: %w", d.cfg.Listen, err,
		).
			WithHint("set listen to a free address")
	}
	d.addr = listener.Addr()
	if a, err := netip.ParseAddrPort(d.addr.String()); err == nil {
		d.apiAddr.Store(&a)
	}
	d.advertise(ctx, db, d.services.host)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	d.onStop(func(ctx context.Context) error {
		stop()
		err := server.Shutdown(ctx)
		if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	})
	d.log.InfoContext(ctx, "the director is ready", "api", d.addr.String(), "registry", d.cfg.RegistryListen, "ca",
		identity.CAFile(),
		"fingerprint", client.Fingerprint(identity.Leaf()))
	return d.background().startACME(ctx)
}

// newPlanID returns an id that sorts by time and can be typed: date, time and three random bytes.
func newPlanID() string {
	b := make([]byte, 3)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return time.Now().UTC().Format("0102-150405") + "-" + hex.EncodeToString(b)
}

// explain turns a step's error into what people are shown: never the cause's text when there is a message made for
// them.
func explain(err error) (message, hint string) {
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return err.Error(), ""
	}
	message = e.Msg
	for _, f := range e.Fields {
		message += "; " + f.String()
	}
	return message, director.HintOf(err)
}

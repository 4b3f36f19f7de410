package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/access"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/authorities"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/fence"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/recovery"
	"github.com/director-kaas/kaas/director/releasestore"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// boot is a start that is under way: what its parts hand to those that follow.
type boot struct {
	*Daemon
	build Build
	out   io.Writer

	instance, host string
	db             *store.Store
	box            *seal.Box
	hands          hands
	server         *pki.Server // the identity of the API
	push           bundle.PushOptions
	metrics        *metrics.Metrics
	env            steps.Env
	outer          *authorities.Service
	logsOf         func(instance string) bool
	files          *imagestore.Store
	bundles        *releasestore.Store
	tree           string // hash of the playbooks
	engine         *engine.Engine
	scheduler      *schedule.Scheduler
	passwords      *auth.Service
}

// start runs the parts of a start. Each relies on those before it.
func (d *Daemon) start(ctx context.Context, build Build, out io.Writer) error {
	b := &boot{Daemon: d, build: build, out: out}
	for _, part := range []func(context.Context) error{
		b.openState, b.openDoors, b.makeEnvironment, b.openFiles, b.startEngine, b.makeServices, b.startSchedules,
		b.admit, b.startRounds, b.serve,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openState takes the state directory, the database and the key that its secrets are sealed with.
func (b *boot) openState(ctx context.Context) error {
	if err := b.state().lockState(ctx); err != nil {
		return err
	}
	var err error
	if b.instance, b.host, err = b.state().instanceID(); err != nil {
		return err
	}
	if b.db, err = b.state().openStore(ctx); err != nil {
		return err
	}
	b.onStop(func(context.Context) error { return b.db.Close() })
	if err := b.state().markDatabase(ctx, b.db); err != nil {
		return err
	}
	if b.box, err = b.state().openSeal(ctx, b.db); err != nil {
		return err
	}
	if err := os.RemoveAll(b.path("extracts")); err != nil { // of a director that was killed
		return err
	}
	b.backups = b.backupService(b.db, b.box, b.build.Version)
	b.saves = schedule.NewBackups(b.db, b.backups, b.path("backups"), time.Now)
	if err := b.state().bindSeals(ctx, b.db, b.box, b.instance); err != nil {
		return err
	}
	return b.state().beginRun(ctx, b.db, b.host)
}

// openDoors makes the director's own certificates, and starts the registry.
func (b *boot) openDoors(ctx context.Context) error {
	var err error
	if b.hands, err = b.openHands(b.db, b.box); err != nil {
		return err
	}
	if b.server, err = b.state().openIdentity(ctx, b.db, b.box); err != nil {
		return err
	}
	if err := b.background().openACME(); err != nil {
		return err
	}
	if b.push, err = b.startRegistry(ctx, b.db, b.box, b.server); err != nil {
		return err
	}
	return errors.Join(b.state().reportMACs(ctx, b.db), b.db.IndexPlans(ctx))
}

// makeEnvironment makes what steps of plans work with.
func (b *boot) makeEnvironment(ctx context.Context) error {
	b.metrics = b.Daemon.metrics(b.db, b.build)
	if err := b.background().startIssuer(ctx, b.db, b.box); err != nil {
		return err
	}
	var err error
	making := environment{b.Daemon, b.db, b.box, b.hands}
	if b.env, err = making.make(ctx, b.server, b.push, b.metrics); err != nil {
		return err
	}
	if b.env.Restored, err = recovery.Restored(b.cfg.StateDir); err != nil {
		return err
	}
	b.discovery = b.background().makeDiscovery(b.db, b.box, b.env.Clusters, b.instance)
	b.env.Registrar = registrar(b.discovery)
	b.outer = b.makeAuthorities(b.db, b.box)
	b.env.Outer = b.outer
	if b.logsOf, err = b.state().signRuns(b.instance); err != nil {
		return err
	}
	b.peers, err = b.openPeers(b.db, b.box, b.server, b.instance)
	return err
}

// openFiles opens the stores of images and releases, and puts the playbooks where runs find them.
func (b *boot) openFiles(context.Context) error {
	var err error
	b.files, err = imagestore.Open(imagestore.Config{
		Dir: b.path("images"), Owner: b.instance, Log: b.log, Reserve: int64(b.cfg.ImageReserve),
		Uploads: b.cfg.ImageUploads, UploadBytes: int64(b.cfg.ImageUploadsSize),
	})
	if err != nil {
		return err
	}
	b.onStop(b.files.Close)
	b.env.Images, b.env.Imported = b.db, b.files.Path
	b.bundles, err = releasestore.Open(releasestore.Config{
		Dir: b.path("releases"), Owner: b.instance, Log: b.log, Reserve: int64(b.cfg.ImageReserve),
	})
	if err != nil {
		return err
	}
	b.onStop(b.bundles.Close)
	b.env.ImportedRelease = b.bundles.Path
	if b.env.Gate, err = b.cfg.gate(b.files.File); err != nil {
		return err
	}
	b.tree, _, err = ansible.Unpack(planTree(), b.path("playbooks"))
	return err
}

// startEngine continues the plans of before, unless the director is held.
func (b *boot) startEngine(ctx context.Context) error {
	var err error
	b.engine, err = engine.New(ctx, engine.Config{
		Director: b.db.DirectorID(), Store: engineStore{b.db}, Handlers: steps.Handlers(b.env),
		Workers: b.cfg.StepsAtOnce, Log: b.log, Explain: explain, Current: planning.Current, Budget: b.cfg.budget,
		Instance: b.instance, Host: b.host, Channel: store.Channel, Observer: b.metrics,
	})
	if err != nil {
		return err
	}
	b.Daemon.engine.Store(b.engine)
	if b.held.Load() {
		b.engine.Hold()
		b.log.WarnContext(ctx, "the director is held: it begins no work and takes no changes until it is released")
	}
	if err := b.engine.Start(ctx); err != nil {
		return err
	}
	b.onStop(b.engine.Stop)
	return b.background().startHooks(ctx, b.db, b.box, b.engine, b.metrics, b.instance, b.build)
}

// makeServices makes what the API offers of clusters and plans, and the service of documents.
func (b *boot) makeServices(ctx context.Context) error {
	trail, err := b.startAudit(ctx, b.db, b.box)
	if err != nil {
		return err
	}
	if err := b.background().startSyslog(ctx, b.db, b.build); err != nil {
		return err
	}
	port, err := b.cfg.registryPort()
	if err != nil {
		return err
	}
	b.claims = b.Daemon.background().makeClaims(b.db, b.env.Clusters)
	b.services = newServices(parts{
		cfg: b.cfg, log: b.log, audit: trail, db: b.db, env: b.env, engine: b.engine, files: b.files,
		bundles: b.bundles, types: b.hands.providers,
		instance: b.instance, host: b.host, held: b.held.Load, listeners: b.background().listeners,
		fetch:     b.peers.fetcher(b.db, b.files),
		inventory: b.inventoryOf(b.db, b.env, b.server, b.outer), outer: b.outer,
		own:     b.ownAuthority(),
		backups: b.backups, room: health{b.Daemon}.room, claimed: b.mayWork,
		directors: directorRecords{b.db, b.vault(b.db, b.box)},
		logsOf:    b.logsOf, peers: b.peers.ask, consuls: b.discovery,
		support: b.support(b.db, b.build, b.hands.playbook, b.tree, b.env.Push.Password),
		director: planner.Director{
			ID: b.db.DirectorID(), Address: b.cfg.Address.String(), Playbooks: b.tree, Version: b.build.Version,
			Registry: net.JoinHostPort(b.cfg.Address.String(), port),
		},
	})
	b.onStop(b.services.mirrors.Close)
	b.stock.open(b.services.releases)
	// Jobs use services that check schedules with the scheduler, which is made after them.
	b.docs = documents.New(documents.Config{
		Store: b.db, Images: b.services.images, Now: time.Now, ProviderTypes: b.hands.providers, Confine: b.cfg.rules(),
		CheckSchedule: func(s model.Schedule) []director.Field { return b.scheduler.Check(s) },
		CheckIdentity: people.Check, CheckAuthority: b.outer.Check, TryAuthority: b.outer.Try,
		Applied: func() { b.scheduler.Wake() },
		Answer:  func(c []model.Change) any { return wire.Applied{Changes: wire.ChangesOf(c)} },
	})
	return nil
}

// startSchedules starts the schedules of documents, and what asks directories about people.
func (b *boot) startSchedules(ctx context.Context) error {
	b.scheduler = b.Daemon.background().scheduler(b.db)
	if err := b.Daemon.background().startSchedules(ctx, b.db, b.scheduler); err != nil {
		return err
	}
	b.people = people.New(people.Config{
		Store: b.db, Accounts: b.vault(b.db, b.box), Sealer: b.box, URL: b.cfg.publicURL(),
		Networks: b.cfg.ProviderNetworks, CheckName: identity.CheckName, Now: time.Now, Log: b.log,
	})
	b.every(ctx, peopleEvery, "ask directories about people", b.people.Refresh)
	return nil
}

// admit makes the first person of a new director, and what a rehearsing one begins with.
func (b *boot) admit(ctx context.Context) error {
	var err error
	if b.passwords, err = b.authentication(ctx, b.db, b.out); err != nil {
		return err
	}
	return b.rehearse(ctx, b.db, b.out)
}

// startRounds starts what the director looks at again and again.
func (b *boot) startRounds(ctx context.Context) error {
	b.every(ctx, repairEvery, "repair nodes", func(ctx context.Context) error {
		return b.services.nodes.Repair(ctx, time.Now())
	})
	b.every(ctx, upgradesEvery, "continue the upgrade of this director", b.services.phases.Tick)
	b.every(ctx, drillsEvery, "end restore drills", b.services.planning.SettleDrills)
	b.every(ctx, snapshotsEvery, "delete snapshots that upgrades have left", b.services.vms.DropSnapshots)
	b.every(ctx, observeEvery, "look at nodes", b.services.nodes.Observe)
	b.every(ctx, fillEvery, "fill the registry", b.stock.fill(b.env.PushRelease, b.log).pass)
	keeper := access.Keeper{Store: b.db, Issuer: b.issuer, Plans: b.services.planning, Now: time.Now, Log: b.log}
	b.every(ctx, keysEvery, "bring token keys to clusters", keeper.Keep)
	if err := b.background().startCampaigns(ctx, b.db); err != nil {
		return err
	}
	b.every(ctx, claimsEvery, "look for other copies of this director", b.claims.Pass)
	b.fencing = fence.New(b.db, b.env.Backends, b.db.DirectorID(), time.Now, b.log)
	b.every(ctx, fenceEvery, "power off what was given up with lost hosts", b.fencing.Sweep)
	b.background().startServing(ctx, b.db, b.env.Clusters)
	b.background().startDiscovery(ctx)
	b.every(ctx, followEvery, "follow the authority of the directors", b.services.own.Follow)
	b.every(ctx, certificatesEvery, "look at certificates", b.services.inventory.Tick)
	b.background().startNotifications(ctx, b.db, b.box, b.metrics, b.instance, b.build)
	return nil
}

// serve lets people in.
func (b *boot) serve(ctx context.Context) error {
	users := identity.New(identity.Config{
		Store: b.db, Passwords: b.passwords, Now: time.Now, Changed: b.state().passwordChanged,
	})
	if err := b.startRescue(ctx, map[string]http.HandlerFunc{
		wire.RescuePath:   b.rescue(users),
		wire.DrainPath:    forRoot(b.drain),
		wire.HandOverPath: b.handOver(b.db, b.build.Version),
		wire.TakeOverPath: forRoot(b.takeOver(b.db, b.scheduler.Wake)),
		wire.ReleasePath: forRoot(func(_ http.ResponseWriter, r *http.Request) error {
			b.release(r.Context(), b.scheduler.Wake)
			return nil
		}),
	}); err != nil {
		return err
	}
	ports := b.ports(b.box, b.hands, b.scheduler, users)
	return b.startAPI(ctx, b.db, ports, b.passwords, b.server, b.build, b.metrics)
}

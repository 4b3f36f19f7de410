package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/director-kaas/kaas/director/archives"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/authorities"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/mirrors"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/releases"
	"github.com/director-kaas/kaas/director/releasestore"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/upgrades"
	"github.com/director-kaas/kaas/director/vms"
	"github.com/director-kaas/kaas/director/wire"
)

// parts are what services are made from.
type parts struct {
	cfg      Config
	log      *slog.Logger
	db       *store.Store
	env      steps.Env
	engine   *engine.Engine
	files    *imagestore.Store
	bundles  *releasestore.Store
	director planner.Director
	types    []string // of providers that this director takes; any if nil
	instance string   // of this director
	host     string   // that it runs on
	held     func() bool
	// listeners returns where this director listens.
	listeners func() []netip.AddrPort
	fetch     func(ctx context.Context, upload string) error // from another director; nil without peers
	// logsOf reports whether the run logs of the director with that instance are where ours are; nil without peers.
	logsOf    func(instance string) bool
	peers     journal.Peers // nil without peers
	support   func(context.Context) archives.Support
	audit     *audit.Service
	backups   *backups.Service
	inventory *certificates.Inventory
	outer     *authorities.Service
	own       *certificates.OwnAuthority
	room      func() error // for another plan
	claimed   func(ctx context.Context, cluster string) error
	directors directorRecords
	consuls   planning.Consuls
}

// services are what can be asked of the director.
type services struct {
	parts
	images   *images.Service
	releases *releases.Service
	mirrors  *mirrors.Service
	upgrades *upgrades.Service
	vms      *vms.Service
	disks    *disks.Service
	clusters *clusters.Service
	journal  *journal.Service
	archives *archives.Service
	capacity *providers.Capacity
	nodes    *nodes.Service
	phases   *phases.Service
	planning *planning.Service
}

func (p parts) roots() *upgrades.Service {
	return upgrades.New(upgrades.Config{
		Dir: p.cfg.UpgradeDir, Inbox: filepath.Join(p.cfg.StateDir, rootdisk.Inbox), Store: p.db, Uploads: p.files,
		Keys: p.cfg.trusted(), Now: time.Now,
	})
}

func (p parts) mirrors() *mirrors.Service {
	return mirrors.New(mirrors.Config{
		Store: p.db, Uploads: p.files, Allow: p.cfg.mirrors(), Own: p.listeners, Log: p.log, Now: time.Now,
		Agent: "director/" + p.director.Version,
	})
}

func newServices(p parts) services {
	kept := disks.New(p.db, p.env.Backends, p.db.DirectorID(), time.Now)
	files := archives.Files{Store: p.db, Dir: filepath.Join(p.cfg.StateDir, "archives"), Host: p.host}
	plans := journal.New(journal.Config{
		Store: p.db, Engine: p.engine, Archives: files, PlanLife: time.Duration(p.cfg.PlanLife), LogPath: p.env.LogPath,
		LogsOf: p.logsOf, Peers: p.peers, Now: time.Now,
	})
	places := snapshot.Bundles{Dirs: p.cfg.rules().Bundles, Imported: p.bundles.Path, Gate: p.env.Gate}
	reader := snapshot.New(snapshot.Config{
		Store: p.db, Backends: p.env.Backends, Clusters: p.env, Director: p.director, Bundles: places,
	})
	making := planning.New(planning.Config{
		Store: p.db, Engine: p.engine, Reader: reader, Plans: plans, Site: p.env, Gate: p.env.Gate,
		Director: p.director.ID, NewID: newPlanID, PlanLife: time.Duration(p.cfg.PlanLife),
		Approval: planning.Approval(p.cfg.Approval), Now: time.Now, Log: p.log,
		CreationsPerHour: p.cfg.CreationsPerHour, ProviderTypes: p.types, Confine: p.cfg.rules(),
		Certificates: p.inventory, Backups: p.backups, Room: p.room, Claimed: p.claimed, Outer: p.outer,
		CopiesDatabase: p.cfg.Database == "",
		FirstBoots:     p.directors, Consuls: p.consuls,
	})
	conf := nodes.Config{
		Store: p.db, Worlds: reader, Clusters: p.env, Plans: making, Director: p.db.DirectorID(),
		PlanLife: time.Duration(p.cfg.PlanLife), Now: time.Now, Log: p.log,
	}
	if p.env.Connect == nil { // nodes that only pretend serve nothing
		conf.Serving = pki.Serving
	}
	members := nodes.New(conf)
	roots := p.roots()
	return services{
		parts: p,
		disks: kept,
		images: images.New(images.Config{
			Store: p.db, Files: p.files, Backends: p.env.Backends, Gate: p.env.Gate, Dirs: p.cfg.rules().Images,
			Now: time.Now,
		}),
		upgrades: roots, mirrors: p.mirrors(),
		releases: releases.New(releases.Config{
			Store: p.db, Uploads: p.files, Files: p.bundles, Gate: p.env.Gate, Places: places, Now: time.Now,
		}),
		vms: vms.New(vms.Config{
			Store: p.db, Backends: p.env.Backends, Clusters: p.env.Clusters, HostKeys: p.env.Keys, Disks: kept,
			Director: p.db.DirectorID(), Now: time.Now,
		}),
		clusters: clusters.New(p.db),
		capacity: providers.NewCapacity(p.db, p.env.Backends, p.db.DirectorID()),
		journal:  plans,
		archives: archives.New(archives.Config{
			Store: p.db, Files: files, Plans: plans, Keys: p.env, LogPath: p.env.LogPath, Support: p.support,
			Form: archives.Form{Plan: planForm, Event: eventForm}, Checkpoint: p.audit.Checkpoint, Now: time.Now,
		}),
		planning: making,
		nodes:    members,
		phases: phases.New(phases.Config{
			Store: p.db, Worlds: reader, Plans: making, Journal: plans, Nodes: members, Upgrades: roots,
			Instance: p.instance, Host: p.host, Held: p.held, Fetch: p.fetch,
			PlanLife: time.Duration(p.cfg.PlanLife), Now: time.Now,
		}),
	}
}

// planForm is the form in which the API shows a plan.
func planForm(v plan.View) any {
	p := wire.PlanOf(v.Plan, v.State)
	p.Waits, p.ExpiresAt = wire.WaitsOf(v.Waits), wire.Optional(v.Expires)
	return p
}

// eventForm is the form in which the API shows an event.
func eventForm(e plan.Event) any { return wire.EventsOf([]plan.Event{e})[0] }

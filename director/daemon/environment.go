package daemon

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/registry"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// environment makes what steps of plans work with.
type environment struct {
	*Daemon
	db    *store.Store
	box   *seal.Box
	hands hands
}

// make makes it, but for what is opened after it.
func (d environment) make(
	ctx context.Context, identity *pki.Server, push bundle.PushOptions, m *metrics.Metrics,
) (steps.Env, error) {
	own, err := d.registry(identity, push)
	if err != nil {
		return steps.Env{}, err
	}
	playbooks, err := d.playbooks(ctx, m)
	if err != nil {
		return steps.Env{}, err
	}
	db, box, h := d.db, d.box, d.hands
	rules := d.cfg.rules()
	backends := newBackends(db, d.log, h.open, d.onStop)
	nodes := h.nodes(backends)
	return steps.Env{
		Installation: steps.Installation{Director: db.DirectorID(), Now: time.Now},
		Clusters: steps.Clusters{
			Keys: steps.Keys{Secrets: db, Sealer: box}, Connect: h.connect, Records: clusterRecords{db}, Access: db,
			Pulls: db, Standing: &steps.Standing{},
		},
		Machines: steps.Machines{
			Ledger: db, Moves: db, Disks: db, Backends: backends, Allowances: d.allowances, Nodes: nodes,
		},
		Sources: steps.Sources{Confine: &rules}, Registry: own, Playbooks: playbooks,
		Suppliers:     steps.Suppliers{Accounts: d.vault(db, box), Issuer: d.issuer},
		BackupTargets: steps.BackupTargets{Backups: d.backups, DirectorBackups: d.saves, Transfer: h.transfer},
		Appliances:    h.appliances(directorRecords{db, d.vault(db, box)}, nodes),
		Journal:       db, Hooks: hooks.Asker{Store: db, Now: time.Now},
	}, nil
}

// registryPort is the port that the registry listens on.
func (c Config) registryPort() (string, error) {
	_, port, err := net.SplitHostPort(c.RegistryListen)
	if err != nil {
		return "", director.Errorf(director.KindInvalid, "daemon.config", "registryListen: %w", err)
	}
	return port, nil
}

// registry is the registry as steps fill it and nodes use it.
func (d environment) registry(identity *pki.Server, push bundle.PushOptions) (steps.Registry, error) {
	port, err := d.cfg.registryPort()
	if err != nil {
		return steps.Registry{}, err
	}
	// never cfg.Address: it may lead to a peer, which does not know the password
	own := netip.MustParseAddr("127.0.0.1")
	if ip, ok := listenIP(d.cfg.RegistryListen); ok {
		own = ip
	}
	return steps.Registry{
		CA: identity.CA, Push: push, PushHost: net.JoinHostPort(own.String(), port), Hold: d.stock.hold,
		Artifacts: d.path("artifacts"), ArtifactsPath: registry.ArtifactsPath, Content: d.images,
	}, nil
}

// playbooks is what runs playbooks, and where they and their logs lie.
func (d environment) playbooks(ctx context.Context, m *metrics.Metrics) (steps.Playbooks, error) {
	runs := d.path("runs")
	runner, err := d.runner(ctx, d.db, m, d.hands, runs)
	if err != nil {
		return steps.Playbooks{}, err
	}
	return steps.Playbooks{
		Player: runner, LocalAddress: (&routes{find: localAddress, now: time.Now}).localAddress,
		Trees: func(hash string) (string, error) {
			dir := d.path("playbooks", hash)
			if _, err := os.Stat(dir); err != nil {
				return "", plan.Park(director.Errorf(
					director.KindNotFound, "daemon.playbooks",
					"this director does not have the playbooks %.12s that the plan was made with: %w", hash, err,
				),
					"copy playbooks/"+hash+
						" into its state directory from a director that has it and retry, or discard the plan and "+
						"plan again")
			}
			return dir, nil
		},
		LogPath: func(planID, step string, attempt int) string {
			return filepath.Join(runs, planID, strings.ReplaceAll(step, "/", "_")+"."+strconv.Itoa(attempt)+".jsonl")
		},
	}, nil
}

// allowances returns how many VMs may be made on the provider, and on all together.
func (d environment) allowances(ctx context.Context, provider string) ([]director.Allowance, error) {
	doc, err := d.db.Document(ctx, model.Ref{Kind: model.KindProvider, Name: provider})
	if err != nil {
		return nil, err
	}
	return planning.Allowances(provider, doc.Provider, d.cfg.CreationsPerHour), nil
}

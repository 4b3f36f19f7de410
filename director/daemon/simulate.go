package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backups"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/recovery"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/shell"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/steady"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// hands is how a director acts on the world. It is chosen once, at the start: nothing else knows whether the world is
// real.
type hands struct {
	open      opener
	draft     providers.Opener                           // of providers that are not stored
	providers []string                                   // types that documents may have
	playbook  string                                     // ansible-playbook, by name or path
	nodes     func(steps.Backends) steps.Nodes           // nil for the real ones
	connect   func(kubeconfig []byte) (steps.API, error) // nil for the real one
	transfer  steps.Transfer                             // nil for the real one
	ring      func(steps.Nodes) steps.Doorbell           // nil for the real one
}

// shells opens shells on nodes.
func (d *Daemon) shells(s services, h hands) *shell.Service {
	return shell.New(shell.Config{
		Store: s.db, Dial: dialer(h, s.env.SSH()), Most: d.cfg.NodeShells, Now: time.Now, Log: d.log,
	})
}

// dialer returns what starts shells on nodes.
func dialer(h hands, access steps.SSHAccess) shell.Dial {
	if h.simulates() {
		return func(_ context.Context, m director.Machine, _ shell.Request) (shell.Terminal, error) {
			return simulate.NewShell(m.Name), nil
		}
	}
	return func(ctx context.Context, m director.Machine, r shell.Request) (shell.Terminal, error) {
		return access.Terminal(ctx, m, r.Actor, r.Size.Cols, r.Size.Rows)
	}
}

// vault opens the sealed accounts of providers.
func (d *Daemon) vault(db *store.Store, box *seal.Box) providers.Vault {
	return providers.Vault{Store: db, Sealer: box, Files: d.cfg.ProviderFiles}
}

// backupService keeps backups of clusters.
func (d *Daemon) backupService(db *store.Store, box *seal.Box, version string) *backups.Service {
	return backups.New(backups.Config{
		Store: db, Box: box, Dirs: d.cfg.rules().Backups, Networks: d.cfg.ProviderNetworks,
		Accounts: d.vault(db, box), Bundle: d.bundler(db, version), Scratch: d.path("extracts"), Now: time.Now,
		Log: d.log,
	})
}

func (d *Daemon) openHands(db *store.Store, box *seal.Box) (hands, error) {
	if !d.cfg.Simulate {
		accounts := d.vault(db, box).Open
		return hands{
			open: openReal(accounts, d.cfg.rules(), d.log), providers: realProviders, playbook: d.cfg.AnsiblePlaybook,
			draft: func(name string, p model.Provider, a providers.Accounts) (hypervisor.Backend, error) {
				return openReal(account(a), d.cfg.rules(), d.log)(name, p)
			},
			nodes: func(steps.Backends) steps.Nodes { return d.nodes },
		}, nil
	}
	s, err := simulate.Open(d.path("simulation"), db.DirectorID(), d.cfg.Simulation)
	if err != nil {
		return hands{}, err
	}
	d.onStop(func(context.Context) error { return s.Close() })
	return hands{
		open: s.Backend,
		draft: func(_ string, p model.Provider, _ providers.Accounts) (hypervisor.Backend, error) {
			return s.Draft(p), nil
		},
		providers: append([]string{model.ProviderSim}, realProviders...), playbook: s.Playbook(),
		nodes:   func(b steps.Backends) steps.Nodes { return simulatedNodes{b, s} },
		ring:    pretendReady,
		connect: func(kubeconfig []byte) (steps.API, error) { return s.Connect(kubeconfig) }, transfer: s,
	}, nil
}

func (h hands) simulates() bool { return slices.Contains(h.providers, model.ProviderSim) }

// appliances are the VMs of other directors. Directors that only pretend are asked as such.
func (h hands) appliances(known steps.Directors, nodes steps.Nodes) steps.Appliances {
	a := steps.Appliances{Directors: known}
	if h.ring != nil {
		a.Ring, a.Steady = h.ring(nodes), steady.Wait{For: time.Millisecond, Every: time.Millisecond}
	}
	return a
}

// pretendReady asks directors that only pretend: they are ready when their VMs have booted.
func pretendReady(nodes steps.Nodes) steps.Doorbell {
	return func(ctx context.Context, m director.Machine, _, _ string) error {
		booted, err := nodes.CloudInit(ctx, m, "")
		if err == nil && booted == "" {
			err = director.Errorf(director.KindUnavailable, "simulate.ready", "%s boots", m.Name)
		}
		return err
	}
}

// simulatedNodes opens the back end first: the document of a provider says how long its VMs take to boot.
type simulatedNodes struct {
	backends   steps.Backends
	simulation *simulate.Simulation
}

// Answers implements steps.Nodes.
func (n simulatedNodes) Answers(ctx context.Context, m director.Machine) (bool, error) {
	if _, err := n.backends.Backend(ctx, m.Provider); err != nil {
		return false, err
	}
	return n.simulation.Answers(ctx, m)
}

// CloudInit implements steps.Nodes.
func (n simulatedNodes) CloudInit(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	if _, err := n.backends.Backend(ctx, m.Provider); err != nil {
		return "", err
	}
	return n.simulation.CloudInit(ctx, m, hostKey)
}

// FirstBoot implements steps.Nodes.
func (n simulatedNodes) FirstBoot(
	ctx context.Context, m director.Machine, hostKey string, again bool,
) (cloudinit.Report, error) {
	return n.simulation.FirstBoot(ctx, m, hostKey, again)
}

// NextHostKey implements steps.Nodes.
func (n simulatedNodes) NextHostKey(ctx context.Context, m director.Machine, hostKey string) (string, error) {
	return n.simulation.NextHostKey(ctx, m, hostKey)
}

// TakeHostKey implements steps.Nodes.
func (n simulatedNodes) TakeHostKey(ctx context.Context, m director.Machine, hostKey, certificate string) error {
	return n.simulation.TakeHostKey(ctx, m, hostKey, certificate)
}

// HostCertificate implements steps.Nodes.
func (n simulatedNodes) HostCertificate(ctx context.Context, m director.Machine) (string, error) {
	return n.simulation.HostCertificate(ctx, m)
}

// Script implements steps.Nodes.
func (n simulatedNodes) Script(ctx context.Context, m director.Machine, hostKey, script string) error {
	return n.simulation.Script(ctx, m, hostKey, script)
}

// markState keeps simulations and real directors off each other's state: a real director must never trust a simulated
// ledger, and a simulation must never run plans of real clusters.
func (d stateOpener) markState() error {
	exists := func(name string) bool {
		_, err := os.Stat(d.path(name))
		return !errors.Is(err, os.ErrNotExist)
	}
	if exists(recovery.Mark) {
		return director.Errorf(
			director.KindConflict, "daemon.state", "a restore into %s was cut off", d.cfg.StateDir,
		).
			WithHint("run it again to its end: director restore -identity KEYFILE BUNDLE")
	}
	marked := exists("simulated")
	// A second director on a database is given the sealing key of the first before it starts; an instance it makes
	// itself.
	real := exists("director.db") || exists("instance") || exists("sealing.key") && d.cfg.Database == ""
	switch {
	case d.cfg.Simulate && !marked && real:
		return director.Errorf(
			director.KindConflict, "daemon.state", "%s is the state of a real director", d.cfg.StateDir,
		).
			WithHint("give the simulation a stateDir of its own")
	case d.cfg.Simulate && !marked:
		if err := os.WriteFile(
			d.path("simulated"), []byte("Nothing in this directory is about real machines.\n"), 0o600,
		); err != nil {
			return director.Errorf(
				director.KindInternal, "daemon.state", "the state directory cannot be marked: %w", err,
			)
		}
	case !d.cfg.Simulate && marked:
		return director.Errorf(
			director.KindConflict, "daemon.state", "%s is the state of a simulation", d.cfg.StateDir,
		).
			WithHint("give the director its own stateDir, or continue the simulation: director simulate")
	}
	return nil
}

// markDatabase is markState for a database that directors share.
func (d stateOpener) markDatabase(ctx context.Context, db *store.Store) error {
	if d.cfg.Database == "" {
		return nil
	}
	const name, real, simulated = "world", "real", "simulated"
	ours := real
	if d.cfg.Simulate {
		ours = simulated
	}
	key, err := db.Meta(ctx, metaKey)
	if err != nil {
		return err
	}
	first := ours
	if key != "" {
		first = real // a director wrote it before databases were marked
	}
	have, err := db.EnsureMeta(ctx, name, first)
	switch {
	case err != nil:
		return err
	case d.cfg.Simulate && have == real:
		return director.Errorf(director.KindConflict, "daemon.database", "the database is that of a real director").
			WithHint("give the simulation a database of its own")
	case !d.cfg.Simulate && have == simulated:
		return director.Errorf(director.KindConflict, "daemon.database", "the database is that of a simulation").
			WithHint("give the director a database of its own")
	}
	return nil
}

// rehearse applies the simulation's documents to a director without a provider.
func (d *Daemon) rehearse(ctx context.Context, db *store.Store, out io.Writer) error {
	if !d.cfg.Simulate || len(d.cfg.Simulation.Documents) == 0 {
		return nil
	}
	have, err := db.Documents(ctx, model.KindProvider)
	if err != nil || len(have) > 0 {
		return err
	}
	docs, notes, err := simulate.Documents(
		ctx, d.cfg.Simulation.WorldDir(d.path("simulation")), d.cfg.Simulation.Documents,
	)
	if err != nil {
		return err
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(out, n); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	for _, doc := range docs {
		b, err := model.Encode(doc)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(b)
	}
	_, err = d.docs.Apply(ctx, "simulation", text.Bytes(), "simulation", false)
	return err
}

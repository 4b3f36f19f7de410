package steps

import (
	"context"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/steady"
)

// Env is all that handlers work with, by topic. Handlers gives each kind of step the topics that it needs; a service
// takes one of them, or an interface of its own that Env implements.
type Env struct {
	Installation
	Clusters
	Machines
	Sources
	Registry
	Playbooks
	Suppliers
	BackupTargets
	Appliances
	Journal   Journal
	Hooks     Hooks     // that plans ask; nil for a director whose plans ask none
	Registrar Registrar // keeps clusters in Consuls; nil for a director that simulates

	facts *factsCache // of the plans that run; nil outside of Handlers
}

// The kinds of steps, each with the topics that it needs.

func (e Env) vms() vmSteps {
	return vmSteps{e.Installation, e.Clusters, e.Machines, e.Appliances, e.facts}
}

func (e Env) kube() kubeSteps { return kubeSteps{e.Installation, e.Clusters, e.Backups} }

func (e Env) keys() keySteps { return keySteps{e.Clusters, e.Suppliers, e.Journal, e.facts} }

func (e Env) sources() sourceSteps { return sourceSteps{e.Installation, e.Machines, e.Sources} }

func (e Env) releases() releaseSteps { return releaseSteps{e.Installation, e.Sources, e.Registry} }

func (e Env) plays() playSteps {
	return playSteps{e.releases(), e.Clusters, e.Playbooks, e.Suppliers, e.facts}
}

func (e Env) backup() backupSteps {
	return backupSteps{e.Installation, e.Keys, e.BackupTargets, e.facts}
}

func (e Env) consul() consulSteps { return consulSteps{e.Keys, e.Registrar, e.facts} }

func (e Env) hooks() hookSteps { return hookSteps{e.Installation, e.Hooks} }

// Installation is the director itself.
type Installation struct {
	Director string // its id, which is in the stamps of its VMs
	Now      func() time.Time
	// Restored is when the bundle was made from which this director was restored; zero for one that never was.
	Restored time.Time
}

// Keys are the secrets of clusters and machines: authorities, keys, passwords, tokens and host keys. They are stored
// sealed, by the uid of a cluster or the id of a machine.
type Keys struct {
	Secrets Secrets
	Sealer  pki.Sealer
}

// Clusters are the clusters that plans work on: their keys, their APIs, and what the director records about them.
type Clusters struct {
	Keys
	Connect  func(kubeconfig []byte) (API, error) // to a cluster's API; over the network if nil
	Standing *Standing                            // clients for looks; each look has its own if nil
	Records  Records
	Access   Access // not kept if nil
	Pulls    Pulls  // not kept if nil
}

// Machines are the VMs of nodes and of other directors: where they are made, how they are reached, and the ledger of
// them.
type Machines struct {
	Ledger   Ledger
	Moves    Moves // of VMs from lost hosts to others; nil for a director that loses none
	Disks    Disks // that outlive their VMs; nil for a director that writes none down
	Backends Backends
	// Allowances returns how many VMs may be made on the provider, and on all together; nil for without bound.
	Allowances func(ctx context.Context, provider string) ([]director.Allowance, error)
	Nodes      Nodes // over SSH if nil
}

// Sources are where images and release bundles come from, and which of them are used.
type Sources struct {
	Images          Images                     // brought to providers; not kept if nil
	Imported        func(sha256 string) string // path of an imported image
	ImportedRelease func(digest string) string // directory of an imported release bundle
	Confine         *confine.Rules             // where images and bundles may lie; anywhere if nil
	Gate            *provenance.Gate           // which images and bundles are used; all if nil
}

// Registry is the director's own registry, from which nodes pull images and fetch programs.
type Registry struct {
	CA       func() string      // PEM of the authorities that nodes trust it by; none if nil
	Push     bundle.PushOptions // how images get into it
	PushHost string             // its host:port as the director sees it
	// Content returns why what it holds cannot be read now; nil where that is on the director's own disk.
	Content func() error
	// Hold keeps images in it that are about to be pushed for the release of that name; nil where nothing removes any.
	Hold func(ctx context.Context, release string, b *bundle.Bundle) error
	// Artifacts is the directory of the plain files that it serves below ArtifactsPath, each below the digest of its
	// bundle.
	Artifacts     string
	ArtifactsPath string
}

// Playbooks are what runs of Ansible on nodes need.
type Playbooks struct {
	Player  Player
	Trees   func(hash string) (string, error) // directory of the unpacked playbooks of that hash
	LogPath func(planID, step string, attempt int) string
	// LocalAddress returns the address from which the director reaches another one; nil where it reaches none.
	LocalAddress func(other netip.Addr) (netip.Addr, bool)

	// rendering has an entry for each run that is being rendered: at most one less than there are cores. Nil is without
	// bound.
	rendering chan struct{}
}

// Suppliers have what clusters are given besides their own keys.
type Suppliers struct {
	Outer    Outer            // authorities that issue those of clusters; none if nil
	Accounts RegistryAccounts // at outer registries; none if nil
	Issuer   IssuerDocuments  // of tokens for clusters; nil for a director that issues none
}

// BackupTargets are where backups go, and how they come from and to machines.
type BackupTargets struct {
	Backups         Backups         // of clusters
	DirectorBackups DirectorBackups // of the director itself; nil for a director that makes none
	Transfer        Transfer        // into and out of machines; over SSH if nil
}

// Appliances are the VMs of other directors.
type Appliances struct {
	Directors Directors // what is known of them
	Ring      Doorbell  // asks them whether they are ready: over the network if nil
	// Steady is how they have to be ready; the zero value is for 20 seconds without a break.
	Steady steady.Wait
}

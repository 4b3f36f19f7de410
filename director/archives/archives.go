// Package archives writes all that is known of a plan, for support, and takes old plans and the old audit trail out of
// the database into files.
package archives

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Support is what archives hold about the director itself.
type Support struct {
	Versions map[string]string
	Config   []byte            // YAML
	Private  []director.Secret // never in an archive, wherever they may have got to
}

// Plans shows plans with their states.
type Plans interface {
	Plan(ctx context.Context, id string) (plan.View, error)
}

// Keys are the secrets of clusters, which are in no archive, and their inventories. steps.Env implements it.
type Keys interface {
	SecretVars(ctx context.Context, f step.Facts) ([]byte, error)
	SSH() steps.SSHAccess
	KnownHostKey(ctx context.Context, machine string) (cloudinit.HostKey, error)
	// ShowInventory renders what a run of the facts would get, without a secret.
	ShowInventory(ctx context.Context, f step.Facts) (inventory.Files, error)
}

// Form gives plans and events the form in which programs know them.
type Form struct {
	Plan  func(plan.View) any
	Event func(plan.Event) any
}

// Config is what New needs.
type Config struct {
	Store *store.Store
	Files Files
	Plans Plans
	Keys  Keys
	Form  Form
	// Support is what archives hold about the director itself; nil for nothing.
	Support func(context.Context) Support
	// LogPath is the file of the log of a step's attempt.
	LogPath func(plan, step string, attempt int) string
	// Checkpoint signs the audit trail at the entry, so that its archive can be verified alone; nil for no signature.
	Checkpoint func(ctx context.Context, seq int64) error
	Now        func() time.Time
}

// Service writes archives. What takes rows out of the database may be ended at any line: a file without its record is
// written again, and a record is written in the transaction that removes the rows. It is safe for concurrent use.
type Service struct{ Config }

// New returns the service.
func New(c Config) *Service { return &Service{c} }

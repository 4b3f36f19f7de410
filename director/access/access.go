// Package access hands out what a person needs to work on a cluster outside of the director: a kubeconfig, the
// inventory, and an export of the inventory with secrets.
package access

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Facts tells what playbooks know of a cluster. Errors: not_found, and conflict for a cluster without machines.
type Facts interface {
	Facts(ctx context.Context, cluster string) (step.Facts, error)
}

// Keys are the keys of clusters, and what is rendered with them. steps.Env implements it.
type Keys interface {
	ClusterPKI(ctx context.Context, uid string) (pki.ClusterPKI, error)
	Inventory(ctx context.Context, f step.Facts) (inventory.Files, error)
	SecretVars(ctx context.Context, f step.Facts) ([]byte, error)
	SSH() steps.SSHAccess
	// Cluster connects to a cluster as the director.
	Cluster(ctx context.Context, uid, name, endpoint string) (steps.API, error)
}

// Service hands out access. It is safe for concurrent use.
type Service struct {
	store *store.Store
	facts Facts
	keys  Keys
	now   func() time.Time
}

// New returns the service.
func New(s *store.Store, f Facts, k Keys, now func() time.Time) *Service {
	return &Service{s, f, k, now}
}

// How long the SSH certificate of an export is good for.
const (
	usualExport   = time.Hour
	longestExport = 12 * time.Hour
)

// Inventory renders what a run on the cluster gets, without a secret. authorized_keys is what a VM needs that another
// program creates for the cluster.
func (s *Service) Inventory(ctx context.Context, cluster string) (map[string][]byte, error) {
	facts, err := s.facts.Facts(ctx, cluster)
	if err != nil {
		return nil, err
	}
	files, err := s.keys.Inventory(ctx, facts)
	if err != nil {
		return nil, err
	}
	line, err := s.keys.SSH().AuthorizedKey(ctx, facts.UID)
	if err != nil {
		return nil, err
	}
	files["authorized_keys"] = []byte(line + "\n")
	return files, nil
}

// ExportInventory returns what a person runs playbooks of the cluster with: the inventory, its secrets, and an SSH key
// with a certificate that is good for that long; zero is for an hour. It is audited before anything is handed out.
// Errors: invalid for a life that is too long.
func (s *Service) ExportInventory(
	ctx context.Context, actor, cluster string, life time.Duration,
) (map[string][]byte, error) {
	const op = "access.export_inventory"
	if life = cmp.Or(life, usualExport); life < time.Minute || life > longestExport {
		return nil, director.Invalid(op, "the certificate cannot be good for that long", []director.Field{{
			Path: "ttl_seconds", Msg: fmt.Sprintf("is not between %s and %s", time.Minute, longestExport),
			Hint: "export again when it has ended",
		}})
	}
	facts, err := s.facts.Facts(ctx, cluster)
	if err != nil {
		return nil, err
	}
	files, err := s.Inventory(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if files["secrets.json"], err = s.keys.SecretVars(ctx, facts); err != nil {
		return nil, err
	}
	login, err := s.keys.SSH().Export(ctx, facts.UID, actor, life)
	if err != nil {
		return nil, err
	}
	files["id_ed25519"], files["id_ed25519-cert.pub"] = []byte(login.Private.Reveal()), []byte(login.Certificate+"\n")
	old, err := s.keys.SSH().Old(ctx, facts.Nodes)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		files["nodes-without-certificates.txt"] = []byte("# These nodes may accept no certificate. Replace them, or " +
			"reach them with an administrator's key (sshKeys).\n" +
			strings.Join(old, "\n") + "\n")
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, "export secrets", "Cluster/"+cluster)
	})
	if err != nil {
		return nil, err
	}
	return files, nil
}

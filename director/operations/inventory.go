package operations

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// How long the SSH certificate of an export is good for.
const (
	usualExport   = time.Hour
	longestExport = 12 * time.Hour
)

// Inventory renders what a run on the cluster gets, without a secret. In authorized_keys is what a VM needs that
// somebody else makes for the cluster.
func (o *Operations) Inventory(ctx context.Context, cluster string) (map[string][]byte, error) {
	facts, err := o.inventoryFacts(ctx, cluster)
	if err != nil {
		return nil, err
	}
	files, err := o.Env.Inventory(ctx, facts)
	if err != nil {
		return nil, err
	}
	line, err := o.Env.SSH().AuthorizedKey(ctx, facts.UID)
	if err != nil {
		return nil, err
	}
	files["authorized_keys"] = []byte(line + "\n")
	return files, nil
}

// ExportInventory returns what a person runs playbooks of the cluster with: the inventory, its secrets, and an SSH key
// with a certificate that is good for that long; zero is for an hour. It is audited before anything is handed out.
// Errors: invalid for a life that is too long.
func (o *Operations) ExportInventory(ctx context.Context, actor, cluster string, life time.Duration) (map[string][]byte, error) {
	const op = "operations.export_inventory"
	if life = cmp.Or(life, usualExport); life < time.Minute || life > longestExport {
		return nil, director.Invalid(op, "the certificate cannot be good for that long", []director.Field{{
			Path: "ttl_seconds", Msg: fmt.Sprintf("is not between %s and %s", time.Minute, longestExport), Hint: "export again when it has ended",
		}})
	}
	facts, err := o.inventoryFacts(ctx, cluster)
	if err != nil {
		return nil, err
	}
	files, err := o.Inventory(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if files["secrets.json"], err = o.Env.SecretVars(ctx, facts.UID); err != nil {
		return nil, err
	}
	login, err := o.Env.SSH().Export(ctx, facts.UID, actor, life)
	if err != nil {
		return nil, err
	}
	files["id_ed25519"], files["id_ed25519-cert.pub"] = []byte(login.Private.Reveal()), []byte(login.Certificate+"\n")
	old, err := o.Env.SSH().Old(ctx, facts.Nodes)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		files["nodes-without-certificates.txt"] = []byte("# These nodes may accept no certificate. Replace them, or reach them with an administrator's key (sshKeys).\n" +
			strings.Join(old, "\n") + "\n")
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(o.Now(), actor, "export secrets", "Cluster/"+cluster) })
	if err != nil {
		return nil, err
	}
	return files, nil
}

func (o *Operations) inventoryFacts(ctx context.Context, cluster string) (planner.Facts, error) {
	w, err := o.world(ctx, cluster)
	if err != nil {
		return planner.Facts{}, err
	}
	if w.NoBundle != nil {
		return planner.Facts{}, w.NoBundle
	}
	facts := planner.FactsOf(w)
	if len(facts.Nodes) == 0 {
		return planner.Facts{}, director.Errorf(director.KindConflict, "operations.inventory", "cluster %s has no machines yet", cluster).
			WithHint("start a plan for it first")
	}
	return facts, nil
}

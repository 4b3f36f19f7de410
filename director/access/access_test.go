package access

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// keys has the authorities of one cluster, and renders nothing.
type keys struct{ authorities pki.ClusterPKI }

func (k keys) ClusterPKI(context.Context, string) (pki.ClusterPKI, error) { return k.authorities, nil }

func (keys) Inventory(context.Context, step.Facts) (inventory.Files, error) {
	return nil, director.Errorf(director.KindInternal, "test", "nothing is rendered")
}
func (keys) SecretVars(context.Context, step.Facts) ([]byte, error) { return nil, nil }
func (keys) SSH() steps.SSHAccess                                   { return steps.SSHAccess{} }
func (keys) Cluster(context.Context, string, string, string) (steps.API, error) {
	return nil, director.Errorf(director.KindUnavailable, "test", "nothing answers")
}

// noFacts knows no cluster.
type noFacts struct{}

func (noFacts) Facts(_ context.Context, cluster string) (step.Facts, error) {
	return step.Facts{}, director.Errorf(director.KindNotFound, "test", "there is no cluster %s", cluster)
}

func TestAccessIsRefused(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	docs, err := model.Parse(
		[]byte(
			"apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: new}\nspec: {release: r, provider: p, image: i, "+
				"network: n}\n",
		),
		"test",
	)
	if err == nil {
		err = db.Update(t.Context(), func(tx *store.Tx) error { return tx.PutDocument(docs[0], "ann", time.Now()) })
	}
	if err != nil {
		t.Fatal(err)
	}
	s := New(db, noFacts{}, keys{}, time.Now)
	export := func(life time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.ExportInventory(ctx, "ann", "new", life); return err }
	}
	kubeconfig := func(cluster string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := s.Kubeconfig(ctx, "ann", cluster, time.Hour); return err }
	}
	for name, c := range map[string]struct {
		ask  func(context.Context) error
		kind director.Kind
		says string
	}{
		"a certificate that lives too long": {
			export(longestExport + time.Second), director.KindInvalid, "ttl_seconds",
		},
		"one that ends at once":                {export(time.Second), director.KindInvalid, "ttl_seconds"},
		"an inventory without machines":        {export(0), director.KindNotFound, "new"},
		"a kubeconfig of what is not there":    {kubeconfig("none"), director.KindNotFound, "none"},
		"a kubeconfig before the installation": {kubeconfig("new"), director.KindConflict, "not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.ask(t.Context()); director.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s with %q", err, c.kind, c.says)
			}
		})
	}
}

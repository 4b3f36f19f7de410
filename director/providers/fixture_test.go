package providers

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// fixture is a service on a database of its own, with a pretended provider lab that has two hosts.
type fixture struct {
	*Service
	dir   string
	db    *store.Store
	box   *seal.Box
	world *sim.World
}

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir()}
	var err error
	if f.db,
		err = store.Open(t.Context(), filepath.Join(f.dir, "director.db"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.db.Close() })
	if f.box, err = seal.Open(filepath.Join(f.dir, "sealing.key"), true); err != nil {
		t.Fatal(err)
	}
	f.world = sim.NewWorld(sim.Host{
		Name: "h1", CPUs: 4, Memory: 8 << 30, Disk: 1 << 40,
	}, sim.Host{Name: "h2", CPUs: 4, Memory: 8 << 30, Disk: 1 << 40})
	f.Service = New(Config{
		Vault: Vault{Store: f.db, Sealer: f.box}, Backends: oneBackend{sim.Open(f.world)}, Director: f.db.DirectorID(),
		Now: time.Now,
	})
	f.put(t, "kind: Provider\nmetadata: {name: lab}\nspec: {type: sim, sim: {hosts: [{name: h1}, {name: h2}]}}\n")
	return f
}

// put stores a document, without its first line.
func (f *fixture) put(t *testing.T, text string) model.Document {
	t.Helper()
	docs, err := model.Parse([]byte("apiVersion: kaas/v1\n"+text), "test")
	if err == nil {
		err = f.db.Update(t.Context(), func(tx *store.Tx) error { return tx.PutDocument(docs[0], "ann", time.Now()) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return docs[0]
}

// oneBackend is the back end of every provider.
type oneBackend struct{ b hypervisor.Backend }

func (o oneBackend) Backend(context.Context, string) (hypervisor.Backend, error) { return o.b, nil }

func wantKind(t *testing.T, err error, kind director.Kind, words ...string) {
	t.Helper()
	if err == nil || director.KindOf(err) != kind {
		t.Fatalf("got %v, want %s", err, kind)
	}
	text := err.Error() + " " + director.HintOf(err)
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

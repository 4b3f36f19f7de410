package claims

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// cluster is one that keeps a claim. It stands between directors, as its API does.
type cluster struct {
	claim   director.Claim
	version int
}

func (c *cluster) Claim(context.Context) (director.Claim, string, error) {
	if c.version == 0 {
		return director.Claim{}, "", nil
	}
	return c.claim, strconv.Itoa(c.version), nil
}

func (c *cluster) PutClaim(_ context.Context, claim director.Claim, version string) error {
	if _, has, _ := c.Claim(context.Background()); has != version {
		return director.Errorf(director.KindConflict, "test", "another claim")
	}
	c.claim, c.version = claim, c.version+1
	return nil
}

func (c *cluster) Close() {}

// copyOf is a director with a database of its own.
type copyOf struct {
	*Service
	db     *store.Store
	paused []string
}

func (c *copyOf) pass(t *testing.T) {
	t.Helper()
	if err := c.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (c *copyOf) wantRefused(t *testing.T, want bool) {
	t.Helper()
	err := c.Check(t.Context(), "demo")
	if want && (director.KindOf(err) != director.KindConflict || !strings.Contains(director.HintOf(err),
		"take-over")) ||
		!want && err != nil {
		t.Errorf("%s: refused=%t, got %v", c.Own.Run, want, err)
	}
}

// begin starts a director on the database in the directory.
func begin(t *testing.T, dir, run string, on *cluster) *copyOf {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.BeginRun(t.Context(), run, "host-"+run, time.Now()); err != nil {
		t.Fatal(err)
	}
	c := &copyOf{db: db}
	c.Service = New(Config{
		Store: db, Own: director.Claim{Director: db.DirectorID(), Run: run, Host: "host-" + run}, Now: time.Now,
		Connect: func(context.Context, string, string, string) (Cluster, error) { return on, nil },
		Pause: func(_ context.Context, cluster, reason string) error {
			c.paused = append(c.paused, cluster+": "+reason)
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	return c
}

// install has the database know the cluster demo.
func (c *copyOf) install(t *testing.T) {
	t.Helper()
	doc := model.Document{
		Kind: model.KindCluster, Metadata: model.Metadata{Name: "demo"}, Cluster: &model.Cluster{Release: "r"},
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.db.Update(t.Context(), func(tx *store.Tx) error { return tx.PutDocument(doc, "admin", time.Now()) }))
	stored, err := c.db.Document(t.Context(), doc.Ref())
	must(err)
	must(c.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{
			UID: stored.UID, Name: "demo", Generation: 1, Document: doc, Endpoint: "10.0.0.1:6443", At: time.Now(),
		})
	}))
}

// twin copies the database, as a copied disk does, and starts a director on it.
func (c *copyOf) twin(t *testing.T, run string, on *cluster) *copyOf {
	t.Helper()
	dir := t.TempDir()
	if err := c.db.Backup(t.Context(), filepath.Join(dir, "director.db")); err != nil {
		t.Fatal(err)
	}
	return begin(t, dir, run, on)
}

// Of two copies of one director the one that wrote first finds out, pauses what runs and refuses the rest. A person
// decides which of them works on, as often as needed.
func TestTwoCopiesOnDatabasesOfTheirOwn(t *testing.T) {
	t.Parallel()
	on := &cluster{}
	first := begin(t, t.TempDir(), "r1", on)
	first.install(t)
	first.pass(t)
	if on.claim != first.Own {
		t.Fatalf("the claim is %+v", on.claim)
	}
	second := first.twin(t, "r2", on)
	second.pass(t)
	for range 2 { // the former one does not write over it
		first.pass(t)
		second.pass(t)
	}
	first.wantRefused(t, true)
	second.wantRefused(t, false)
	if want := "demo: another copy of this director works on the cluster, on machine host-r2"; !slices.Equal(
		first.paused, []string{want, want},
	) {
		t.Errorf("paused: %q", first.paused)
	}
	if n, err := first.db.CountClaimedElsewhere(t.Context()); err != nil || n != 1 {
		t.Errorf("%d clusters, %v", n, err)
	}

	for _, decided := range []struct{ goes, stays *copyOf }{{first, second}, {second, first}} {
		if err := decided.goes.db.TakeOver(t.Context(), "root", time.Now()); err != nil {
			t.Fatal(err)
		}
		decided.goes.wantRefused(t, true) // until its claim is in the cluster
		for range 2 {
			decided.goes.pass(t)
			decided.stays.pass(t)
		}
		decided.goes.wantRefused(t, false)
		decided.stays.wantRefused(t, true)
	}
}

// Directors on one database, and later starts of one, know each other's claims.
func TestDirectorsOfOneDatabaseAreNoCopies(t *testing.T) {
	t.Parallel()
	on, dir := &cluster{}, t.TempDir()
	first := begin(t, dir, "r1", on)
	first.install(t)
	second := begin(t, dir, "r2", on)
	for range 2 {
		first.pass(t)
		second.pass(t)
	}
	first.wantRefused(t, false)
	second.wantRefused(t, false)
	if on.claim != second.Own || on.version != 2 { // the newer one's, written once
		t.Errorf("the claim is %+v after %d writes", on.claim, on.version)
	}
}

// quiet is a store that nothing about claims is to be written into.
type quiet struct {
	Store
	t *testing.T
}

func (q quiet) SettleClaim(_ context.Context, cluster string, _ int64) error {
	q.t.Errorf("the claim of %s was noted again", cluster)
	return nil
}

// A director looks at all clusters three times a minute, and writes nothing while its claims are where they were.
func TestClaimsThatStayAreNotNotedAgain(t *testing.T) {
	t.Parallel()
	on := &cluster{}
	d := begin(t, t.TempDir(), "r1", on)
	d.install(t)
	d.pass(t)
	d.Store = quiet{d.Store, t}
	d.pass(t)
	if on.version != 1 {
		t.Errorf("the claim was written %d times", on.version)
	}
}

// A director that was restored from a bundle takes over once. Its former self, were it still there, finds out.
func TestRestoredDirectorTakesOver(t *testing.T) {
	t.Parallel()
	on := &cluster{}
	first := begin(t, t.TempDir(), "r1", on)
	first.install(t)
	restored := first.twin(t, "r3", on)
	first.pass(t) // a claim that the bundle knows, and the next start of the lost one, which it does not know
	on.claim.Run = "r2"
	for i := range 2 {
		done, err := restored.db.TakeOverRestored(t.Context(), "a bundle", time.Now())
		if err != nil || done != (i == 0) {
			t.Errorf("%d: %v, %v", i, done, err)
		}
		restored.pass(t)
		restored.wantRefused(t, false)
	}
	first.pass(t)
	first.wantRefused(t, true)
	on.claim.Run = "r2" // a former one that is not gone takes over by itself no more than this one does
	restored.pass(t)
	restored.wantRefused(t, true)
}

// Who administers a cluster can write anything into its claim. It stops plans on that cluster alone.
func TestClaimsOfStrangers(t *testing.T) {
	t.Parallel()
	on := &cluster{}
	first := begin(t, t.TempDir(), "r1", on)
	first.install(t)
	for name, claim := range map[string]director.Claim{
		"long and with lines": {Director: "d", Run: strings.Repeat("é", 500), Host: "a\nb\x1b[2J"},
		"another director":    {Director: "d-other", Run: "r1", Host: "elsewhere"},
	} {
		on.claim, on.version = claim, on.version+1
		first.pass(t)
		first.wantRefused(t, true)
		if text := first.Check(t.Context(), "demo").Error(); len(text) > 500 || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%s: %q", name, text)
		}
		if err := first.Check(t.Context(), "other"); err != nil {
			t.Errorf("%s: another cluster: %v", name, err)
		}
	}
	on.claim, on.version = director.Claim{}, on.version+1 // the claim was removed
	first.pass(t)
	first.wantRefused(t, false)
	on.claim.Run = "\x00\n" // nothing that can be shown is no claim
	first.pass(t)
	first.wantRefused(t, false)
}

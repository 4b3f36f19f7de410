package archives

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
)

// lab is a director that archives.
type lab struct {
	*servicetest.Lab
	*Service
}

// open returns a lab with so many clusters of a worker each.
func open(t *testing.T, clusters int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, 1)
	files := Files{Store: l.Store, Dir: filepath.Join(l.Dir, "archives"), Host: "here"}
	return &lab{l, New(Config{
		Store: l.Store, Files: files, Keys: l.Env, Now: time.Now,
		Plans: journal.New(journal.Config{Store: l.Store, Archives: files, Now: time.Now}),
		Form:  Form{Plan: func(v plan.View) any { return v }, Event: func(e plan.Event) any { return e }},
		LogPath: func(id, step string, _ int) string {
			return filepath.Join(l.Dir, "runs", id, strings.ReplaceAll(step, "/", "_")+".1.jsonl")
		},
		Support: func(context.Context) Support {
			return Support{Private: []director.Secret{"correct horse battery"}}
		},
	})}
}

// openPlans returns a lab with a plan that is done and whose log quotes a secret of the director.
func openPlans(t *testing.T) *lab {
	t.Helper()
	l := open(t, 1)
	ctx := t.Context()
	if err := l.AddPlan(ctx, "p1", true, l.Made["c000-w-1"]); err != nil {
		t.Fatal(err)
	}
	const step = "vm.ensure/c000-w-1"
	log := l.LogPath("p1", step, 1)
	err := errors.Join(
		l.Store.Update(ctx, func(tx *store.Tx) error {
			_, s, err := tx.Plan("p1")
			for _, k := range []plan.EventKind{plan.Started, plan.Succeeded} {
				err = errors.Join(
					err, tx.Append(&s, plan.Event{Plan: "p1", Step: step, Attempt: 1, Kind: k, At: time.Now()}),
				)
			}
			return err
		}),
		l.EndPlan(ctx, "p1", plan.PlanDone), os.MkdirAll(filepath.Dir(log), 0o700),
		os.WriteFile(log, []byte(`{"said": "it is correct horse battery"}`+"\n"), 0o600),
	)
	if err == nil {
		err = l.AddPlan(ctx, "p2", true, l.Made["c000-w-1"]) // a plan that was started after it
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) all(t *testing.T, want int64) {
	t.Helper()
	later := time.Now().Add(time.Hour)
	n, bytes, err := l.ArchivePlans(t.Context(), "director", later, later, 100)
	if err != nil || n != want || (bytes > 0) != (want > 0) {
		t.Fatalf("archived %d plans of %d bytes, %v, want %d", n, bytes, err, want)
	}
}

// An archived plan is shown as it was, out of a file that only the director can read, that holds no secret, and that is
// known by its checksum.
func TestArchivedPlan(t *testing.T) {
	t.Parallel()
	l := openPlans(t)
	before, err := l.Plans.Plan(t.Context(), "p1")
	if err != nil {
		t.Fatal(err)
	}
	l.all(t, 1)
	l.all(t, 0)
	if _, _, err := l.Files.Store.Plan(t.Context(), "p1"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("it is in the database: %v", err)
	}
	after, err := l.Plans.Plan(t.Context(), "p1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before.Plan, after.Plan); diff != "" {
		t.Errorf("the plan (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before.State, after.State); diff != "" {
		t.Errorf("its state (-before +after):\n%s", diff)
	}
	file := filepath.Join(l.Files.Dir, "plans", "p1.tar.gz")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	write, err := l.Archive(t.Context(), "admin", "p1")
	var text bytes.Buffer
	if err := errors.Join(err, write(&text)); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = eachFile(text.Bytes(), func(name string, from io.Reader) error {
		text, err := io.ReadAll(from)
		got[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if log := got["plan-p1/logs/vm.ensure_c000-w-1.1.jsonl"]; !strings.Contains(log, "it is") ||
		strings.Contains(log, "horse") {
		t.Errorf("the log says %q", log)
	}
	if n := strings.Count(got["plan-p1/events.jsonl"], "\n"); n != 4 {
		t.Errorf("it has %d events", n)
	}
	if _, _, err := l.Files.Store.Plan(t.Context(), "p1"); director.KindOf(err) == "" ||
		!strings.Contains(err.Error(), "archived") {
		t.Errorf("the database has an archived plan: %v", err)
	}

	// Damaged, and then on another director.
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Plans.Plan(t.Context(), "p1"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged archive: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err = l.Plans.Plan(t.Context(), "p1")
	servicetest.WantKind(t, err, director.KindNotFound, "archived", file, "host here", "ask the director on that host")
}

// A director that dies after the file, and before the rows are gone, comes to the same end.
func TestArchiveOfADirectorThatDied(t *testing.T) {
	t.Parallel()
	l := openPlans(t)
	if _, err := l.writePlan(t.Context(), "p1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Files.Dir, "plans", "p1.tar.gz.tmp"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := l.Plans.Plan(t.Context(), "p1"); err != nil || v.State.Status != plan.StatusDone {
		t.Fatalf("before the rows are gone: %+v, %v", v.State, err)
	}
	l.all(t, 1)
	if v, err := l.Plans.Plan(t.Context(), "p1"); err != nil || v.State.Status != plan.StatusDone {
		t.Errorf("out of the archive: %+v, %v", v.State, err)
	}
	files, err := filepath.Glob(filepath.Join(l.Files.Dir, "plans", "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("left are %v, %v", files, err)
	}
}

// Whole months of the audit trail go to files that are never written to again; younger entries stay.
func TestArchiveOfTheAuditTrail(t *testing.T) {
	t.Parallel()
	l := open(t, 0)
	ctx := t.Context()
	add := func(object string, at time.Time) {
		t.Helper()
		if err := l.Files.Store.Update(ctx, func(tx *store.Tx) error {
			return tx.Audit(at, "ann", "apply", object)
		}); err != nil {
			t.Fatal(err)
		}
	}
	january := time.Date(2025, 1, 31, 23, 59, 0, 0, time.UTC)
	for n := range 1500 { // more than a page
		add("Network/january", january.Add(-time.Duration(n)*time.Minute))
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	l.Checkpoint = func(ctx context.Context, seq int64) error {
		hash, err := l.Files.Store.AuditHash(ctx, seq)
		c := chain.Checkpoint{Director: l.Files.Store.DirectorID(), Seq: seq, Hash: hash, At: january}.Sign(key)
		return errors.Join(err, l.Files.Store.AddCheckpoint(ctx, c))
	}
	file := filepath.Join(l.Files.Dir, "audit", "audit-2025-01.jsonl.gz")
	cut := func(w io.Writer) error { // a director dies between the file and the rows
		zip := gzip.NewWriter(w)
		_, _, err := l.Files.Store.WriteAudit(ctx, zip, 0, 1500, l.Checkpoint)
		return errors.Join(err, zip.Close())
	}
	if _, err := l.Files.write(filepath.Join("audit", filepath.Base(file)), time.Now(), true, cut); err != nil {
		t.Fatal(err)
	}
	n, err := l.ArchiveAudit(ctx, time.Date(2025, 3, 15, 0, 0, 0, 0, time.UTC))
	if err != nil || n != 1500 {
		t.Fatalf("archived %d entries, %v", n, err)
	}
	first, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if r := verifyAlone(t, l.Files.Store, key, file); !r.Good() || r.Entries != 1500 || r.Signed != 1500 {
		t.Errorf("the file alone: %+v", r)
	}
	if sum, err := os.ReadFile(
		file + ".sha256",
	); err != nil || !strings.HasSuffix(string(sum), "  audit-2025-01.jsonl.gz\n") {
		t.Errorf("its checksum is %q, %v", sum, err)
	}
	// Somebody's clock was wrong: a late entry of January goes to a file of its own.
	add("Network/late", january)
	if n, err := l.ArchiveAudit(ctx, time.Date(2025, 3, 15, 0, 0, 0, 0, time.UTC)); err != nil || n != 1 {
		t.Errorf("archived %d late entries, %v", n, err)
	}
	again, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("the first file has changed, %v", err)
	}
	second := filepath.Join(l.Files.Dir, "audit", "audit-2025-01.2.jsonl.gz")
	if r := verifyAlone(t, l.Files.Store, key, second); !r.Good() || r.First != 1501 || r.Signed != 1501 {
		t.Errorf("the second file alone: %+v", r)
	}
	// The database was restored from a copy of then, which has the month again, and less of it.
	add("Network/copy", january)
	if _, err := l.Files.Store.SQL().ExecContext(ctx, "DELETE FROM audit_archives"); err != nil {
		t.Fatal(err)
	}
	if n, err := l.ArchiveAudit(ctx, time.Date(2025, 3, 15, 0, 0, 0, 0, time.UTC)); err != nil || n != 1 {
		t.Errorf("archived %d entries of the copy, %v", n, err)
	}
	if again, err = os.ReadFile(file); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the first file has changed, %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(l.Files.Dir, "audit", "*.gz")); err != nil || len(files) != 3 {
		t.Errorf("there are %v, %v", files, err)
	}
	// Behind an entry that stays, a late one stays, too: the file of a month is a part of the chain without a gap.
	add("Network/march", january.AddDate(0, 0, 30))
	add("Network/later", january)
	if n, err := l.ArchiveAudit(ctx, time.Date(2025, 3, 15, 0, 0, 0, 0, time.UTC)); err != nil || n != 0 {
		t.Errorf("archived %d entries out of their order, %v", n, err)
	}
	if oldest, err := l.Files.Store.OldestAudit(ctx); err != nil || oldest.Month() != time.March {
		t.Errorf("the oldest entry is of %s, %v", oldest, err)
	}
}

// verifyAlone verifies an archive of the audit trail with nothing but the public key and the installation's id.
func verifyAlone(t *testing.T, db *store.Store, private ed25519.PrivateKey, file string) chain.Result {
	t.Helper()
	key := chain.Key{Installation: db.DirectorID(), Public: private.Public().(ed25519.PublicKey)}
	r, err := chain.VerifyLines(func() (io.ReadCloser, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = f.Close() })
		return gzip.NewReader(f)
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

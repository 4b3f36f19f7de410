package notifications_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/mail/mailtest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/notifications"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/test/program"
)

// childDir tells the test's own binary to be a process that tells people, on the state in the directory.
const childDir = "NOTIFICATIONS_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		serve(dir)
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// tests are those of the package, with a PostgreSQL server for those that want one.
type tests struct{ m *testing.M }

func (t tests) Run() int { return storetest.Main(t.m) }

// written is a world in a file: the ids of plans that failed.
type written struct {
	world
	file string
}

func (w *written) Waits(context.Context) ([]notifications.Wait, error) {
	text, err := os.ReadFile(w.file)
	if err != nil {
		return nil, err
	}
	var ids []string
	err = json.Unmarshal(text, &ids)
	out := make([]notifications.Wait, len(ids))
	for i, id := range ids {
		out[i] = notifications.Wait{Plan: id, Cluster: "demo", Status: plan.StatusFailed, Reason: "it is failed"}
	}
	return out, err
}

// serve looks and sends until it is killed.
func serve(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	db, err := store.Open(ctx, filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	fail(err)
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	fail(err)
	s := notifications.New(notifications.Config{
		Store: db, Sealer: box, World: &written{file: filepath.Join(dir, "world")}, Accounts: &accounts{password},
		Observer: unobserved{}, URL: "https://director.test", Own: func() []netip.AddrPort { return nil },
		Instance: "one", Version: "test", Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	fmt.Println("runs")
	for {
		fail(s.Tick(ctx))
	}
}

var (
	messageID = regexp.MustCompile(`(?m)^Message-ID: <([^@]+)@`)
	planOf    = regexp.MustCompile(`/plans/(k[0-9]+)`)
)

// A process that tells people may be killed at any line: nothing is lost, and what comes twice has one id.
func TestKills(t *testing.T) {
	t.Parallel()
	// All failures fit in one message, which lists 30: a slow process may tell them all at once.
	const rounds, failures = 15, 2
	dir := t.TempDir()
	child := childDir + "=" + dir
	world := func(ids []string) {
		t.Helper()
		text, _ := json.Marshal(ids)
		if err := os.WriteFile(filepath.Join(dir, "next"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "world")); err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := openOn(t, db)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	n := l.mails(server, "ann@example.org", "bob@example.org")
	l.now = time.Now()
	l.apply(n)
	short := model.Document{Kind: model.KindNotification, Metadata: model.Metadata{Name: "oncall"}, Notification: &n}
	n.Group, n.Mail.TLS = 1, model.MailStartTLS // a nanosecond, which no document may say
	if err := db.Update(t.Context(),
		func(tx *store.Tx) error { return tx.PutDocument(short, "t", l.now) }); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range rounds {
		for range failures {
			ids = append(ids, fmt.Sprintf("k%d", len(ids)))
		}
		world(ids)
		program.KilledAfter(t, child, time.Duration(rand.IntN(500))*time.Millisecond)
	}
	// The last one is left alone until all is told.
	program.Killed(t, child, func() bool {
		list, err := db.NotificationMessages(t.Context(), "oncall", "", 500)
		told := 0
		for _, m := range list {
			if m.State == director.NotificationSent {
				told += len(m.Items) + m.More
			}
		}
		return err != nil || told >= len(ids)
	})
	byPlan := map[string]map[string]bool{}
	for _, m := range server.Got() {
		id := messageID.FindStringSubmatch(m.Text)
		_, text := read(t, m)
		for _, p := range planOf.FindAllStringSubmatch(text, -1) {
			of := p[1] + " to " + m.To[0]
			if byPlan[of] == nil {
				byPlan[of] = map[string]bool{}
			}
			byPlan[of][id[1]] = true
		}
	}
	for _, id := range ids {
		for _, to := range n.Mail.To {
			if got := byPlan[id+" to "+to]; len(got) != 1 {
				t.Errorf("%s told %s in %d messages: %v", id, to, len(got), got)
			}
		}
	}
	t.Logf("%d mails for %d failures", len(server.Got()), len(ids))
}

// On a PostgreSQL, which directors share, people are told as on a database of one.
func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db, err := store.OpenPostgres(
		t.Context(), store.Postgres{URL: storetest.Postgres(t)}, slog.New(slog.DiscardHandler),
	)
	if err != nil {
		t.Fatal(err)
	}
	l := openOn(t, db)
	server := l.smtp(mailtest.Options{User: "director", Password: password})
	l.apply(l.mails(server, "ann@example.org"))
	two := l.another("two")
	l.world.waits = []notifications.Wait{l.wait("p1", plan.StatusFailed, "it is failed")}
	l.after(0)
	if err := two.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.world.waits = append(l.world.waits, l.wait("p2", plan.StatusFailed, "it is failed"))
	l.after(6 * time.Minute)
	l.world.waits = nil
	l.after(2 * time.Hour)
	count(t, "two failures", server, 1)
	counts, err := db.CountNotifications(t.Context())
	if m := l.messages(); err != nil || len(m) != 1 || len(m[0].Items) != 2 || counts["sent"] != 1 {
		t.Errorf("the outbox has %+v, %v, %v", m, counts, err)
	}
	if err := db.PruneNotifications(t.Context(), nil, l.now); err != nil || len(l.messages()) != 0 {
		t.Errorf("%d messages are left, %v", len(l.messages()), err)
	}
}

package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type lab struct {
	*Service
	db    *store.Store
	clock *clock
	again func() *Service // another director, or the same after a restart
}

func each(t *testing.T, test func(t *testing.T, l lab)) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (*store.Store, error){
		"sqlite": func(t *testing.T) (*store.Store, error) {
			return store.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), slog.New(slog.DiscardHandler))
		},
		"postgres": func(t *testing.T) (*store.Store, error) {
			at := store.Postgres{URL: storetest.Postgres(t)}
			return store.OpenPostgres(t.Context(), at, slog.New(slog.DiscardHandler))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
			if err != nil {
				t.Fatal(err)
			}
			c := &clock{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			again := func() *Service {
				s, err := New(t.Context(), Config{Store: db, Sealer: box, Now: c.now})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			test(t, lab{again(), db, c, again})
		})
	}
}

func (l lab) rows(t *testing.T) []chain.Entry {
	t.Helper()
	rows, err := l.db.AuditPage(t.Context(), 0, 1<<40, 10000)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func (l lab) verify(t *testing.T, s *Service) chain.Result {
	t.Helper()
	r, err := s.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func try(t *testing.T, s *Service, address, user string, err error) {
	t.Helper()
	ctx := director.WithOrigin(t.Context(), director.Origin{Address: address, Request: "r"})
	a := Attempt{Action: "login", Object: "User/" + user, Err: err}
	if err == nil {
		a.Actor = user
	}
	if err := s.Attempt(ctx, a); err != nil {
		t.Fatal(err)
	}
}

var errWrong = director.Errorf(director.KindUnauthenticated, "test", "wrong")

// A flood of refused logins gets a few entries and a count.
func TestFloodIsCounted(t *testing.T) {
	each(t, func(t *testing.T, l lab) {
		for n := range 3000 {
			try(t, l.Service, "192.0.2.1", fmt.Sprintf("u%d", n), errWrong)
			try(t, l.Service, fmt.Sprintf("2001:db8::%x", n), "one network", errWrong)
			try(t, l.Service, fmt.Sprintf("198.51.%d.%d", n/250, n%250), "many\n\x1b[2Jnetworks", errWrong)
		}
		try(t, l.Service, "203.0.113.1", "ann", nil) // is not held up
		l.clock.pass(time.Minute)
		if err := l.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows := l.rows(t)
		if most := (strangers + 1) * (strangerEach + 1); len(rows) > most+1 {
			t.Errorf("%d entries, want at most %d", len(rows), most+1)
		}
		var refused, ok int64
		for _, e := range rows {
			if e.Outcome == chain.Refused {
				refused += e.Count
			} else if e.Actor == "ann" && e.Source == "203.0.113.1" && e.Outcome == chain.OK {
				ok++
			}
			if strings.ContainsAny(e.Object, "\n\x1b") {
				t.Errorf("a terminal would obey %q", e.Object)
			}
		}
		if refused != 9000 || ok != 1 {
			t.Errorf("the trail has %d refused attempts and %d good ones", refused, ok)
		}
		if r := l.verify(t, l.Service); !r.Good() || r.Last != int64(len(rows)) {
			t.Errorf("%+v", r)
		}
	})
}

// A checkpoint is signed every hour and after many entries. It is good for all directors of the database, also after
// a restart, and finds a trail whose end was cut.
func TestCheckpoints(t *testing.T) {
	each(t, func(t *testing.T, l lab) {
		ctx := t.Context()
		tick := func(want int64) {
			t.Helper()
			if err := l.Tick(ctx); err != nil {
				t.Fatal(err)
			}
			if r := l.verify(t, l.again()); !r.Good() || r.Signed != want {
				t.Fatalf("%+v, want signed up to %d", r, want)
			}
		}
		tick(0)
		try(t, l.Service, "192.0.2.1", "ann", nil)
		tick(1)
		try(t, l.Service, "192.0.2.1", "ann", nil)
		tick(1)
		l.clock.pass(checkpointAge)
		tick(2)
		many := make([]chain.Entry, checkpointEntries)
		if err := l.db.AddAudit(ctx, many...); err != nil {
			t.Fatal(err)
		}
		tick(checkpointEntries + 2)
		for _, statement := range []string{
			"DELETE FROM audit WHERE seq > 900", "UPDATE audit_head SET seq = 900",
			"UPDATE audit_head SET hash = (SELECT hash FROM audit WHERE seq = 900)",
		} {
			if _, err := l.db.SQL().ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		if r := l.verify(t, l.Service); r.Bad != 901 {
			t.Errorf("a cut tail: %+v", r)
		}
		// Without its checkpoints the shorter trail looks whole. The director that signed them signs no more.
		if _, err := l.db.SQL().ExecContext(ctx, "DELETE FROM audit_checkpoints WHERE seq > 900"); err != nil {
			t.Fatal(err)
		}
		l.clock.pass(checkpointAge)
		if err := l.Tick(ctx); director.KindOf(err) != director.KindInternal {
			t.Errorf("it signed a trail that was cut: %v", err)
		}
	})
}

// A caller who hangs up is recorded all the same.
func TestHangUp(t *testing.T) {
	each(t, func(t *testing.T, l lab) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Attempt(ctx, Attempt{Action: "login", Object: "User/ann", Err: errWrong}); err != nil {
			t.Fatal(err)
		}
		if rows := l.rows(t); len(rows) != 1 || rows[0].Outcome != chain.Refused ||
			rows[0].Problem != "unauthenticated" {
			t.Errorf("%+v", rows)
		}
	})
}

package store

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://director@db/director?sslmode=verify-full":    "",
		"postgresql://director@a,b/director?sslmode=verify-full": "",
		"postgresql://director@a,b/director": "leads over a network to a without " +
			"sslmode=verify-full",
		"postgres://director@db/director?sslmode=disable":        "leads over a network to db",
		"postgres://director@db/director?sslmode=prefer":         "leads over a network to db",
		"postgres://director@db/director?sslmode=require":        "leads over a network to db",
		"postgres://director@db/director?sslmode=verify-ca":      "leads over a network to db",
		"postgres://director@127.0.0.1,10.0.0.1/director":        "leads over a network to 10.0.0.1",
		"postgres://director@127.0.0.1/director":                 "",
		"postgres://director@[::1]/director?sslmode=disable":     "",
		"host=localhost dbname=director":                         "",
		"host=/run/postgresql dbname=director":                   "",
		"postgres://director:hunter2@db/director":                "holds a password",
		"postgres://director@db/director?password=hunter2":       "holds a password",
		"postgres://director@db/director?a=b&password=hunter2":   "holds a password",
		"host=db password=hunter2":                               "holds a password",
		"host=db PASSWORD = 'hunter2'":                           "holds a password",
		"mysql://director@db/director":                           "is not the address of a PostgreSQL database",
		"/var/lib/director.db":                                   "is not the address of a PostgreSQL database",
		"postgres://director@db/director?sslmode=perhaps":        "is not understood",
		"postgres://director@db/director?connect_timeout=longer": "is not understood",
	} {
		err := CheckURL(text)
		switch {
		case (err == nil) != (want == ""), err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// Both databases have the same history, so that a version means the same on both.
func TestMigrationsAreInPairs(t *testing.T) {
	t.Parallel()
	names := func(dialect string) (out []string) {
		found, err := fs.Glob(migrations, "migrations/"+dialect+"/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, version(f))
		}
		return out
	}
	if diff := cmp.Diff(names("sqlite"), names("postgres")); diff != "" {
		t.Errorf("(-sqlite +postgres)\n%s", diff)
	}
}

func TestPasswordByTCP(t *testing.T) {
	t.Parallel()
	server := storetest.Shared(t)
	address := server.TCP(server.Database(t))
	for password, want := range map[director.Secret]director.Kind{
		storetest.Password: "", "wrong-one": director.KindUnavailable,
	} {
		s, err := OpenPostgres(t.Context(), Postgres{URL: address, Password: password}, slog.New(slog.DiscardHandler))
		if err == nil {
			err = s.Close()
		}
		if want == "" && err != nil || want != "" && director.KindOf(err) != want {
			t.Errorf("err = %v", err)
		}
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "wrong-one") {
			t.Errorf("the error tells the password: %v", err)
		}
		if !strings.Contains(director.HintOf(err), "databasePasswordFile") {
			t.Errorf("hint = %q", director.HintOf(err))
		}
	}
}

// Directors that start together make one schema and one installation.
func TestManyOpenANewDatabase(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	ids := make([]string, 5)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			s, err := OpenPostgres(t.Context(), Postgres{URL: address}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = s.DirectorID()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("ids = %q", ids)
		}
	}
}

// Two writers of one plan take turns: no event is lost, none is refused.
func TestWritersOfAPlanTakeTurns(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores, rounds := []*Store{open(), open()}, 10
		p := plan.Plan{ID: "p", Content: plan.Content{Cluster: "c", Steps: []plan.Step{{ID: "a"}}}}
		err := update(t, stores[0], func(tx *Tx) error {
			st := plan.NewState(&p)
			return errors.Join(tx.AddPlan(p), tx.Append(&st, plan.Event{Plan: "p", Kind: plan.PlanStarted}),
				tx.Append(&st, plan.Event{Plan: "p", Step: "a", Kind: plan.Started, Attempt: 1}))
		})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, s := range stores {
			all.Go(func() {
				for range rounds {
					err := s.Update(t.Context(), func(tx *Tx) error {
						_, st, err := tx.Plan("p")
						if err != nil {
							return err
						}
						return tx.Append(&st, plan.Event{
							Plan: "p", Step: "a", Kind: plan.Noted, Attempt: 1, Message: "x",
						})
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		events, err := stores[1].Events(t.Context(), "p", 0, 100)
		if err != nil || len(events) != 2+2*rounds || events[len(events)-1].Seq != int64(len(events)) {
			t.Errorf("%d events, %v", len(events), err)
		}
	})
}

// Two transactions that lock two plans in opposite order: the one that the server ends is run again.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	s, err := OpenPostgres(t.Context(), Postgres{URL: address}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, id := range []string{"a", "b"} {
		if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(plan.Plan{ID: id}) }); err != nil {
			t.Fatal(err)
		}
	}
	var first, all sync.WaitGroup
	var mu sync.Mutex
	runs := 0
	first.Add(2)
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		all.Go(func() {
			// both hold one before either asks for the other
			once := sync.OnceFunc(func() { first.Done(); first.Wait() })
			err := s.Update(t.Context(), func(tx *Tx) error {
				mu.Lock()
				runs++
				mu.Unlock()
				if _, _, err := tx.Plan(order[0]); err != nil {
					return err
				}
				once()
				_, _, err := tx.Plan(order[1])
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// On a busy machine the one that is run again meets the other once more.
	if runs < 3 {
		t.Errorf("%d runs: none was ended and run again", runs)
	}
}

func TestLeases(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(1000, 0)
		p := plan.Plan{ID: "p", Content: plan.Content{Steps: []plan.Step{{ID: "a"}}}}
		ref := plan.StepRef{Plan: "p", Step: "a", Attempt: 1}
		var state plan.State
		err := update(t, s, func(tx *Tx) error {
			state = plan.NewState(&p)
			return errors.Join(tx.AddPlan(p), tx.Append(&state, plan.Event{Plan: "p", Kind: plan.PlanStarted}),
				tx.Append(&state, plan.Event{Plan: "p", Step: "a", Kind: plan.Started, Attempt: 1}),
				tx.Lease("p", "a", "i1/1", now))
		})
		if err != nil {
			t.Fatal(err)
		}
		renew := func(owner string, wantHeld, wantStop []plan.StepRef) {
			t.Helper()
			held, stop, err := s.Renew(ctx, owner, now.Add(time.Minute))
			if diff := cmp.Diff([][]plan.StepRef{
				wantHeld, wantStop,
			}, [][]plan.StepRef{held, stop}); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		}
		lapsed := func(at time.Time, prefix, owner string) (out bool) {
			t.Helper()
			lost, err := s.Lost(ctx, at, prefix, owner)
			err = errors.Join(
				err,
				update(t, s, func(tx *Tx) (err error) { out, err = tx.Lapsed(ref, at, prefix, owner); return err }),
			)
			if err != nil || out != (len(lost) == 1) {
				t.Errorf("Lost says %v, Lapsed says %v, %v", lost, out, err)
			}
			return out
		}
		renew("i1/1", []plan.StepRef{ref}, nil)
		renew("i2/1", nil, nil)
		if lapsed(now.Add(time.Second), "i2/", "i2/1") {
			t.Error("a peer takes a living lease")
		}
		if !lapsed(now, "i1/", "i1/2") {
			t.Error("the next process of the instance does not take what the last one left")
		}
		if !lapsed(now.Add(time.Hour), "i2/", "i2/1") {
			t.Error("nobody takes a lease that has ended")
		}
		if err := update(t, s, func(tx *Tx) error { return tx.Stop("p") }); err != nil {
			t.Fatal(err)
		}
		renew("i1/1", []plan.StepRef{ref}, []plan.StepRef{ref})
		end := plan.Event{
			Plan: "p", Step: "a", Kind: plan.Interrupted, Attempt: 1, Message: "bytes \xff\x00 of a program",
		}
		if err := update(t, s, func(tx *Tx) error { return tx.Append(&state, end) }); err != nil {
			t.Fatal(err)
		}
		renew("i1/1", nil, nil)
	})
}

func TestInstances(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(1000, 0)
		beat := func(id string, at time.Time) error { return s.Beat(ctx, id, "host", now, at) }
		if err := errors.Join(
			beat("a", now), beat("b", now), beat("b", now.Add(time.Minute)), beat("c", time.Time{}),
		); err != nil {
			t.Fatal(err)
		}
		alive, err := s.Instances(ctx)
		if diff := cmp.Diff([]Instance{{"a", "host"}, {"b", "host"}}, alive); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		for _, want := range [][]string{{"a", "c"}, nil} { // nobody gets them twice
			got, err := s.Gone(ctx, now.Add(time.Second), "d")
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		}
		if got, err := s.Gone(ctx, now.Add(time.Hour), "b"); err != nil || len(got) != 0 {
			t.Errorf("an instance takes itself for gone: %v %v", got, err)
		}
	})
}

// A check over all documents still holds when the transaction commits.
func TestDocumentsOfATransactionStay(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open()}
		var all sync.WaitGroup
		for i, name := range []string{"x", "y"} {
			all.Go(func() {
				err := update(t, stores[i], func(tx *Tx) error { // only one document may be there
					docs, err := tx.Documents()
					if err != nil || len(docs) > 0 {
						return err
					}
					return tx.PutDocument(network(name), "admin", time.Unix(1, 0))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if docs, err := stores[0].Documents(t.Context(), model.KindNetwork); err != nil || len(docs) != 1 {
			t.Errorf("%d documents, %v", len(docs), err)
		}
	})
}

// A server that goes away is unavailable and not a defect, and it is found again when it is back.
func TestServerGoesAndComes(t *testing.T) {
	t.Parallel()
	server := storetest.New(t)
	s, err := OpenPostgres(t.Context(), Postgres{URL: server.Database(t)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	put := func() error {
		return update(t, s, func(tx *Tx) error { return tx.PutDocument(network("n"), "admin", time.Unix(1, 0)) })
	}
	for range 3 { // over an old connection and over none
		_, rerr := s.Documents(t.Context(), "")
		for _, err := range []error{rerr, put()} {
			if director.KindOf(err) != director.KindUnavailable || director.HintOf(err) == "" {
				t.Errorf("err = %v", err)
			}
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for err = put(); err != nil && ctx.Err() == nil; err = put() {
	}
	if err != nil {
		t.Errorf("the server is back: %v", err)
	}
}

// A budget that directors share is never overdrawn.
func TestBudgetIsNotOverdrawn(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open(), open()}
		for i, s := range stores {
			id := string(rune('a' + i))
			if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(plan.Plan{ID: id}) }); err != nil {
				t.Fatal(err)
			}
		}
		took := make([]bool, len(stores))
		var all sync.WaitGroup
		for i, s := range stores {
			all.Go(func() {
				err := s.Update(t.Context(), func(tx *Tx) error {
					ref := plan.StepRef{Plan: string(rune('a' + i)), Step: "s", Attempt: 1}
					usedUp, err := tx.TakeBudgets(
						ref, []string{"clones"}, func(string) int { return 1 }, time.Unix(1, 0),
					)
					took[i] = usedUp == ""
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		n := 0
		for _, ok := range took {
			if ok {
				n++
			}
		}
		if users, err := stores[0].BudgetUsers(t.Context(), "clones"); err != nil || n != 1 || len(users) != 1 {
			t.Errorf("%d took one, %v hold it, %v", n, users, err)
		}
	})
}

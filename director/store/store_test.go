package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// both runs the test on SQLite and on PostgreSQL. open opens the test's one database, as often as it is called.
func both(t *testing.T, test func(t *testing.T, open func() *Store)) {
	t.Helper()
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	run := func(name string, prepare func(t *testing.T) func() (*Store, error)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := prepare(t)
			test(t, func() *Store {
				s, err := fresh()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			})
		})
	}
	run("sqlite", func(t *testing.T) func() (*Store, error) {
		path := filepath.Join(t.TempDir(), "a b?c.db") // names that a URI would take apart
		return func() (*Store, error) { return Open(t.Context(), path, quiet) }
	})
	run("postgres", func(t *testing.T) func() (*Store, error) {
		address := storetest.Postgres(t)
		return func() (*Store, error) { return OpenPostgres(t.Context(), Postgres{URL: address}, quiet) }
	})
}

func update(t *testing.T, s *Store, fn func(*Tx) error) error {
	t.Helper()
	return s.Update(t.Context(), fn)
}

func TestReopenKeepsTheInstallation(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		first := open().DirectorID()
		if second := open().DirectorID(); first == "" || second != first {
			t.Errorf("id %q became %q", first, second)
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		if err := s.write.Exec(
			"INSERT INTO schema_migrations (version, applied_at) VALUES ('9999_future', 1)",
		).Error; err != nil {
			t.Fatal(err)
		}
		if err := s.migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "9999_future") {
			t.Errorf("err = %v", err)
		}
	})
}

func network(name string) model.Document {
	docs, err := model.Parse([]byte(`{"apiVersion":"kaas/v1","kind":"Network","metadata":{"name":"`+name+`"},
		"spec":{"provider":"p","cidr":"10.0.0.0/24","pool":{"from":"10.0.0.10","to":"10.0.0.20"}}}`), "")
	if err != nil {
		panic(err)
	}
	return docs[0]
}

func TestDocuments(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, now := open(), time.Unix(100, 0).UTC()
		ref := model.Ref{Kind: model.KindNetwork, Name: "n"}
		for range 2 {
			if err := update(t, s, func(tx *Tx) error {
				return tx.PutDocument(network("n"), "admin", now)
			}); err != nil {
				t.Fatal(err)
			}
		}
		d, err := s.Document(t.Context(), ref)
		if err != nil || d.Generation != 2 || d.UpdatedBy != "admin" || !d.Created.Equal(now) ||
			d.Network.CIDR.String() != "10.0.0.0/24" {
			t.Errorf("got %+v, %v", d, err)
		}
		uid := d.UID
		for range 2 { // the second finds nothing and is fine
			if err := update(t, s, func(tx *Tx) error { return tx.DeleteDocument(ref) }); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Document(t.Context(), ref); director.KindOf(err) != director.KindNotFound {
			t.Errorf("err = %v, want not_found", err)
		}
		if err := update(t, s, func(tx *Tx) error { return tx.PutDocument(network("n"), "admin", now) }); err != nil {
			t.Fatal(err)
		}
		if d, err := s.Document(t.Context(), ref); err != nil || d.UID == uid || d.Generation != 1 {
			t.Errorf("a new document is the old one: %+v, %v", d, err)
		}
	})
}

func TestAFailedTransactionLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		boom := errors.New("boom")
		err := update(t, s, func(tx *Tx) error {
			return errors.Join(tx.PutDocument(network("n"), "admin", time.Unix(1, 0)), boom)
		})
		docs, derr := s.Documents(t.Context(), "")
		if !errors.Is(err, boom) || derr != nil || len(docs) != 0 {
			t.Errorf("err = %v, %d documents, %v", err, len(docs), derr)
		}
	})
}

func TestLedger(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(1, 0)
		m := director.Machine{
			ID: "m1", ClusterUID: "u", Cluster: "c", Name: "c-master-1", Role: director.RoleMaster, Network: "n",
			Address: "10.0.0.10",
		}
		intend := func(m director.Machine) error {
			return update(t, s, func(tx *Tx) error { return tx.IntendMachine(m, now) })
		}
		for range 2 { // idempotent by id
			if err := intend(m); err != nil {
				t.Fatal(err)
			}
		}
		twin := m
		twin.ID, twin.Name = "m2", "c-worker-1"
		if err := intend(twin); director.KindOf(err) != director.KindConflict {
			t.Errorf("two machines share an address: %v", err)
		}
		twin.Name, twin.Address = m.Name, "10.0.0.11"
		if err := intend(twin); director.KindOf(err) != director.KindConflict {
			t.Errorf("two machines share a name: %v", err)
		}
		if err := s.SetMachine(ctx, "m1", director.MachinePresent, "h1", "vm1"); err != nil {
			t.Fatal(err)
		}
		now1 := func() director.Machine {
			t.Helper()
			all, err := s.Machines(ctx, MachineFilter{Cluster: "c"})
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0]
		}
		if err := update(t, s, func(tx *Tx) error {
			return tx.SetMembers("u", []string{"c-master-1", "c-worker-9"}, "v1.37.1")
		}); err != nil || now1().Kubernetes != "v1.37.1" {
			t.Errorf("after it became a member: %+v, %v", now1(), err)
		}
		if err := s.SetMembership(ctx, "m1", Membership{
			State: director.MachineDetached,
		}); err != nil || now1().Kubernetes != "" || now1().State != director.MachineDetached || now1().VMID != "vm1" {
			t.Errorf("after it has left: %+v, %v", now1(), err)
		}
		if err := s.RemoveVM(
			ctx, "m1",
		); err != nil || now1().State != director.MachineIntended || now1().VMID != "" || now1().Address != m.Address {
			t.Errorf("after its VM was removed to be recreated: %+v, %v", now1(), err)
		}
		if err := s.SetMachine(ctx, "m1", director.MachinePresent, "h1", "vm1"); err != nil {
			t.Fatal(err)
		}
		if err := s.SetMembership(ctx, "m1", Membership{
			State: director.MachinePresent, Kubernetes: "v1.38.0", Image: "new",
		}); err != nil || now1().Image != "new" {
			t.Errorf("after it has rejoined from another image: %+v, %v", now1(), err)
		}
		if user, err := s.NetworkUser(ctx, m.Provider, "n"); err != nil || user != "c" {
			t.Errorf("the network's user is %q, %v", user, err)
		}
		if user, err := s.NetworkUser(ctx, m.Provider, "other"); err != nil || user != "" {
			t.Errorf("the user of a network without machines is %q, %v", user, err)
		}
		if err := s.SetMachine(ctx, "m1", director.MachineDeleting, "", ""); err != nil {
			t.Fatal(err)
		}
		got, err := s.Machines(ctx, MachineFilter{Cluster: "c"})
		if err != nil || len(got) != 1 || got[0].State != director.MachineDeleting || got[0].Host != "h1" ||
			got[0].VMID != "vm1" {
			t.Fatalf("got %+v, %v", got, err)
		}
		for range 2 {
			if err := s.BuryMachine(ctx, "m1", now); err != nil {
				t.Fatal(err)
			}
		}
		twin.Address = m.Address
		if err := intend(twin); err != nil {
			t.Errorf("name and address are not free after the burial: %v", err)
		}
		if all, err := s.Machines(ctx, MachineFilter{ClusterUID: "u", Tombstones: true}); err != nil || len(all) != 2 {
			t.Errorf("%d rows with tombstones, %v; want 2", len(all), err)
		}
	})
}

func TestSecretsOfARaceAreOne(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		if got, err := s.Secret(ctx, "o", "n"); got != nil || err != nil {
			t.Errorf("got %q, %v before there is one", got, err)
		}
		results := make(chan string, 8)
		for i := range cap(results) {
			go func() {
				got, err := s.AddSecret(ctx, "o", "n", []byte{byte('a' + i)})
				if err != nil {
					t.Error(err)
				}
				results <- string(got)
			}()
		}
		first := <-results
		for range cap(results) - 1 {
			if other := <-results; other != first {
				t.Errorf("one got %q and another %q", first, other)
			}
		}
	})
}

func TestSecretsOfManyAreReadAtOnce(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		var owners []string
		want := map[[2]string][]byte{}
		for i := range 1001 { // more than one query asks for
			owner := fmt.Sprintf("m%d", i)
			owners = append(owners, owner)
			for _, name := range []string{"host-key", "trust", "other"} {
				if (i+len(name))%3 != 0 {
					continue
				}
				if err := s.SetSecret(ctx, owner, name, []byte(owner+name)); err != nil {
					t.Fatal(err)
				}
				if name != "other" {
					want[[2]string{owner, name}] = []byte(owner + name)
				}
			}
		}
		if err := s.SetSecret(ctx, "stranger", "trust", []byte("x")); err != nil {
			t.Fatal(err)
		}
		got, err := s.SecretsOf(ctx, owners, []string{"host-key", "trust"})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("secrets (-want +got):\n%s", d)
		}
		if none, err := s.SecretsOf(ctx, nil, []string{"trust"}); err != nil || len(none) != 0 {
			t.Errorf("of no one: %v, %v", none, err)
		}
	})
}

func TestUsersAndTokens(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		u := director.User{
			Name: "ann", Role: director.RoleUser, PasswordHash: "h", MustChange: true, Created: time.Unix(1, 0).UTC(),
			Updated: time.Unix(2, 0).UTC(), Groups: []string{"cn=a", "cn=b"},
		}
		for range 2 {
			if err := s.PutUser(ctx, u); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.GetUser(ctx, "ann"); err != nil || !cmp.Equal(got, u) {
			t.Errorf("got %+v, %v", got, err)
		}
		tok := director.Token{Hash: "t", User: "ann", Created: time.Unix(1, 0).UTC(), Expires: time.Unix(10, 0).UTC()}
		if err := s.PutToken(ctx, tok); err != nil {
			t.Fatal(err)
		}
		if err := s.PutUser(ctx, u); err != nil {
			t.Fatal(err)
		}
		if got, err := s.GetToken(ctx, "t"); err != nil || got != tok {
			t.Errorf("changing a user lost the token: %+v, %v", got, err)
		}
		if err := s.PruneTokens(ctx, time.Unix(11, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetToken(ctx, "t"); director.KindOf(err) != director.KindNotFound {
			t.Errorf("err = %v, want not_found", err)
		}
		tok.Hash = "t2"
		if err := errors.Join(s.PutToken(ctx, tok), s.DeleteUser(ctx, "ann"), s.DeleteUser(ctx, "ann")); err != nil {
			t.Fatal(err)
		}
		if left, err := s.ListTokens(ctx, ""); err != nil || len(left) != 0 {
			t.Errorf("%d tokens outlive their user, %v", len(left), err)
		}
	})
}

// A writer that does not know of another's event cannot write over it.
func TestAppendIsFencedBySequence(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		p := plan.Plan{ID: "p", Content: plan.Content{Cluster: "c", Steps: []plan.Step{{ID: "a"}}}}
		if err := update(t, s, func(tx *Tx) error { return tx.AddPlan(p) }); err != nil {
			t.Fatal(err)
		}
		stale := plan.NewState(&p)
		start := func(st plan.State) error {
			return update(t, s, func(tx *Tx) error {
				return tx.Append(&st, plan.Event{Plan: "p", Kind: plan.PlanStarted, At: time.Unix(1, 0)})
			})
		}
		if err := start(stale); err != nil {
			t.Fatal(err)
		}
		if err := start(stale); err == nil {
			t.Error("an event was written twice")
		}
	})
}

func TestCancelledContextIsNotADefect(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Documents(ctx, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want context.Canceled", err)
		}
	})
}

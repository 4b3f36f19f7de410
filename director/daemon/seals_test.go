package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// vault is a director that is not running: its database, its key, and what the steps get from them.
type vault struct {
	*testing.T
	d   *Daemon
	db  *store.Store
	box *seal.Box
	env steps.Env
}

// openVault opens the director's database and binds its secrets, as a start does.
func openVault(t *testing.T, c Config) vault {
	t.Helper()
	d := &Daemon{cfg: c, log: slog.New(slog.DiscardHandler)}
	db, err := d.state().openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	box, err := d.state().openSeal(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop(context.WithoutCancel(t.Context())) })
	if err := d.state().bindSeals(t.Context(), db, box, "i1"); err != nil {
		t.Fatal(err)
	}
	return vault{t, d, db, box, steps.Env{
		Installation: steps.Installation{Director: db.DirectorID()},
		Clusters:     steps.Clusters{Keys: steps.Keys{Secrets: db, Sealer: box}},
	}}
}

// fill stores the authorities of two clusters and two credentials.
func (v vault) fill() {
	v.Helper()
	for _, uid := range []string{"u1", "u2"} {
		keys, err := pki.NewCluster(uid)
		if err != nil {
			v.Fatal(err)
		}
		sealed, err := keys.Seal(v.box, uid, steps.SecretPKI)
		if err != nil {
			v.Fatal(err)
		}
		if _, err := v.db.AddSecret(v.Context(), uid, steps.SecretPKI, sealed); err != nil {
			v.Fatal(err)
		}
		service := providers.New(providers.Config{Vault: providers.Vault{Store: v.db, Sealer: v.box}, Now: time.Now})
		if _, err := service.SetCredentials(
			v.Context(), "ann", "c"+uid, "root", director.Secret("password of "+uid),
		); err != nil {
			v.Fatal(err)
		}
	}
}

func (v vault) credentials(name string) (string, error) {
	c, err := providers.Vault{Store: v.db, Sealer: v.box}.Reveal(v.Context(), name)
	return c.Password.Reveal(), err
}

func (v vault) exec(statement string, args ...any) {
	v.Helper()
	if _, err := v.db.SQL().ExecContext(v.Context(), statement, args...); err != nil {
		v.Fatal(err)
	}
}

// unbind is strip by a director that also forgets that everything was ever bound.
func (v vault) unbind() {
	v.Helper()
	v.strip()
	if err := os.Remove(v.d.path(seal.BoundFile)); err != nil {
		v.Fatal(err)
	}
}

// strip seals everything again as directors did that bound nothing.
func (v vault) strip() {
	v.Helper()
	recipient, err := age.ParseX25519Recipient(v.box.Public())
	if err != nil {
		v.Fatal(err)
	}
	_, err = v.db.Seals(v.Context(), func(owner, name string, sealed []byte) []byte {
		plain, err := v.box.Unseal(owner, name, sealed)
		if err != nil {
			v.Fatal(err)
		}
		var out bytes.Buffer
		w, err := age.Encrypt(&out, recipient)
		if err != nil {
			v.Fatal(err)
		}
		if _, err = w.Write(plain); err != nil {
			v.Fatal(err)
		}
		if err := w.Close(); err != nil {
			v.Fatal(err)
		}
		return out.Bytes()
	})
	if err != nil {
		v.Fatal(err)
	}
}

// onBoth runs the test with a director on SQLite and with one on PostgreSQL.
func onBoth(t *testing.T, test func(t *testing.T, c Config)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t)
		if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t)
		c.Database = storetest.Postgres(t)
		if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
}

// Whoever can write to the database cannot give one cluster the authorities of another, nor one provider the password
// of another.
func TestSwappedRowsDoNotOpen(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.fill()
		if _, err := v.env.ClusterPKI(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		if password, err := v.credentials("cu1"); err != nil || password != "password of u1" {
			t.Fatalf("%q, %v", password, err)
		}
		for _, table := range []struct{ name, key, one, two string }{
			{"secrets", "owner", "u1", "u2"}, {"credentials", "name", "cu1", "cu2"},
		} {
			v.exec("UPDATE "+table.name+" SET "+table.key+" = 'between' WHERE "+table.key+" = $1", table.one)
			v.exec("UPDATE "+table.name+" SET "+table.key+" = $1 WHERE "+table.key+" = $2", table.one, table.two)
			v.exec("UPDATE "+table.name+" SET "+table.key+" = $1 WHERE "+table.key+" = 'between'", table.two)
		}
		v = openVault(t, c) // a start does not mend it
		for _, uid := range []string{"u1", "u2"} {
			if _, err := v.env.ClusterPKI(
				t.Context(), uid,
			); !strings.Contains(director.HintOf(err), "changed the database") {
				t.Errorf("authorities of %s: %v (hint %q)", uid, err, director.HintOf(err))
			}
			if password, err := v.credentials(
				"c" + uid,
			); password != "" || !strings.Contains(director.HintOf(err), "changed the database") {
				t.Errorf("credentials c%s: %q, %v (hint %q)", uid, password, err, director.HintOf(err))
			}
		}
	})
}

// A director binds what an older one has sealed, also when it is cut while it does so; after that, unbound rows are
// refused for good.
func TestOldRowsAreBoundAtTheStart(t *testing.T) {
	onBoth(t, func(t *testing.T, c Config) {
		v := openVault(t, c)
		v.fill()
		v.unbind()
		cut, cancel := context.WithCancel(t.Context())
		defer cancel()
		n, err := v.db.Seals(cut, func(owner, name string, sealed []byte) []byte {
			bound, err := v.box.Bind(owner, name, sealed)
			if err != nil {
				t.Error(err)
			}
			if name == "cu1" {
				cancel()
			}
			return bound
		})
		if err == nil || n == 0 || n > 3 {
			t.Fatalf("the cut walk changed %d of 4 rows, %v", n, err)
		}
		v = openVault(t, c)
		for _, uid := range []string{"u1", "u2"} {
			if _, err := v.env.ClusterPKI(t.Context(), uid); err != nil {
				t.Error(err)
			}
			if password, err := v.credentials("c" + uid); err != nil || password != "password of "+uid {
				t.Errorf("%q, %v", password, err)
			}
		}
		if n, err := v.db.Seals(t.Context(), func(owner, name string, sealed []byte) []byte {
			again, err := v.box.Bind(owner, name, sealed)
			if again != nil || err != nil {
				t.Errorf("%s of %s is not bound: %v", name, owner, err)
			}
			return nil
		}); n != 0 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}

		// Forged rows come later: the next start must not bind them.
		v.strip()
		v = openVault(t, c)
		if _, err := v.env.ClusterPKI(
			t.Context(), "u1",
		); !strings.Contains(director.HintOf(err), v.d.path(seal.BoundFile)) {
			t.Errorf("an unbound row: %v (hint %q)", err, director.HintOf(err))
		}
	})
}

// While an older director shares the database, what it seals is accepted, and bound when it has gone.
func TestRowsOfAnOlderPeer(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.Database = storetest.Postgres(t)
	v := openVault(t, c)
	v.fill()
	v.unbind()
	v.exec("INSERT INTO instances (id, host, started_at, seen_at) VALUES ('i2', 'older', 1, 1)")
	v = openVault(t, c)
	v.strip()
	if _, err := v.env.ClusterPKI(t.Context(), "u1"); err != nil {
		t.Errorf("what an older peer has sealed: %v", err)
	}
	if _, err := os.Stat(v.d.path(seal.BoundFile)); err == nil {
		t.Error("the work counts as done while an older peer is there")
	}
	v.exec("DELETE FROM instances")
	waits := seals{db: v.db, box: v.box, instance: "i1", mark: v.d.path(seal.BoundFile), warn: v.d.log.WarnContext}
	waits.wait(t.Context(), time.Millisecond) // ends by itself
	if _, err := v.env.ClusterPKI(t.Context(), "u1"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	v.strip()
	if _, err := v.env.ClusterPKI(t.Context(), "u1"); err == nil {
		t.Error("an unbound row is still accepted")
	}
}

// A new director binds from its first secret on.
func TestANewDirectorBinds(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.path(seal.BoundFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mark: %v, %v", info, err)
	}
}

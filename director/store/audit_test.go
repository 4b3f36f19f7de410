package store

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

var auditKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize))

// verified reads the whole trail in small pages and verifies it.
func verified(t *testing.T, s *Store) chain.Result {
	t.Helper()
	seen, err := s.SeeAudit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	public := auditKey.Public().(ed25519.PublicKey)
	v := chain.NewVerifier(public, s.DirectorID(), seen.Head.BeforeID, seen.Checkpoints)
	for after := int64(0); ; {
		page, err := s.AuditPage(t.Context(), after, seen.LastID, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			v.Add(e)
			after = e.ID
		}
		if len(page) < 7 {
			return v.End(seen.Head.Seq)
		}
	}
}

func sign(t *testing.T, s *Store, seq int64) {
	t.Helper()
	hash, err := s.AuditHash(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	c := chain.Checkpoint{Director: s.DirectorID(), Seq: seq, Hash: hash, At: time.Unix(9, 7000)}.Sign(auditKey)
	if err := s.AddCheckpoint(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// Directors that write at once on one database write one chain, without a fork or a gap. A transaction that fails
// leaves nothing.
func TestAuditChainOfTwoDirectors(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open()}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				ctx := director.WithOrigin(t.Context(), director.Origin{Address: "192.0.2.7", Request: "r"})
				for i := range 12 {
					err := stores[n%2].Update(ctx, func(tx *Tx) error {
						for range i%3 + 1 {
							if err := tx.Audit(time.Now(), "ann", "apply", fmt.Sprintf("Network/n%d", n)); err != nil {
								return err
							}
						}
						if i%4 == 3 {
							return director.Errorf(director.KindConflict, "test", "given up")
						}
						return nil
					})
					if (err != nil) != (i%4 == 3) {
						t.Error(err)
					}
					e := AuditEntry{
						At: time.Now(), Actor: "eve", Action: "login", Outcome: chain.Refused,
						Diff: "é\x00\xff",
					}
					if err := stores[n%2].AddAudit(ctx, e); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		r := verified(t, stores[0])
		if want := int64(8 * (12 + 24 - 8)); !r.Good() || r.Entries < want || r.First != 1 || r.Last != r.Entries {
			t.Errorf("%+v", r)
		}
		page, err := stores[1].AuditPage(t.Context(), 0, 1<<40, 1)
		if err != nil || page[0].Source != "192.0.2.7" || page[0].Request != "r" || page[0].Count != 1 {
			t.Errorf("the first entry is %+v, %v", page, err)
		}
	})
}

// Every change of rows in the database is found.
func TestAuditTampering(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		for i := range 20 {
			if err := s.AddAudit(t.Context(), AuditEntry{At: time.Unix(int64(i), 0), Actor: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		sign(t, s, 10)
		if r := verified(t, s); !r.Good() || r.Signed != 10 || r.Entries != 20 {
			t.Fatalf("%+v", r)
		}
		exec := func(statement string) {
			t.Helper()
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			change, undo string
			bad          int64
		}{
			{"UPDATE audit SET actor = 'anm' WHERE seq = 4", "UPDATE audit SET actor = 'ann' WHERE seq = 4", 4},
			{"UPDATE audit SET seq = 99 WHERE seq = 6", "UPDATE audit SET seq = 6 WHERE seq = 99", 6},
			{
				"INSERT INTO audit (at, actor, action, object) VALUES (1, 'eve', 'x', 'y')",
				"DELETE FROM audit WHERE actor = 'eve'", 21,
			},
			{"DELETE FROM audit WHERE seq > 18", "", 19},
			{"UPDATE audit_head SET seq = 18", "", 0}, // a tail that no checkpoint covers
			{"DELETE FROM audit WHERE seq > 8", "", 9},
			{"UPDATE audit_head SET seq = 8", "", 9},
		} {
			exec(c.change)
			if r := verified(t, s); r.Bad != c.bad {
				t.Errorf("%s: %+v", c.change, r)
			}
			if c.undo != "" {
				exec(c.undo)
			}
		}
	})
}

// Entries from before the chain stay, and are told apart from rows that someone added without it later.
func TestAuditBeforeTheChain(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		for _, statement := range []string{ // back to how the schema was
			"DROP INDEX audit_seq", "DROP TABLE audit_head", "DROP TABLE audit_checkpoints",
			"ALTER TABLE audit DROP COLUMN seq", "ALTER TABLE audit DROP COLUMN outcome",
			"ALTER TABLE audit DROP COLUMN problem", "ALTER TABLE audit DROP COLUMN source",
			"ALTER TABLE audit DROP COLUMN request", "ALTER TABLE audit DROP COLUMN attempts",
			"ALTER TABLE audit DROP COLUMN diff", "ALTER TABLE audit DROP COLUMN hash",
			"DELETE FROM schema_migrations WHERE version = '0040_audit_chain'",
			"INSERT INTO audit (at, actor, action, object) VALUES (1, 'ann', 'apply', 'Network/a')",
			"INSERT INTO audit (at, actor, action, object) VALUES (2, 'ann', 'apply', 'Network/b')",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		s = open()
		if err := s.AddAudit(t.Context(), AuditEntry{At: time.Unix(3, 0), Actor: "ann"}); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, s); !r.Good() || r.Before != 2 || r.Entries != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// BenchmarkAuditedChange measures a transaction that changes nothing but the audit trail.
func BenchmarkAuditedChange(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir()+"/d.db", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		err := s.Update(b.Context(), func(tx *Tx) error {
			return tx.Audit(time.Now(), "ann", "apply", "Cluster/demo")
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

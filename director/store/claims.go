package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// What a database knows of other copies of its director, in meta.
const (
	metaTakeover   = "takeover"    // how often this director has taken its clusters over
	metaRestored   = "restored"    // the bundle or the saved data from which it did so last
	metaHandedOver = "handed_over" // since when it works on nothing; no row while it works
)

// BeginRun notes a start of a director on this database. A claim with the id is known to be its own from then on.
func (s *instanceStore) BeginRun(ctx context.Context, run, host string, now time.Time) error {
	err := s.write.WithContext(ctx).Exec(
		"INSERT INTO director_runs (id, host, started_at) VALUES (?, ?, ?)", run, host, micros(now),
	).Error
	return dbError("store.run", "run "+run, err)
}

// RunOrder returns the place of the start among those on this database, counted from 1; zero if it was not one of them.
func (s *instanceStore) RunOrder(ctx context.Context, run string) (int64, error) {
	var ord int64
	err := one(s.read.WithContext(ctx).Raw("SELECT ord FROM director_runs WHERE id = ?", run), &ord)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = nil
	}
	return ord, dbError("store.run", "run "+run, err)
}

// Claimed is a cluster that was installed, and what is known of who works on it.
type Claimed struct {
	UID, Name string
	Endpoint  string // host:port of its API
	Takeover  int64  // the last one of this director that has reached it
	Run, Host string // of the other copy that has written into it last; empty for none
}

// Claimed returns the clusters that were installed, by their names, and how often this director has taken them over.
func (s *instanceStore) Claimed(ctx context.Context) (clusters []Claimed, takeover int64, err error) {
	text, err := s.Meta(ctx, metaTakeover)
	if err != nil {
		return nil, 0, err
	}
	if text != "" {
		if takeover, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, 0, dbError("store.claims", metaTakeover, err)
		}
	}
	err = s.read.WithContext(ctx).Raw(
		"SELECT c.uid, c.name, c.endpoint, COALESCE(l.takeover, 0) AS takeover, COALESCE(l.run, '') AS run, "+
			"COALESCE(l.host, '') AS host FROM clusters c JOIN documents d ON d.uid = c.uid AND d.kind = ? "+
			"LEFT JOIN claims l ON l.cluster_uid = c.uid ORDER BY c.name", model.KindCluster,
	).Scan(&clusters).Error
	return clusters, takeover, dbError("store.claims", "clusters", err)
}

// ClaimedElsewhere returns the other copy that has written into the cluster last; no claim if there is none.
func (s *instanceStore) ClaimedElsewhere(ctx context.Context, cluster string) (other director.Claim, err error) {
	err = one(s.read.WithContext(ctx).Raw(
		"SELECT l.run, l.host FROM claims l JOIN clusters c ON c.uid = l.cluster_uid WHERE c.name = ? AND l.run <> ''",
		cluster,
	), &other.Run, &other.Host)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = nil
	}
	return other, dbError("store.claims", "cluster "+cluster, err)
}

// CountClaimedElsewhere returns into how many clusters another copy has written last.
func (s *instanceStore) CountClaimedElsewhere(ctx context.Context) (n int64, err error) {
	err = s.read.WithContext(ctx).Raw(
		"SELECT COUNT(*) FROM claims l JOIN clusters c ON c.uid = l.cluster_uid WHERE l.run <> ''",
	).Scan(&n).Error
	return n, dbError("store.claims", "clusters", err)
}

// SettleClaim notes that the cluster has a claim of this director, and that its take-over has reached it.
func (s *instanceStore) SettleClaim(ctx context.Context, clusterUID string, takeover int64) error {
	err := s.write.WithContext(ctx).Exec(
		"INSERT INTO claims (cluster_uid, takeover) VALUES (?, ?) ON CONFLICT (cluster_uid) DO UPDATE SET "+
			"takeover = excluded.takeover, run = '', host = '', noticed_at = 0 "+
			"WHERE claims.run <> '' OR claims.takeover <> excluded.takeover", clusterUID, takeover,
	).Error
	return dbError("store.claims", "cluster "+clusterUID, err)
}

// NoticeClaim notes that another copy has written into the cluster, and reports whether that is news.
func (s *instanceStore) NoticeClaim(
	ctx context.Context, clusterUID string, other director.Claim, now time.Time,
) (news bool, err error) {
	r := s.write.WithContext(ctx).Exec(
		"INSERT INTO claims (cluster_uid, run, host, noticed_at) VALUES (?, ?, ?, ?) "+
			"ON CONFLICT (cluster_uid) DO UPDATE SET run = excluded.run, host = excluded.host, "+
			"noticed_at = excluded.noticed_at WHERE claims.run <> excluded.run",
		clusterUID, other.Run, other.Host, micros(now),
	)
	return r.RowsAffected > 0, dbError("store.claims", "cluster "+clusterUID, r.Error)
}

// TakeOver has this director take its clusters from other copies of it, once each, and work on them again.
func (s *instanceStore) TakeOver(ctx context.Context, actor string, now time.Time) error {
	return s.Update(ctx, func(tx *Tx) error { return takeOver(tx, actor, now) })
}

// TakeOverRestored is TakeOver for a director whose database was made again of a bundle or of saved data, which of
// names. It does so once for each, and reports whether it did.
func (s *instanceStore) TakeOverRestored(ctx context.Context, of string, now time.Time) (done bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		r := tx.db.Exec(
			"INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value "+
				"WHERE meta.value <> excluded.value", metaRestored, of,
		)
		if r.Error != nil {
			return dbError("store.take_over", metaRestored, r.Error)
		}
		if done = r.RowsAffected > 0; !done {
			return nil
		}
		return takeOver(tx, "director", now)
	})
	return done, err
}

func takeOver(tx *Tx, actor string, now time.Time) error {
	const op = "store.take_over"
	err := tx.db.Exec(
		"INSERT INTO meta (name, value) VALUES (?, '1') ON CONFLICT (name) DO UPDATE SET "+
			"value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT)", metaTakeover,
	).Error
	if err == nil {
		err = tx.db.Exec("DELETE FROM meta WHERE name = ?", metaHandedOver).Error
	}
	if err != nil {
		return dbError(op, metaTakeover, err)
	}
	return tx.Audit(now, actor, "take over", "Director/"+tx.store.DirectorID())
}

// HandOver notes that this director works on nothing any more, as from the first time that this was said.
func (s *instanceStore) HandOver(ctx context.Context, actor string, now time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.db.Exec(
			"INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", metaHandedOver,
			now.UTC().Format(time.RFC3339),
		).Error
		if err != nil {
			return dbError("store.hand_over", metaHandedOver, err)
		}
		return tx.Audit(now, actor, "hand over", "Director/"+tx.store.DirectorID())
	})
}

// HandedOver reports whether this director was handed over.
func (s *instanceStore) HandedOver(ctx context.Context) (bool, error) {
	since, err := s.Meta(ctx, metaHandedOver)
	return since != "", err
}

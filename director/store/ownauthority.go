package store

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// MetaAuthority is under which name a shared database keeps the fingerprint of the authority that all its directors
// have; of the older one while it changes.
const MetaAuthority = "tls_authority"

// OwnAuthority returns the authority that the directors on this database follow, sealed, and its revision; "" if it has
// never changed.
func (s *instanceStore) OwnAuthority(ctx context.Context) (revision string, sealed []byte, err error) {
	var rows []struct {
		Revision string
		Sealed   []byte
	}
	err = s.read.WithContext(ctx).Raw("SELECT revision, sealed FROM own_authority").Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return "", nil, dbError("store.own_authority", "the directors' authority", err)
	}
	return rows[0].Revision, rows[0].Sealed, nil
}

// PutOwnAuthority replaces the revision former by another one, with the fingerprint of its older authority. Errors:
// conflict if former is not what is there any more.
func (s *instanceStore) PutOwnAuthority(
	ctx context.Context, former, revision, fingerprint string, sealed []byte,
) error {
	const op = "store.put_own_authority"
	return s.Update(ctx, func(tx *Tx) error {
		statement, args := "UPDATE own_authority SET revision = ?, sealed = ? WHERE revision = ?",
			[]any{revision, sealed, former}
		if former == "" {
			statement = "INSERT INTO own_authority (one, revision, sealed) VALUES (1, ?, ?) ON CONFLICT DO NOTHING"
			args = []any{revision, sealed}
		}
		done := tx.db.Exec(statement, args...)
		if done.Error != nil {
			return dbError(op, "the directors' authority", done.Error)
		}
		if done.RowsAffected == 0 {
			return director.Errorf(director.KindConflict, op, "another director has changed the authority meanwhile").
				WithHint("see how far it is: directorctl ca director")
		}
		return dbError(op, MetaAuthority, tx.db.Exec(
			"INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			MetaAuthority, fingerprint,
		).Error)
	})
}

// FollowAuthority notes that the director with the instance has taken the revision.
func (s *instanceStore) FollowAuthority(ctx context.Context, instance, revision string) error {
	err := s.write.WithContext(ctx).Exec(
		"UPDATE instances SET authority = ? WHERE id = ? AND authority <> ?", revision, instance, revision,
	).Error
	return dbError("store.follow_authority", "instance "+instance, err)
}

// Follower is a director, and whether it has taken a revision of their authority.
type Follower struct {
	Instance `gorm:"embedded"`
	Follows  bool
}

// Followers returns the directors that give signs of life, by their hosts, and which of them have taken the revision.
func (s *instanceStore) Followers(ctx context.Context, revision string) ([]Follower, error) {
	var out []Follower
	err := s.read.WithContext(ctx).Raw(
		"SELECT id, host, authority = ? AS follows FROM instances WHERE seen_at > 0 ORDER BY host, id", revision,
	).Scan(&out).Error
	return out, dbError("store.instances", "instances", err)
}

package store

import (
	"context"

	"gorm.io/gorm"
)

// CredentialsOwner is for whom the credentials of providers are sealed, each under its name.
const CredentialsOwner = "Credentials"

// Seals walks over everything that is sealed. bind gets the place and the bytes of each, and returns what belongs there
// instead, or nil. Rows that change meanwhile are left alone. Cut at any point, it is done by doing it again. It
// returns how many rows it changed.
func (s *documentStore) Seals(
	ctx context.Context, bind func(owner, name string, sealed []byte) []byte,
) (changed int, err error) {
	const op = "store.seals"
	var rows []struct {
		Owner, Name string
		Sealed      []byte
	}
	err = s.read.WithContext(ctx).Raw(
		"SELECT owner, name, sealed FROM secrets UNION ALL SELECT ?, name, sealed FROM credentials",
		CredentialsOwner).Scan(
		&rows,
	).Error
	if err != nil {
		return 0, dbError(op, "sealed rows", err)
	}
	for _, r := range rows {
		fresh := bind(r.Owner, r.Name, r.Sealed)
		if fresh == nil {
			continue
		}
		var res *gorm.DB
		if db := s.write.WithContext(ctx); r.Owner == CredentialsOwner {
			res = db.Exec("UPDATE credentials SET sealed = ? WHERE name = ? AND sealed = ?", fresh, r.Name, r.Sealed)
		} else {
			res = db.Exec(
				"UPDATE secrets SET sealed = ? WHERE owner = ? AND name = ? AND sealed = ?", fresh, r.Owner, r.Name,
				r.Sealed,
			)
		}
		if res.Error != nil {
			return changed, dbError(op, "secret "+r.Name, res.Error)
		}
		changed += int(res.RowsAffected)
	}
	return changed, nil
}

// OlderPeers says whether a director shares the database, other than instance, that does not bind what it seals.
func (s *documentStore) OlderPeers(ctx context.Context, instance string) (bool, error) {
	if s.pool == nil {
		return false, nil // a director on SQLite is alone
	}
	var n int64
	err := s.read.WithContext(ctx).Raw(
		"SELECT count(*) FROM instances WHERE binds = 0 AND seen_at > 0 AND id <> ?", instance,
	).Scan(&n).Error
	return n > 0, dbError("store.peers", "instances", err)
}

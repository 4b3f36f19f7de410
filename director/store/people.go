package store

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
)

// PeopleToCheck returns the people of the identity provider who have a token that has not expired at now, and whom the
// provider has not confirmed since the time before.
func (s *userStore) PeopleToCheck(
	ctx context.Context, provider string, before, now time.Time,
) ([]director.User, error) {
	var rows []userRow
	err := s.read.WithContext(ctx).Where(
		"provider = ? AND checked_at < ? AND disabled_at = 0 AND "+
			"EXISTS (SELECT 1 FROM tokens WHERE tokens.user_name = users.name AND tokens.expires_at > ?)",
		provider, micros(before), micros(now),
	).Order("name").Find(&rows).Error
	users := make([]director.User, len(rows))
	for i, r := range rows {
		users[i] = r.toDomain()
	}
	return users, dbError("store.users", "users", err)
}

// PeopleProviders returns the identity providers whose people have a token that has not expired at now, also those
// whose documents are gone.
func (s *userStore) PeopleProviders(ctx context.Context, now time.Time) ([]string, error) {
	var out []string
	err := s.read.WithContext(ctx).Model(&userRow{}).Where(
		"provider <> '' AND EXISTS "+
			"(SELECT 1 FROM tokens WHERE tokens.user_name = users.name AND tokens.expires_at > ?)", micros(now),
	).Distinct("provider").Order("provider").Pluck("provider", &out).Error
	return out, dbError("store.users", "users", err)
}

// OwnerOfPerson is for whom the refresh token of a person is sealed.
func OwnerOfPerson(name string) string { return "User/" + name }

// loginsKept is how long a used login is known. Its cookie is gone long before.
const loginsKept = 24 * time.Hour

// UseLogin notes that the login with that hash was used; conflict if it was used before.
func (s *userStore) UseLogin(ctx context.Context, hash string, at time.Time) error {
	const op = "store.login"
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.db.Exec("DELETE FROM used_logins WHERE at < ?", micros(at.Add(-loginsKept))).Error
		if err != nil {
			return dbError(op, "logins", err)
		}
		res := tx.db.Exec("INSERT INTO used_logins (hash, at) VALUES (?, ?) ON CONFLICT DO NOTHING", hash, micros(at))
		if res.Error != nil {
			return dbError(op, "the login", res.Error)
		}
		if res.RowsAffected == 0 {
			return director.Errorf(director.KindConflict, op, "the login was used before").WithHint("log in again")
		}
		return nil
	})
}

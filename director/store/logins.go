package store

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
)

// LoginRequest is a program that asks to be let in as a person. Its codes are kept as hashes.
type LoginRequest struct {
	ID                         string
	Kind                       string // LoginBrowser or LoginDevice
	Secret, UserCode           string // hashes; empty for none
	Host, Address              string
	Redirect, State, Challenge string // of LoginBrowser
	Status                     string
	User, Session              string // who has allowed it, and the hash of the session in which
	Created, Expires, Polled   time.Time
	Pause                      time.Duration // between polls of LoginDevice
}

// The kinds of login requests.
const (
	LoginBrowser = "browser"
	LoginDevice  = "device"
)

// The statuses of login requests. A person moves one on from waiting, the program from allowed.
const (
	LoginWaiting = "waiting"
	LoginAllowed = "allowed"
	LoginRefused = "refused"
	LoginUsed    = "used"
)

// LoginKey is what a login request is found by: one of the fields.
type LoginKey struct{ ID, Secret, UserCode string }

func (k LoginKey) where() (string, string) {
	switch {
	case k.ID != "":
		return "id = ?", k.ID
	case k.Secret != "":
		return "secret = ?", k.Secret
	}
	return "user_code = ? AND user_code <> ''", k.UserCode
}

type loginRow struct {
	ID, Kind, Secret, UserCode, Host, Address, Redirect, State, Challenge, Status string
	UserName, Session                                                             string
	CreatedAt, ExpiresAt, PolledAt, Pause                                         int64 `gorm:"autoCreateTime:false"`
}

func (loginRow) TableName() string { return "login_requests" }

func loginRowOf(r LoginRequest) loginRow {
	return loginRow{
		ID: r.ID, Kind: r.Kind, Secret: r.Secret, UserCode: r.UserCode, Host: r.Host, Address: r.Address,
		Redirect: r.Redirect, State: r.State, Challenge: r.Challenge, Status: r.Status, UserName: r.User,
		Session: r.Session, CreatedAt: micros(r.Created), ExpiresAt: micros(r.Expires), PolledAt: micros(r.Polled),
		Pause: r.Pause.Microseconds(),
	}
}

func (r loginRow) toDomain() LoginRequest {
	return LoginRequest{
		ID: r.ID, Kind: r.Kind, Secret: r.Secret, UserCode: r.UserCode, Host: r.Host, Address: r.Address,
		Redirect: r.Redirect, State: r.State, Challenge: r.Challenge, Status: r.Status, User: r.UserName,
		Session: r.Session, Created: instant(r.CreatedAt), Expires: instant(r.ExpiresAt),
		Polled: instant(r.PolledAt), Pause: time.Duration(r.Pause) * time.Microsecond,
	}
}

// The bounds of login requests: strangers make them.
const (
	mostLogins   = 1000
	loginsToldOf = time.Hour // how long after its end a request is still known as one that has ended
)

// AddLoginRequest stores a new request; exhausted if too many wait.
func (s *userStore) AddLoginRequest(ctx context.Context, r LoginRequest) error {
	const op, what = "store.login", "the login"
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.db.Where("expires_at < ?", micros(r.Created.Add(-loginsToldOf))).Delete(&loginRow{}).Error
		if err != nil {
			return dbError(op, what, err)
		}
		var waiting int64
		err = tx.db.Model(&loginRow{}).Where("expires_at >= ?", micros(r.Created)).Count(&waiting).Error
		switch {
		case err != nil:
			return dbError(op, what, err)
		case waiting >= mostLogins:
			return director.Errorf(director.KindExhausted, op, "too many programs wait to be let in").
				WithHint("try again in a few minutes, or log in with a password")
		}
		row := loginRowOf(r)
		return dbError(op, what, tx.db.Create(&row).Error)
	})
}

// EditLoginRequest reads a request, lets edit decide, and stores what edit leaves; not_found for none. Edits of one
// request take turns over all directors.
func (s *userStore) EditLoginRequest(ctx context.Context, k LoginKey, edit func(*LoginRequest) error) error {
	const op, what = "store.login", "login that waits"
	return s.Update(ctx, func(tx *Tx) error {
		q := tx.db
		if s.pool != nil {
			q = q.Clauses(forUpdate)
		}
		column, value := k.where()
		var row loginRow
		if err := q.Where(column, value).Take(&row).Error; err != nil {
			return dbError(op, what, err)
		}
		r := row.toDomain()
		if err := edit(&r); err != nil {
			return err
		}
		next := loginRowOf(r)
		if next == row {
			return nil
		}
		return dbError(op, what, tx.db.Where("id = ?", row.ID).Select("*").Updates(&next).Error)
	})
}

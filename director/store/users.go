package store

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type userRow struct {
	Name                            string `gorm:"primaryKey"`
	UID                             string
	Role, Password                  string
	MustChange, Service             bool
	Provider, FullName, Subject     string
	Groups                          string `gorm:"column:user_groups"` // a JSON list, or empty
	PasswordAt, DisabledAt, LoginAt int64
	CheckedAt                       int64
	CreatedAt, UpdatedAt            int64 `gorm:"autoCreateTime:false;autoUpdateTime:false"`
}

func (userRow) TableName() string { return "users" }

func (r userRow) toDomain() director.User {
	var groups []string
	if r.Groups != "" {
		_ = json.Unmarshal([]byte(r.Groups), &groups) // what cannot be read gives nothing
	}
	return director.User{
		Groups: groups, Subject: r.Subject,
		Name: r.Name, UID: r.UID, Role: director.UserRole(r.Role), PasswordHash: r.Password, MustChange: r.MustChange,
		Provider: r.Provider, FullName: r.FullName, Checked: instant(r.CheckedAt),
		Service: r.Service, PasswordSet: instant(r.PasswordAt), Disabled: instant(r.DisabledAt),
		LastLogin: instant(r.LoginAt), Created: instant(r.CreatedAt), Updated: instant(r.UpdatedAt),
	}
}

func userRowOf(u director.User) userRow {
	groups := ""
	if len(u.Groups) > 0 {
		groups = marshal(u.Groups)
	}
	return userRow{
		Groups: groups, Subject: u.Subject,
		Name: u.Name, UID: u.UID, Role: string(u.Role), Password: u.PasswordHash, MustChange: u.MustChange,
		Provider: u.Provider, FullName: u.FullName, CheckedAt: micros(u.Checked),
		Service: u.Service, PasswordAt: micros(u.PasswordSet), DisabledAt: micros(u.Disabled),
		LoginAt: micros(u.LastLogin), CreatedAt: micros(u.Created), UpdatedAt: micros(u.Updated),
	}
}

type tokenRow struct {
	Hash, UserName, Address            string
	Kind, Name, Scope                  string
	CreatedAt, ExpiresAt, UsedAt, Idle int64 `gorm:"autoCreateTime:false"`
	EnteredAt                          int64
}

func (tokenRow) TableName() string { return "tokens" }

func (r tokenRow) toDomain() director.Token {
	return director.Token{
		Hash: r.Hash, User: r.UserName, Kind: director.TokenKind(r.Kind), Name: r.Name,
		Scope: director.TokenScope(r.Scope), Created: instant(r.CreatedAt), Expires: instant(r.ExpiresAt),
		Idle: time.Duration(r.Idle) * time.Microsecond, Address: r.Address, Used: instant(r.UsedAt),
		Entered: instant(r.EnteredAt),
	}
}

func tokenRowOf(t director.Token) tokenRow {
	return tokenRow{
		Hash: t.Hash, UserName: t.User, Kind: string(t.Kind), Name: t.Name, Scope: string(t.Scope),
		CreatedAt: micros(t.Created), ExpiresAt: micros(t.Expires), Idle: t.Idle.Microseconds(),
		Address: t.Address, UsedAt: micros(t.Used), EnteredAt: micros(t.Entered),
	}
}

// GetUser returns the user, or not_found.
func (s *userStore) GetUser(ctx context.Context, name string) (director.User, error) {
	var row userRow
	err := s.read.WithContext(ctx).Where("name = ?", name).Take(&row).Error
	return row.toDomain(), dbError("store.user", "user "+name, err)
}

// PutUser creates or replaces the user. Tokens of the user stay.
func (s *userStore) PutUser(ctx context.Context, u director.User) error {
	row := userRowOf(u)
	err := s.write.WithContext(ctx).Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "name"}}, UpdateAll: true,
	}).Create(&row).Error
	return dbError("store.user", "user "+u.Name, err)
}

// DeleteUser removes the user with all tokens. No error if the user is gone.
func (s *userStore) DeleteUser(ctx context.Context, name string) error {
	return dbError(
		"store.user", "user "+name, s.write.WithContext(ctx).Where("name = ?", name).Delete(&userRow{}).Error,
	)
}

// GetToken returns the token, or not_found.
func (s *userStore) GetToken(ctx context.Context, hash string) (director.Token, error) {
	var row tokenRow
	err := s.read.WithContext(ctx).Where("hash = ?", hash).Take(&row).Error
	return row.toDomain(), dbError("store.token", "such token", err)
}

// PutToken creates or replaces the token.
func (s *userStore) PutToken(ctx context.Context, t director.Token) error {
	row := tokenRowOf(t)
	err := s.write.WithContext(ctx).Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "hash"}}, UpdateAll: true,
	}).Create(&row).Error
	return dbError("store.token", "the token", err)
}

// DeleteToken removes the token. No error if it is gone.
func (s *userStore) DeleteToken(ctx context.Context, hash string) error {
	return dbError(
		"store.token", "the token", s.write.WithContext(ctx).Where("hash = ?", hash).Delete(&tokenRow{}).Error,
	)
}

// ListTokens returns the tokens of a user, or of all for "", the oldest first.
func (s *userStore) ListTokens(ctx context.Context, user string) ([]director.Token, error) {
	q := s.read.WithContext(ctx).Order("created_at, hash")
	if user != "" {
		q = q.Where("user_name = ?", user)
	}
	var rows []tokenRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.tokens", "tokens", err)
	}
	out := make([]director.Token, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// PruneTokens removes tokens that expired before the time.
func (s *userStore) PruneTokens(ctx context.Context, before time.Time) error {
	return dbError(
		"store.tokens", "tokens",
		s.write.WithContext(ctx).Where("expires_at < ?", micros(before)).Delete(&tokenRow{}).Error,
	)
}

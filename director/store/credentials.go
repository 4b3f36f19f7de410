package store

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

type credentialsRow struct {
	Name, UserName       string
	Sealed               []byte
	Revision             int64
	CreatedAt, UpdatedAt int64 `gorm:"autoCreateTime:false;autoUpdateTime:false"`
	UpdatedBy            string
}

func (credentialsRow) TableName() string { return "credentials" }

func (r credentialsRow) toDomain() director.Credentials {
	return director.Credentials{
		Name: r.Name, User: r.UserName, Revision: r.Revision, Created: instant(r.CreatedAt),
		Updated: instant(r.UpdatedAt), By: r.UpdatedBy,
	}
}

// Credentials returns the credentials without their password, which is in the sealed part, or not_found.
func (s *documentStore) Credentials(ctx context.Context, name string) (director.Credentials, []byte, error) {
	var row credentialsRow
	err := s.read.WithContext(ctx).Where("name = ?", name).Take(&row).Error
	return row.toDomain(), row.Sealed, dbError("store.credentials", "credentials "+name, err)
}

// ListCredentials returns all credentials by name, without their passwords.
func (s *documentStore) ListCredentials(ctx context.Context) ([]director.Credentials, error) {
	var rows []credentialsRow
	if err := s.read.WithContext(ctx).Omit("sealed").Order("name").Find(&rows).Error; err != nil {
		return nil, dbError("store.credentials", "credentials", err)
	}
	out := make([]director.Credentials, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// PutCredentials stores new credentials, or replaces those of the name as the next revision.
func (t *documentTx) PutCredentials(
	name, user string, sealed []byte, by string, now time.Time,
) (director.Credentials, error) {
	const op = "store.credentials"
	row := credentialsRow{
		Name: name, UserName: user, Sealed: sealed, Revision: 1, CreatedAt: micros(now), UpdatedAt: micros(now),
		UpdatedBy: by,
	}
	res := t.db.Model(&credentialsRow{}).Where("name = ?", name).Updates(map[string]any{
		"user_name": user, "sealed": sealed, "revision": gorm.Expr("revision + 1"), "updated_at": micros(now),
		"updated_by": by,
	})
	if res.Error == nil && res.RowsAffected == 0 {
		return row.toDomain(), dbError(op, "credentials "+name, t.db.Create(&row).Error)
	}
	if res.Error != nil {
		return director.Credentials{}, dbError(op, "credentials "+name, res.Error)
	}
	err := t.db.Where("name = ?", name).Take(&row).Error
	return row.toDomain(), dbError(op, "credentials "+name, err)
}

// ResealCredentials replaces the seal that the caller has read. The revision stays. Errors: conflict when they were
// changed since.
func (t *documentTx) ResealCredentials(name string, have, sealed []byte) error {
	const op = "store.credentials"
	res := t.db.Model(&credentialsRow{}).Where("name = ? AND sealed = ?", name, have).Update("sealed", sealed)
	if res.Error == nil && res.RowsAffected == 0 {
		return director.Errorf(director.KindConflict, op, "the credentials %s were changed", name)
	}
	return dbError(op, "credentials "+name, res.Error)
}

// DeleteCredentials removes the credentials, or returns not_found.
func (t *documentTx) DeleteCredentials(name string) error {
	res := t.db.Where("name = ?", name).Delete(&credentialsRow{})
	if res.Error == nil && res.RowsAffected == 0 {
		return director.Errorf(director.KindNotFound, "store.credentials", "there are no credentials %s", name)
	}
	return dbError("store.credentials", "credentials "+name, res.Error)
}

package store

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// IssuerKey is a key that signs tokens for clusters.
type IssuerKey struct {
	ID        string
	Public    []byte // a JSON Web Key
	Published time.Time
	Starts    time.Time // signs from here until the next one starts
}

// NewIssuerKey is a key with its private half.
type NewIssuerKey struct {
	IssuerKey
	Sealed []byte // for IssuerOwner under the name of the key
}

// IssuerOwner is for whom the private halves of the issuer's keys are sealed, each under the id of the key.
const IssuerOwner = "Issuer"

type issuerKeyRow struct {
	ID, Public            string
	PublishedAt, StartsAt int64
}

func (issuerKeyRow) TableName() string { return "issuer_keys" }

// IssuerKeys returns the keys in the order in which they sign.
func (s *userStore) IssuerKeys(ctx context.Context) ([]IssuerKey, error) {
	return issuerKeys(s.read.WithContext(ctx))
}

func issuerKeys(db *gorm.DB) ([]IssuerKey, error) {
	var rows []issuerKeyRow
	err := db.Order("starts_at, id").Find(&rows).Error
	out := make([]IssuerKey, len(rows))
	for i, r := range rows {
		out[i] = IssuerKey{
			ID: r.ID, Public: []byte(r.Public), Published: instant(r.PublishedAt), Starts: instant(r.StartsAt),
		}
	}
	return out, dbError("store.issuer", "the keys of the issuer", err)
}

// EditIssuerKeys lets edit say which keys come and which go, by id, when it has seen those that there are. Edits take
// turns over all directors. The change is audited under the actor's name.
func (s *userStore) EditIssuerKeys(
	ctx context.Context, now time.Time, actor string,
	edit func(have []IssuerKey) (add []NewIssuerKey, remove []string, err error),
) error {
	const op, what = "store.issuer", "the keys of the issuer"
	return s.Update(ctx, func(tx *Tx) error {
		if err := s.exclusive(tx.db, lockIssuer); err != nil {
			return dbError(op, what, err)
		}
		have, err := issuerKeys(tx.db)
		if err != nil {
			return err
		}
		add, remove, err := edit(have)
		if err != nil {
			return err
		}
		for _, k := range add {
			row := issuerKeyRow{k.ID, string(k.Public), micros(k.Published), micros(k.Starts)}
			err := tx.db.Create(&row).Error
			if err == nil {
				err = tx.db.Exec(
					"INSERT INTO secrets (owner, name, sealed) VALUES (?, ?, ?)", IssuerOwner, k.ID, k.Sealed,
				).Error
			}
			if err == nil {
				err = tx.Audit(now, actor, "publish signing key", "SigningKey/"+k.ID)
			}
			if err != nil {
				return dbError(op, what, err)
			}
		}
		for _, id := range remove {
			err := tx.db.Where("id = ?", id).Delete(&issuerKeyRow{}).Error
			if err == nil {
				err = tx.db.Exec("DELETE FROM secrets WHERE owner = ? AND name = ?", IssuerOwner, id).Error
			}
			if err == nil {
				err = tx.Audit(now, actor, "remove signing key", "SigningKey/"+id)
			}
			if err != nil {
				return dbError(op, what, err)
			}
		}
		return nil
	})
}

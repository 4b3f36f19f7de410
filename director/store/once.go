package store

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

type onceRow struct {
	Actor, Name, Request, Claim string
	ClaimedUntil                int64
	Witness                     string
	Status                      int
	Header                      string
	Body                        []byte
	ExpiresAt                   int64
}

func (onceRow) TableName() string { return "once" }

func (r onceRow) toDomain() director.Once {
	o := director.Once{
		Actor: r.Actor, Key: r.Name, Request: r.Request, Claim: r.Claim, Witness: r.Witness, Status: r.Status,
		Body: r.Body,
	}
	_ = json.Unmarshal([]byte(r.Header), &o.Header) // written by us; an answer without its headers is better than none
	return o
}

// ClaimOnce claims the request until a time, under o.Claim. It returns what is stored: if that has the caller's claim,
// the caller is to do the work; with a status, the answer is there; otherwise another try is at it. A claim that ran
// out, because its process died, is taken over with its witness. A key that is used for another request is returned
// with that request's fingerprint and not touched.
func (s *userStore) ClaimOnce(
	ctx context.Context, o director.Once, now, until, expires time.Time,
) (director.Once, error) {
	var row onceRow
	err := s.write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		err := tx.Exec(
			"DELETE FROM once WHERE actor = ? AND name = ? AND expires_at <= ? AND claimed_until <= ?", o.Actor, o.Key,
			micros(now), micros(now),
		).Error
		if err != nil {
			return err
		}
		// The row's key decides between two who come at once, also from different processes.
		err = tx.Exec("INSERT INTO once (actor, name, request, claim, claimed_until, witness, status, header, body, "+
			"expires_at) "+
			"VALUES (?, ?, ?, ?, ?, '', 0, '', ?, ?) ON CONFLICT DO NOTHING", o.Actor, o.Key, o.Request, o.Claim,
			micros(until), []byte{}, micros(expires)).Error
		if err != nil {
			return err
		}
		err = tx.Exec("UPDATE once SET claim = ?, claimed_until = ? WHERE actor = ? AND name = ? AND request = ? "+
			"AND status = 0 AND claimed_until <= ?",
			o.Claim, micros(until), o.Actor, o.Key, o.Request, micros(now)).Error
		if err != nil {
			return err
		}
		return tx.Where("actor = ? AND name = ?", o.Actor, o.Key).Take(&row).Error
	})
	return row.toDomain(), dbError("store.once", "the idempotency key", err)
}

// RenewOnce extends the claim. It returns false if another try has taken the request over.
func (s *userStore) RenewOnce(ctx context.Context, o director.Once, until time.Time) (bool, error) {
	res := s.write.WithContext(ctx).
		Exec("UPDATE once SET claimed_until = ? WHERE actor = ? AND name = ? AND claim = ? AND status = 0",
			micros(until), o.Actor, o.Key, o.Claim)
	return res.RowsAffected > 0, dbError("store.once", "the idempotency key", res.Error)
}

// AnswerOnce keeps the answer of the claim's holder.
func (s *userStore) AnswerOnce(ctx context.Context, o director.Once) error {
	err := s.write.WithContext(ctx).
		Exec("UPDATE once SET status = ?, header = ?, body = ? WHERE actor = ? AND name = ? AND claim = ?",
			o.Status, marshal(o.Header), o.Body, o.Actor, o.Key, o.Claim).Error
	return dbError("store.once", "the idempotency key", err)
}

// ReleaseOnce forgets a request that did nothing, so that it can be sent again.
func (s *userStore) ReleaseOnce(ctx context.Context, o director.Once) error {
	err := s.write.WithContext(ctx).Exec(
		"DELETE FROM once WHERE actor = ? AND name = ? AND claim = ? AND status = 0 AND witness = ''", o.Actor, o.Key,
		o.Claim,
	).Error
	return dbError("store.once", "the idempotency key", err)
}

// PruneOnce removes what has expired.
func (s *userStore) PruneOnce(ctx context.Context, now time.Time) error {
	err := s.write.WithContext(ctx).Exec(
		"DELETE FROM once WHERE expires_at <= ? AND claimed_until <= ?", micros(now), micros(now),
	).Error
	return dbError("store.once", "idempotency keys", err)
}

// Witnessed is Witness of the request that ctx belongs to, if its caller gave it a key. what is a text, or is noted as
// JSON.
func (t *txn) Witnessed(ctx context.Context, what any) error {
	o, ok := director.OnceOf(ctx)
	if !ok {
		return nil
	}
	text, isText := what.(string)
	if !isText {
		raw, err := json.Marshal(what)
		if err != nil {
			return err
		}
		text = string(raw)
	}
	return t.Witness(o, text)
}

// Witness notes, with the work itself, what a request has done. It fails if another try has taken the request over
// meanwhile: the work of this one must not be committed then.
func (t *txn) Witness(o director.Once, what string) error {
	res := t.db.Exec(
		"UPDATE once SET witness = ? WHERE actor = ? AND name = ? AND claim = ? AND status = 0", what, o.Actor, o.Key,
		o.Claim,
	)
	if res.Error == nil && res.RowsAffected == 0 {
		return director.Errorf(
			director.KindConflict, "store.witness", "the request was taken over by a later try with the same key",
		).
			WithHint("look at the answer of that one")
	}
	return dbError("store.witness", "the idempotency key", res.Error)
}

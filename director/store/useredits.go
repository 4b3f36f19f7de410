package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

// AddUser stores a new user; conflict if there is one of the name. The addition is audited under the actor's name.
func (s *userStore) AddUser(ctx context.Context, u director.User, actor string) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.AddUser(u, actor) })
}

// AddUser is the AddUser of the store, within a transaction.
func (t *userTx) AddUser(u director.User, actor string) error {
	row := userRowOf(u)
	row.UID = newUserID()
	if err := t.db.Create(&row).Error; err != nil {
		return dbError("store.user", "user "+u.Name, err)
	}
	return (&documentTx{t.txn}).Audit(u.Created, actor, "create as "+string(u.Role), "User/"+u.Name)
}

// EditUser reads the user, lets edit decide, and stores what edit leaves; not_found if there is no such user. Edits
// take turns over all directors: of two that each disable one of two admins, the second sees the first.
func (s *userStore) EditUser(ctx context.Context, name string, edit func(*director.UserEdit) error) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.editUser(name, edit) })
}

func (t *userTx) editUser(name string, edit func(*director.UserEdit) error) error {
	if err := t.store.exclusive(t.db, lockUsers); err != nil {
		return err
	}
	var row userRow
	if err := t.lockUser(name, &row); err != nil {
		return err
	}
	var others int64
	err := t.db.Model(&userRow{}).Where(
		"role = ? AND disabled_at = 0 AND NOT service AND provider = '' AND name <> ?",
		string(director.RoleAdmin), name,
	).Count(&others).Error
	if err != nil {
		return dbError("store.user", "users", err)
	}
	grants, err := t.grantsNaming(name)
	if err != nil {
		return dbError("store.user", "grants", err)
	}
	e := director.UserEdit{User: row.toDomain(), LastAdmin: others == 0, Grants: grants}
	if err := edit(&e); err != nil {
		return err
	}
	e.User.Name = name
	if err := t.applyEdit(e); err != nil {
		return dbError("store.user", "user "+name, err)
	}
	if e.Action == "" {
		return nil
	}
	return (&documentTx{t.txn}).Audit(e.User.Updated, e.Actor, e.Action, "User/"+name)
}

func (t *userTx) applyEdit(e director.UserEdit) error {
	if e.Delete {
		if err := t.db.Exec("DELETE FROM secrets WHERE owner = ?", OwnerOfPerson(e.User.Name)).Error; err != nil {
			return err
		}
		return t.db.Where("name = ?", e.User.Name).Delete(&userRow{}).Error
	}
	row := userRowOf(e.User)
	if row.UID == "" { // an older director has added the user
		row.UID = newUserID()
	}
	if err := t.db.Save(&row).Error; err != nil {
		return err
	}
	if !e.EndTokens {
		return nil
	}
	q := t.db.Where("user_name = ? AND hash <> ?", e.User.Name, e.Keep)
	if e.KeepAPI {
		q = q.Where("kind <> ?", string(director.TokenAPI))
	}
	return q.Delete(&tokenRow{}).Error
}

// lockUser reads the user and holds the row until the transaction ends.
func (t *userTx) lockUser(name string, row *userRow) error {
	q := t.db
	if t.store.pool != nil {
		q = q.Clauses(forUpdate)
	}
	return dbError("store.user", "user "+name, q.Where("name = ?", name).Take(row).Error)
}

// AddToken stores a token of a login if the user is still as the login saw it: enabled, and with the same password.
// Otherwise it is stale. So a login that runs while the user is disabled leaves no token behind.
func (s *userStore) AddToken(ctx context.Context, tok director.Token, seen director.User) error {
	return s.Update(ctx, func(tx *Tx) error {
		var row userRow
		if err := tx.lockUser(tok.User, &row); err != nil {
			return err
		}
		if row.Password != seen.PasswordHash || row.DisabledAt != 0 {
			return director.Errorf(director.KindStale, "store.token", "user %s was changed meanwhile", tok.User)
		}
		token := tokenRowOf(tok)
		if err := tx.db.Create(&token).Error; err != nil {
			return dbError("store.token", "the token", err)
		}
		err := tx.db.Model(&userRow{}).Where("name = ?", tok.User).
			UpdateColumn("login_at", micros(tok.Created)).Error
		return dbError("store.user", "user "+tok.User, err)
	})
}

// TouchToken notes when a token was last used.
func (s *userStore) TouchToken(ctx context.Context, hash string, at time.Time) error {
	err := s.write.WithContext(ctx).Model(&tokenRow{}).Where("hash = ?", hash).
		UpdateColumn("used_at", micros(at)).Error
	return dbError("store.token", "the token", err)
}

// maxTokens is how many API tokens a user can have. It bounds what a program that makes one a day leaves.
const maxTokens = 50

// CreateToken stores an API token of an enabled user, audited under the actor's name; conflict if the user has one of
// the name that has not expired, or too many. One of the name that has expired makes room.
func (s *userStore) CreateToken(ctx context.Context, t director.Token, actor string) error {
	const op = "store.token"
	return s.Update(ctx, func(tx *Tx) error {
		var user userRow
		if err := tx.lockUser(t.User, &user); err != nil {
			return err
		}
		if user.DisabledAt != 0 {
			return director.Errorf(director.KindConflict, op, "user %s is disabled", t.User).
				WithHint("enable the user first")
		}
		old := tx.db.Where("user_name = ? AND kind = ? AND expires_at <= ?", t.User, string(director.TokenAPI),
			micros(t.Created))
		if err := old.Delete(&tokenRow{}).Error; err != nil {
			return dbError(op, "the token", err)
		}
		var names []string
		err := tx.db.Model(&tokenRow{}).Where("user_name = ? AND kind = ?", t.User, string(director.TokenAPI)).
			Pluck("name", &names).Error
		switch {
		case err != nil:
			return dbError(op, "the token", err)
		case slices.Contains(names, t.Name):
			return director.Errorf(director.KindConflict, op, "user %s has a token %s already", t.User, t.Name).
				WithHint("choose another name, or revoke that one")
		case len(names) >= maxTokens:
			return director.Errorf(director.KindConflict, op, "user %s has %d tokens", t.User, len(names)).
				WithHint("revoke those that are not used any more")
		}
		row := tokenRowOf(t)
		if err := tx.db.Create(&row).Error; err != nil {
			return dbError(op, "the token", err)
		}
		return tx.Audit(t.Created, actor, "create token "+t.Name+" ("+string(t.Scope)+")", "User/"+t.User)
	})
}

// RevokeToken removes the token of the user whose id begins so, audited under the actor's name; not_found if there is
// none. With api it is an API token, otherwise a session.
func (s *userStore) RevokeToken(ctx context.Context, user, id string, api bool, actor string, at time.Time) error {
	return s.Update(ctx, func(tx *Tx) error {
		what, verb, sign := "session", "end session ", "<>"
		if api {
			what, verb, sign = "token", "revoke token ", "="
		}
		res := tx.db.Where(
			"user_name = ? AND substr(hash, 1, 16) = ? AND kind "+sign+" ?", user, id, string(director.TokenAPI),
		).Delete(&tokenRow{})
		if res.Error != nil {
			return dbError("store.token", "the token", res.Error)
		}
		if res.RowsAffected == 0 {
			return director.Errorf(director.KindNotFound, "store.token", "user %s has no %s %s", user, what, id).
				WithHint("list them with: directorctl users %ss %s", what, user)
		}
		return tx.Audit(at, actor, verb+id, "User/"+user)
	})
}

var userOrders = map[string]order{
	"":           {"name", false},
	"name":       {"name", false},
	"created_at": {"created_at", true},
	"login_at":   {"login_at", true},
}

// UserPage lists users whose names begin with the prefix, in the page's order. next is nil at the end of the list.
func (s *userStore) UserPage(
	ctx context.Context, prefix string, p director.Page,
) (users []director.User, next *director.Place, err error) {
	by, err := sortBy(userOrders, p.Sort, "users")
	if err != nil {
		return nil, nil, err
	}
	q, err := page(usersFrom(s.read.WithContext(ctx), prefix), p, by, "name")
	if err != nil {
		return nil, nil, err
	}
	var rows []userRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, nil, dbError("store.users", "users", err)
	}
	if p.Limit > 0 && len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = placeOfUser(rows[len(rows)-1], by)
	}
	users = make([]director.User, len(rows))
	for i, r := range rows {
		users[i] = r.toDomain()
	}
	return users, next, nil
}

func usersFrom(db *gorm.DB, prefix string) *gorm.DB {
	return prefixed(db.Model(&userRow{}), "name", prefix)
}

func placeOfUser(r userRow, by order) *director.Place {
	p := &director.Place{Value: r.Name, Name: r.Name}
	switch by.column {
	case "created_at":
		p.Value = strconv.FormatInt(r.CreatedAt, 10)
	case "login_at":
		p.Value = strconv.FormatInt(r.LoginAt, 10)
	}
	return p
}

package auth

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
)

// passwordSet is when the user's password was set. Older directors kept no time for it, and changed nothing else.
func (s *Service) passwordSet(u director.User) time.Time {
	if u.PasswordSet.IsZero() {
		return u.Updated
	}
	return u.PasswordSet
}

func (s *Service) expires(u director.User) time.Time { return s.passwordSet(u).Add(s.once) }

func (s *Service) expired(u director.User) bool { return u.MustChange && !s.now().Before(s.expires(u)) }

// EnsureOneTime makes a one-time password for the admin if there is no user at all, or if the one that there was has
// expired. keep gets it before it can be used, and must keep it where the administrator alone can read it. pending
// reports whether a one-time password is waiting to be changed.
func (s *Service) EnsureOneTime(
	ctx context.Context, keep func(password director.Secret, expires time.Time) error,
) (pending bool, err error) {
	users, _, err := s.store.UserPage(ctx, "", director.Page{Limit: 1})
	if err != nil {
		return false, err
	}
	now := s.now().UTC()
	admin := director.User{Name: AdminName, Role: director.RoleAdmin, Created: now}
	if len(users) > 0 {
		admin, err = s.store.GetUser(ctx, AdminName)
		if director.KindOf(err) == director.KindNotFound {
			return false, nil
		}
		if err != nil || !s.expired(admin) || !admin.Disabled.IsZero() {
			return admin.MustChange, err
		}
	}
	was := admin.PasswordHash
	password, hash, _, err := s.OneTime(ctx)
	if err != nil {
		return false, err
	}
	admin.PasswordHash, admin.MustChange, admin.PasswordSet, admin.Updated = hash, true, now, now
	if err := keep(password, s.expires(admin)); err != nil {
		return false, err
	}
	if len(users) == 0 {
		return true, s.store.AddUser(ctx, admin, firstStart)
	}
	return true, s.store.EditUser(ctx, AdminName, func(e *director.UserEdit) error {
		if e.User.PasswordHash != was {
			return director.Errorf(director.KindStale, "auth.password", "another director has set the first password").
				WithHint("start this director again")
		}
		e.User.PasswordHash, e.User.MustChange, e.User.PasswordSet, e.User.Updated = hash, true, now, now
		e.EndTokens, e.Actor, e.Action = true, firstStart, "set one-time password"
		return nil
	})
}

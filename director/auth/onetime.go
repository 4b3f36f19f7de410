package auth

import (
	"context"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
)

// A one-time password is as old as its user: nothing but its change touches the user.
func (s *Service) expires(u director.User) time.Time { return u.Updated.Add(s.once) }

func (s *Service) expired(u director.User) bool { return u.MustChange && !s.now().Before(s.expires(u)) }

// EnsureOneTime makes a one-time password for the admin if there is no user at all, or if the one that there was has
// expired. keep gets it before it can be used, and must keep it where the administrator alone can read it. pending
// reports whether a one-time password is waiting to be changed.
func (s *Service) EnsureOneTime(
	ctx context.Context, keep func(password director.Secret, expires time.Time) error,
) (pending bool, err error) {
	users, err := s.store.ListUsers(ctx)
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
		if err != nil || !s.expired(admin) {
			return admin.MustChange, err
		}
	}
	password := director.Secret(random(18))
	hash, err := s.hash(ctx, password.Reveal())
	if err != nil {
		return false, fmt.Errorf("auth: %w", err)
	}
	admin.PasswordHash, admin.MustChange, admin.Updated = hash, true, now
	if err := keep(password, s.expires(admin)); err != nil {
		return false, err
	}
	return true, s.store.PutUser(ctx, admin)
}

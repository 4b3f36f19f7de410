package apitest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Users keeps users and tokens in memory, as auth.Store and identity.Store want them kept. Its zero value is empty.
type Users struct {
	Grants map[string][]director.Granted // by user; set before the first use

	mu     sync.Mutex
	users  map[string]director.User
	tokens map[string]director.Token
}

func (s *Users) lock() func() {
	s.mu.Lock()
	if s.users == nil {
		s.users, s.tokens = map[string]director.User{}, map[string]director.Token{}
	}
	return s.mu.Unlock
}

// GetUser returns the user, or not_found.
func (s *Users) GetUser(_ context.Context, name string) (director.User, error) {
	defer s.lock()()
	u, ok := s.users[name]
	if !ok {
		return u, notFound("there is no user %s", name)
	}
	return u, nil
}

// PutUser creates or replaces the user.
func (s *Users) PutUser(_ context.Context, u director.User) error {
	defer s.lock()()
	s.users[u.Name] = u
	return nil
}

// AddUser stores a new user; conflict if there is one of the name.
func (s *Users) AddUser(_ context.Context, u director.User, _ string) error {
	defer s.lock()()
	if _, ok := s.users[u.Name]; ok {
		return director.Errorf(director.KindConflict, "apitest.user", "user %s exists already", u.Name)
	}
	s.users[u.Name] = u
	return nil
}

// EditUser reads, changes and stores a user.
func (s *Users) EditUser(_ context.Context, name string, edit func(*director.UserEdit) error) error {
	defer s.lock()()
	u, ok := s.users[name]
	if !ok {
		return notFound("there is no user %s", name)
	}
	e := director.UserEdit{User: u, LastAdmin: true}
	for _, other := range s.users {
		if other.Name != name && other.Role == director.RoleAdmin && !other.Service && other.Disabled.IsZero() {
			e.LastAdmin = false
		}
	}
	if err := edit(&e); err != nil {
		return err
	}
	s.users[name] = e.User
	if e.Delete {
		delete(s.users, name)
	}
	for hash, t := range s.tokens {
		kept := hash == e.Keep || e.KeepAPI && t.Kind == director.TokenAPI
		if t.User == name && (e.Delete || e.EndTokens && !kept) {
			delete(s.tokens, hash)
		}
	}
	return nil
}

// DeleteUser removes the user.
func (s *Users) DeleteUser(_ context.Context, name string) error {
	defer s.lock()()
	delete(s.users, name)
	return nil
}

// UserPage lists users by name.
func (s *Users) UserPage(
	_ context.Context, prefix string, p director.Page,
) ([]director.User, *director.Place, error) {
	defer s.lock()()
	var out []director.User
	for _, u := range s.users {
		if strings.HasPrefix(u.Name, prefix) && (p.After == nil || u.Name > p.After.Name) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b director.User) int { return strings.Compare(a.Name, b.Name) })
	if p.Limit > 0 && len(out) > p.Limit {
		out = out[:p.Limit]
		return out, &director.Place{Name: out[p.Limit-1].Name, Value: out[p.Limit-1].Name}, nil
	}
	return out, nil, nil
}

// GrantsOf returns what the test has put into Grants for the user.
func (s *Users) GrantsOf(_ context.Context, u director.User) ([]director.Granted, error) {
	defer s.lock()()
	return s.Grants[u.Name], nil
}

// GetToken returns the token, or not_found.
func (s *Users) GetToken(_ context.Context, hash string) (director.Token, error) {
	defer s.lock()()
	t, ok := s.tokens[hash]
	if !ok {
		return t, notFound("there is no such token")
	}
	return t, nil
}

// AddToken stores the token if the user is as in seen.
func (s *Users) AddToken(_ context.Context, t director.Token, seen director.User) error {
	defer s.lock()()
	u, ok := s.users[t.User]
	if !ok || u.PasswordHash != seen.PasswordHash || !u.Disabled.IsZero() {
		return director.Errorf(director.KindStale, "apitest.token", "user %s was changed meanwhile", t.User)
	}
	s.tokens[t.Hash] = t
	return nil
}

// TouchToken notes when the token was last used.
func (s *Users) TouchToken(_ context.Context, hash string, at time.Time) error {
	defer s.lock()()
	if t, ok := s.tokens[hash]; ok {
		t.Used = at
		s.tokens[hash] = t
	}
	return nil
}

// DeleteToken removes the token.
func (s *Users) DeleteToken(_ context.Context, hash string) error {
	defer s.lock()()
	delete(s.tokens, hash)
	return nil
}

// CreateToken stores an API token; conflict if the user has one of the name.
func (s *Users) CreateToken(_ context.Context, t director.Token, _ string) error {
	defer s.lock()()
	for _, had := range s.tokens {
		if had.User == t.User && had.Kind == t.Kind && had.Name == t.Name {
			return director.Errorf(director.KindConflict, "apitest.token", "token %s exists already", t.Name)
		}
	}
	s.tokens[t.Hash] = t
	return nil
}

// RevokeToken removes the token or session of the user with the id.
func (s *Users) RevokeToken(_ context.Context, user, id string, api bool, _ string, _ time.Time) error {
	defer s.lock()()
	for hash, t := range s.tokens {
		if t.User == user && t.ID() == id && api == (t.Kind == director.TokenAPI) {
			delete(s.tokens, hash)
			return nil
		}
	}
	return notFound("there is no session %s of user %s", id, user)
}

// PruneTokens removes tokens that expired before the time.
func (s *Users) PruneTokens(_ context.Context, before time.Time) error {
	defer s.lock()()
	for hash, t := range s.tokens {
		if !t.Expires.After(before) {
			delete(s.tokens, hash)
		}
	}
	return nil
}

// ListTokens returns the tokens of a user, or of all for "".
func (s *Users) ListTokens(_ context.Context, user string) ([]director.Token, error) {
	defer s.lock()()
	var out []director.Token
	for _, t := range s.tokens {
		if user == "" || t.User == user {
			out = append(out, t)
		}
	}
	return out, nil
}

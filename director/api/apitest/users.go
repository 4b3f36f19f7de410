package apitest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/director-kaas/kaas/director"
)

// Users keeps users and tokens in memory, as auth.Store wants them kept. Its zero value is empty.
type Users struct {
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

// DeleteUser removes the user.
func (s *Users) DeleteUser(_ context.Context, name string) error {
	defer s.lock()()
	delete(s.users, name)
	return nil
}

// ListUsers returns every user by name.
func (s *Users) ListUsers(context.Context) ([]director.User, error) {
	defer s.lock()()
	var out []director.User
	for _, u := range s.users {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b director.User) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
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

// PutToken creates or replaces the token.
func (s *Users) PutToken(_ context.Context, t director.Token) error {
	defer s.lock()()
	s.tokens[t.Hash] = t
	return nil
}

// DeleteToken removes the token.
func (s *Users) DeleteToken(_ context.Context, hash string) error {
	defer s.lock()()
	delete(s.tokens, hash)
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

package identity

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// The lives of API tokens. Every token ends: a forgotten one must not stay valid.
const (
	DefaultTokenLife = 90 * 24 * time.Hour
	maxTokenLife     = 366 * 24 * time.Hour
	minTokenLife     = 24 * time.Hour
)

// NewToken asks for an API token.
type NewToken struct {
	Name    string
	Scope   director.TokenScope
	Life    time.Duration // 0 means DefaultTokenLife
	Address string        // from where it is asked for
}

var tokenNames = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

func (n NewToken) check() error {
	var p []director.Field
	if !tokenNames.MatchString(n.Name) {
		p = append(p, director.Field{
			Path: "name", Msg: "is not a name for a token",
			Hint: "1 to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both " +
				"ends",
		})
	}
	if !slices.Contains(director.TokenScopes(), n.Scope) {
		var known []string
		for _, s := range director.TokenScopes() {
			known = append(known, string(s))
		}
		p = append(p, director.Field{
			Path: "scope", Msg: "is not a scope", Hint: "one of " + strings.Join(known, ", "),
		})
	}
	if n.Life < minTokenLife || n.Life > maxTokenLife {
		p = append(p, director.Field{Path: "days", Msg: "is not allowed", Hint: "1 to 366"})
	}
	if len(p) > 0 {
		return director.Invalid("identity.token", "the token cannot be created", p)
	}
	return nil
}

// CreateToken makes an API token for the user: for a service account by an administrator, and for people by themselves
// alone, because a token acts under its user's name. The token is returned this once. A conflict says that the user has
// one of the name, or too many.
func (s *Service) CreateToken(
	ctx context.Context, actor director.Actor, user string, n NewToken,
) (director.Secret, director.Token, error) {
	const op = "identity.token"
	if n.Life == 0 {
		n.Life = DefaultTokenLife
	}
	if n.Scope == "" {
		n.Scope = director.ScopeAll
	}
	if err := n.check(); err != nil {
		return "", director.Token{}, err
	}
	u, err := s.Store.GetUser(ctx, user)
	switch {
	case err != nil:
		return "", director.Token{}, err
	case !u.Service && user != actor.User:
		return "", director.Token{}, director.Errorf(director.KindConflict, op, "user %s is no service account", user).
			WithHint("people create their own tokens; for a program use: directorctl users create --service NAME")
	case u.MustChange:
		return "", director.Token{}, director.Errorf(
			director.KindConflict, op, "the one-time password must be changed first",
		).WithHint("change it with: directorctl password")
	}
	secret, hash := s.Passwords.APIToken()
	now := s.Now().UTC()
	t := director.Token{
		Hash: hash, User: user, Kind: director.TokenAPI, Name: n.Name, Scope: n.Scope, Created: now,
		Expires: now.Add(n.Life), Address: n.Address,
	}
	if err := s.Store.CreateToken(ctx, t, actor.User); err != nil {
		return "", director.Token{}, err
	}
	return secret, t, nil
}

// Tokens lists the user's API tokens that have not ended, the newest first; not_found if there is no such user.
func (s *Service) Tokens(ctx context.Context, name string) ([]director.Token, error) {
	return s.list(ctx, name, func(t director.Token) bool { return t.Kind == director.TokenAPI })
}

// RevokeToken ends one API token of the user, or is not_found.
func (s *Service) RevokeToken(ctx context.Context, actor, name, id string) error {
	return s.Store.RevokeToken(ctx, name, id, true, actor, s.Now().UTC())
}

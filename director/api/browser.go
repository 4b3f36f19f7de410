package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// SessionCookie holds the token of a browser. With the prefix __Host-, a browser takes it only over TLS, from this host
// and for all paths: no other host of the domain can plant one.
const SessionCookie = "__Host-director"

type cookieAnswer struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

type browserSession struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      wire.Me
}

// sessionCookie holds the token until it ends at the latest; without a token the browser forgets the cookie.
func sessionCookie(token director.Secret, expires time.Time) http.Cookie {
	c := http.Cookie{
		Name: SessionCookie, Value: token.Reveal(), Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: -1,
	}
	if token != "" {
		c.MaxAge = max(1, int(time.Until(expires).Seconds()))
	}
	return c
}

// tokenOf returns the token of a request: a bearer token, or the cookie of a request that has no Authorization at all.
func tokenOf(r *http.Request) director.Secret {
	if header := r.Header.Get("Authorization"); header != "" {
		return bearerToken(header)
	}
	if c, err := r.Cookie(SessionCookie); err == nil {
		return director.Secret(c.Value)
	}
	return ""
}

// sameOrigin refuses changes that a page of another site asks for with the browser's cookie. A request with an
// Authorization header is no such one: a browser does not add it by itself.
func (s accountRoutes) sameOrigin(g *gin.Context) {
	if g.GetHeader("Authorization") == "" {
		if err := s.crossOrigin.Check(g.Request); err != nil {
			s.abort(g, director.Errorf(director.KindForbidden, "api.origin", "another site asked for this").
				WithHint("open the director at its own address"))
			return
		}
	}
	g.Next()
}

// loginBrowser logs a browser in and ends the session that it had.
func (s accountRoutes) loginBrowser(
	ctx context.Context, _ director.Actor, in *struct {
		Cookie http.Cookie `cookie:"__Host-director"`
		Body   wire.Login
	},
) (*browserSession, error) {
	token, actor, err := s.enter(ctx, in.Body, true)
	if err != nil {
		return nil, err
	}
	s.endOld(ctx, in.Cookie)
	return &browserSession{SetCookie: sessionCookie(token, actor.Expires), Body: meOf(actor)}, nil
}

// endOld ends the session that the browser had before a new one.
func (s accountRoutes) endOld(ctx context.Context, session http.Cookie) {
	if session.Value == "" {
		return
	}
	if old, err := s.Auth.Authenticate(ctx, director.Secret(session.Value)); err == nil {
		_ = s.Auth.Logout(ctx, old) // it ends by itself otherwise
	}
}

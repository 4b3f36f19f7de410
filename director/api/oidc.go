package api

import (
	"context"
	"html/template"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/wire"
)

// LoginCookie holds a login at an identity provider while the browser is there. It has to come with what the provider
// sends the browser to: SameSite=Strict would hold it back.
const LoginCookie = "__Host-director-login"

// loginCookieLife is in seconds. Without a value, the browser forgets the cookie.
const loginCookieLife = 600

func loginCookie(value director.Secret) http.Cookie {
	c := http.Cookie{
		Name: LoginCookie, Value: value.Reveal(), Path: "/", Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, MaxAge: -1,
	}
	if value != "" {
		c.MaxAge = loginCookieLife
	}
	return c
}

type beginInput struct {
	Accept   string `header:"Accept" doc:"text/html for a page that says what went wrong."`
	Provider string `path:"provider" maxLength:"64" doc:"Name of the IdentityProvider."`
	Next     string `query:"next" maxLength:"1024" doc:"Path of the director where the browser continues."`
}

type finishInput struct {
	Accept  string      `header:"Accept" doc:"text/html for a page that says what went wrong."`
	Kept    http.Cookie `cookie:"__Host-director-login"`
	Session http.Cookie `cookie:"__Host-director"`
	State   string      `query:"state" doc:"What the director sent."`
	Code    string      `query:"code" doc:"What the provider gives for tokens."`
	Error   string      `query:"error" doc:"Why the provider did not log in."`
	Issuer  string      `query:"iss" doc:"Who answers."`
}

// providerLogins registers the logins at identity providers, which only browsers use.
func (s accountRoutes) providerLogins(api huma.API) {
	tags := []string{"Session"}
	operation(s.server, api, huma.Operation{
		OperationID: "login-providers", Method: http.MethodGet, Path: "/session/providers", Tags: tags,
		Summary: "List the identity providers where people log in with a browser",
	}, "", "", func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.LoginProviders], error) {
		choices, err := s.People.Choices(ctx)
		out := wire.LoginProviders{Items: make([]wire.LoginProvider, len(choices))}
		for i, c := range choices {
			out.Items[i] = wire.LoginProvider{Name: c.Name, Title: c.Title, URL: prefixed("/session/begin/" + c.Name)}
		}
		return &body[wire.LoginProviders]{out}, err
	})
	page := func(op huma.Operation) huma.Operation {
		op.Method, op.Tags, op.DefaultStatus = http.MethodGet, tags, http.StatusSeeOther
		op.Responses = map[string]*huma.Response{
			"303": {Description: "Where the browser goes."},
			"default": {
				Description: "A page that says what went wrong, or a problem.",
				Content:     map[string]*huma.MediaType{"text/html": {}},
			},
		}
		return op
	}
	operation(s.server, api, page(huma.Operation{
		OperationID: "begin-provider-login", Path: "/session/begin/{provider}",
		Summary: "Send a browser to an identity provider",
	}), "", "", func(ctx context.Context, _ director.Actor, in *beginInput) (*anyOf, error) {
		err := s.limit.takePlace(note(ctx).address)
		var to string
		var kept director.Secret
		if err == nil {
			to, kept, err = s.People.Begin(ctx, in.Provider, in.Next)
		}
		if err != nil {
			return s.loginFailed(ctx, in.Accept, err)
		}
		return sendTo(to, loginCookie(kept)), nil
	})
	operation(s.server, api, page(huma.Operation{
		OperationID: "finish-provider-login", Path: strings.TrimPrefix(people.CallbackPath, wire.Prefix),
		Summary: "Take a browser back from an identity provider",
		Description: "The session is in a cookie, as after a login with a password. It works once, and only in the " +
			"browser that began.",
		SkipValidateParams: true, // providers add parameters of their own
	}), "", "", s.finishProviderLogin)
}

func (s accountRoutes) finishProviderLogin(ctx context.Context, _ director.Actor, in *finishInput) (*anyOf, error) {
	err := s.limit.takePlace(note(ctx).address)
	var arrival people.Arrival
	if err == nil {
		arrival, err = s.People.Finish(ctx, director.Secret(in.Kept.Value), people.Answer{
			State: in.State, Code: in.Code, Error: in.Error, Issuer: in.Issuer,
		})
	}
	var token director.Secret
	var actor director.Actor
	if err == nil {
		token, actor, err = s.Auth.LoginPerson(ctx, auth.Login{
			User: arrival.User.Name, Address: note(ctx).address, Browser: true,
		}, arrival.User, arrival.Admitted)
	}
	// An attempt that cannot be recorded gets no session.
	if aerr := s.audited(ctx, actor.User, "login", "User/"+arrival.User.Name, err); err == nil {
		err = aerr
	}
	if err != nil {
		return s.loginFailed(ctx, in.Accept, err, loginCookie(""))
	}
	note(ctx).user = actor.User
	s.endOld(ctx, in.Session)
	return sendTo(arrival.Next, loginCookie(""), sessionCookie(token, actor.Expires)), nil
}

// sendTo answers with a redirect.
func sendTo(to string, cookies ...http.Cookie) *anyOf {
	return &anyOf{Body: func(ctx huma.Context) {
		setCookies(ctx, cookies)
		ctx.SetHeader("Location", to)
		ctx.SetHeader("Referrer-Policy", "no-referrer")
		ctx.SetStatus(http.StatusSeeOther)
	}}
}

func setCookies(ctx huma.Context, cookies []http.Cookie) {
	for _, c := range cookies {
		ctx.AppendHeader("Set-Cookie", c.String())
	}
}

// failedPage is for a browser that is not in the console. It loads and runs nothing.
var failedPage = template.Must(template.New("failed").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Log in to the director</title>
<h1>You are not logged in</h1>
<p>{{.Detail}}</p>
<p>{{.Hint}}</p>
<p><a href="/">Back to the director</a></p>
<p><small>Request {{.RequestID}}</small></p>
</html>
`))

// loginFailed answers a browser with a page that says why there is no session, and others with the problem itself.
func (s accountRoutes) loginFailed(
	ctx context.Context, accept string, err error, cookies ...http.Cookie,
) (*anyOf, error) {
	if !wantsPage(accept) {
		return nil, err
	}
	p := s.problem(ctx, err)
	return &anyOf{Body: func(ctx huma.Context) {
		setCookies(ctx, cookies)
		for k, v := range p.GetHeaders() {
			if k != "Www-Authenticate" {
				ctx.SetHeader(k, v[0])
			}
		}
		ctx.SetHeader("Content-Type", "text/html; charset=utf-8")
		ctx.SetHeader("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
		ctx.SetHeader("Referrer-Policy", "no-referrer")
		ctx.SetStatus(p.Status)
		_ = failedPage.Execute(ctx.BodyWriter(), p.Problem) // a failure is a reader who has gone
	}}, nil
}

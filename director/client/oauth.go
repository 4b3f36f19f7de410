package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"github.com/director-kaas/kaas/director"
)

// oauth is how to log in with a browser at the director.
func (c *accountCalls) oauth(ctx context.Context, redirect string) (context.Context, *oauth2.Config) {
	at := func(path string) string {
		u := *c.base
		u.Path = "/oidc" + path
		return u.String()
	}
	return context.WithValue(ctx, oauth2.HTTPClient, c.http), &oauth2.Config{
		ClientID: "directorctl", RedirectURL: redirect, Scopes: []string{"openid"},
		Endpoint: oauth2.Endpoint{
			AuthURL: at("/authorize"), TokenURL: at("/token"), DeviceAuthURL: at("/device"),
			AuthStyle: oauth2.AuthStyleInParams,
		},
	}
}

// LoginWithDevice logs in on a machine without a browser. show is told which address a person opens elsewhere and which
// code to type there, and until when.
func (c *accountCalls) LoginWithDevice(
	ctx context.Context, host string, show func(address, code string, until time.Time),
) (director.Secret, error) {
	ctx, conf := c.oauth(ctx, "")
	d, err := conf.DeviceAuth(ctx, oauth2.SetAuthURLParam("host", host))
	if err != nil {
		return "", c.refusedLogin(ctx, err)
	}
	show(d.VerificationURI, d.UserCode, d.Expiry)
	token, err := conf.DeviceAccessToken(ctx, d)
	if err != nil {
		return "", c.refusedLogin(ctx, err)
	}
	return director.Secret(token.AccessToken), nil
}

// LoginWithBrowser logs in with a browser on this machine. open is told the address to open in it.
func (c *accountCalls) LoginWithBrowser(
	ctx context.Context, host string, open func(address string),
) (director.Secret, error) {
	const op = "client.login"
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", director.Errorf(director.KindUnavailable, op, "no port of this machine can be listened on: %w", err).
			WithHint("log in with --device")
	}
	verifier, state := oauth2.GenerateVerifier(), oauth2.GenerateVerifier()
	ctx, conf := c.oauth(ctx, "http://"+listener.Addr().String()+"/callback")
	answers := make(chan url.Values, 1)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: callback(state, answers)}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer func() { _ = server.Close() }()
	open(conf.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("host", host)))
	ctx, cancel := context.WithTimeout(ctx, loginWithin)
	defer cancel()
	var q url.Values
	select {
	case <-ctx.Done():
		return "", director.Errorf(director.KindUnauthenticated, op, "no one has logged in with the browser").
			WithHint("run the command again, or log in with --device")
	case q = <-answers:
	}
	if q.Get("error") != "" {
		return "", refusedByPerson()
	}
	token, err := conf.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		return "", c.refusedLogin(ctx, err)
	}
	return director.Secret(token.AccessToken), nil
}

// AllowLogin lets the program of the id in. The director takes that from a browser's session alone.
func (c *accountCalls) AllowLogin(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: "/logins/" + id + "/allow"}, nil)
}

// loginWithin is as long as the director waits for a person.
const loginWithin = 10 * time.Minute

// callback takes what the browser brings, once. What comes without the state is of another page.
func callback(state string, answers chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Referrer-Policy", "no-referrer")
		q := r.URL.Query()
		if q.Get("state") != state {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("<!doctype html><title>directorctl</title><p>This is no answer to directorctl."))
			return
		}
		text := "directorctl has your answer. You can close this window."
		select {
		case answers <- q:
		default:
			text = "directorctl has an answer already."
		}
		_, _ = w.Write([]byte("<!doctype html><title>directorctl</title><p>" + text))
	})
	return mux
}

func refusedByPerson() error {
	return director.Errorf(director.KindUnauthenticated, "client.login", "the login was refused in the browser")
}

// refusedLogin is what the director says when it gives no token.
func (c *accountCalls) refusedLogin(ctx context.Context, err error) error {
	const op = "client.login"
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return c.unreachable(ctx, op, err)
	}
	switch refused.ErrorCode {
	case "access_denied":
		return refusedByPerson()
	case "expired_token":
		return director.Errorf(director.KindUnauthenticated, op, "the code has expired").WithHint("log in again")
	case "":
		return director.Errorf(director.KindUnavailable, op, "the director does not offer this login").
			WithHint("log in with a password, or upgrade the director")
	}
	return director.Errorf(director.KindUnauthenticated, op, "the director gives no token: %s",
		refused.ErrorDescription).WithHint("log in again")
}

package issuer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/store"
)

// How long a person may take to answer, how long a program to fetch its token then, and how long it waits between
// polls.
const (
	answerWithin = 10 * time.Minute
	fetchWithin  = time.Minute
	pollEvery    = 5 * time.Second
)

// What the token endpoint answers when there is no token, in the words of RFC 6749 and RFC 8628.
var (
	ErrGrant    = errors.New("issuer: the code is wrong, used or too old")
	ErrPending  = errors.New("issuer: no one has answered yet")
	ErrSlowDown = errors.New("issuer: the program polls too fast")
	ErrExpired  = errors.New("issuer: the code has expired")
	ErrDenied   = errors.New("issuer: the person has refused")
)

// BrowserRequest is a program that has opened a browser, and listens on a port of its machine.
type BrowserRequest struct{ Redirect, State, Challenge, Host, Address string }

// Device is what a program on a machine without a browser shows, and what it polls with.
type Device struct {
	Code     director.Secret
	UserCode string
	Life     time.Duration
	Pause    time.Duration
}

// Asking is a program that asks to be let in, as a person is shown it.
type Asking struct {
	ID, Kind, Host, Address string
	Expires                 time.Time
}

// Allowed is who has let a program in, in which session.
type Allowed struct{ User, Session, Host string }

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Loopback reports whether the address is one that only programs of the browser's own machine can listen on, in the
// form that directorctl uses (RFC 8252, section 7.3).
func Loopback(redirect string) bool {
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Opaque != "" || u.Port() == "" || u.Path != "/callback" ||
		strings.ContainsAny(redirect, "?#\\") || len(redirect) > 64 {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback() && !ip.Is4In6() && ip.Zone() == ""
}

// plainHost is the host as the program says it, without what could mislead on a page.
func plainHost(host string) string {
	if len(host) > 64 {
		host = host[:64]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return -1
	}, host)
}

// BeginBrowser keeps the request, and returns by what the page names it. Errors: invalid, exhausted.
func (s *Service) BeginBrowser(ctx context.Context, b BrowserRequest) (id string, err error) {
	if !Loopback(b.Redirect) || len(b.Challenge) != 43 || len(b.State) < 8 || len(b.State) > 256 {
		return "", director.Errorf(director.KindInvalid, "issuer.login", "the program asks in an unknown form").
			WithHint("use directorctl of the director's version")
	}
	now := s.Now().UTC()
	r := store.LoginRequest{
		ID: random(16), Kind: store.LoginBrowser, Host: plainHost(b.Host), Address: b.Address, Redirect: b.Redirect,
		State: b.State, Challenge: b.Challenge, Status: store.LoginWaiting, Created: now,
		Expires: now.Add(answerWithin),
	}
	return r.ID, s.Store.AddLoginRequest(ctx, r)
}

// letters of codes that people type: no vowels, so no words, and none that look alike.
const letters = "BCDFGHJKLMNPQRSTVWXZ"

// BeginDevice keeps the request of a program that polls. Errors: exhausted.
func (s *Service) BeginDevice(ctx context.Context, host, address string) (Device, error) {
	raw := make([]byte, 0, 8)
	for b := make([]byte, 1); len(raw) < cap(raw); {
		_, _ = rand.Read(b) // never fails
		if int(b[0]) < 256/len(letters)*len(letters) {
			raw = append(raw, letters[int(b[0])%len(letters)])
		}
	}
	d := Device{
		Code: director.Secret(random(32)), UserCode: string(raw[:4]) + "-" + string(raw[4:]), Life: answerWithin,
		Pause: pollEvery,
	}
	now := s.Now().UTC()
	return d, s.Store.AddLoginRequest(ctx, store.LoginRequest{
		ID: random(16), Kind: store.LoginDevice, Secret: hashOf(d.Code.Reveal()), UserCode: hashOf(string(raw)),
		Host: plainHost(host), Address: address, Status: store.LoginWaiting, Created: now,
		Expires: now.Add(answerWithin), Pause: pollEvery,
	})
}

func unknownRequest() error {
	return director.Errorf(director.KindNotFound, "issuer.login", "no program waits with this code").
		WithHint("codes end after %s and work once; run directorctl login again", answerWithin)
}

// waiting reads a request that waits for a person. change may be nil.
func (s *Service) waiting(
	ctx context.Context, k store.LoginKey, change func(*store.LoginRequest),
) (r store.LoginRequest, err error) {
	err = s.Store.EditLoginRequest(ctx, k, func(e *store.LoginRequest) error {
		if e.Status != store.LoginWaiting || !s.Now().Before(e.Expires) {
			return unknownRequest()
		}
		if change != nil {
			change(e)
		}
		r = *e
		return nil
	})
	if director.KindOf(err) == director.KindNotFound {
		err = unknownRequest()
	}
	return r, err
}

func askingOf(r store.LoginRequest) Asking { return Asking{r.ID, r.Kind, r.Host, r.Address, r.Expires} }

// Asking returns the program that a page names. Errors: not_found.
func (s *Service) Asking(ctx context.Context, id string) (Asking, error) {
	r, err := s.waiting(ctx, store.LoginKey{ID: cmp.Or(id, "none")}, nil)
	return askingOf(r), err
}

// AskingWith returns the program that shows the code, in any case and with or without its dash. Errors: not_found.
func (s *Service) AskingWith(ctx context.Context, userCode string) (Asking, error) {
	code := strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToUpper(userCode))
	if len(code) != 8 {
		return Asking{}, unknownRequest()
	}
	r, err := s.waiting(ctx, store.LoginKey{UserCode: hashOf(code)}, nil)
	return askingOf(r), err
}

// Answer lets the program in as the actor, or refuses it. back is where the browser goes then; empty for nowhere. It
// works once. Errors: not_found.
func (s *Service) Answer(
	ctx context.Context, a director.Actor, id string, allow bool,
) (about Asking, back string, err error) {
	code := random(32)
	r, err := s.waiting(ctx, store.LoginKey{ID: cmp.Or(id, "none")}, func(e *store.LoginRequest) {
		e.Status = store.LoginRefused
		if !allow {
			return
		}
		e.Status, e.User, e.Session = store.LoginAllowed, a.User, a.TokenHash
		if e.Kind == store.LoginBrowser {
			e.Secret, e.Expires = hashOf(code), s.Now().UTC().Add(fetchWithin)
		}
	})
	if err != nil || r.Kind != store.LoginBrowser {
		return askingOf(r), "", err
	}
	q := url.Values{"state": {r.State}, "iss": {s.Issuer()}}
	if allow {
		q.Set("code", code)
	} else {
		q.Set("error", "access_denied")
	}
	return askingOf(r), r.Redirect + "?" + q.Encode(), nil
}

// Redeem returns who has let the program in that shows the code. It works once, also if what comes with the code is
// wrong. Errors: ErrGrant.
func (s *Service) Redeem(ctx context.Context, code, verifier, redirect string) (Allowed, error) {
	var a Allowed
	good := false
	err := s.Store.EditLoginRequest(ctx, store.LoginKey{Secret: hashOf(code)}, func(e *store.LoginRequest) error {
		if e.Kind != store.LoginBrowser || e.Status != store.LoginAllowed {
			return ErrGrant
		}
		sum := sha256.Sum256([]byte(verifier))
		challenge := base64.RawURLEncoding.EncodeToString(sum[:])
		good = s.Now().Before(e.Expires) && redirect == e.Redirect && len(verifier) >= 43 &&
			subtle.ConstantTimeCompare([]byte(challenge), []byte(e.Challenge)) == 1
		e.Status = store.LoginUsed
		a = Allowed{e.User, e.Session, e.Host}
		return nil
	})
	if director.KindOf(err) == director.KindNotFound || err == nil && !good {
		err = ErrGrant
	}
	if err != nil {
		return Allowed{}, err
	}
	return a, nil
}

// Poll returns who has let the program in that shows the code of a device, once. Errors: ErrGrant, ErrPending,
// ErrSlowDown, ErrExpired, ErrDenied.
func (s *Service) Poll(ctx context.Context, code string) (Allowed, error) {
	var a Allowed
	var answer error
	err := s.Store.EditLoginRequest(ctx, store.LoginKey{Secret: hashOf(code)}, func(e *store.LoginRequest) error {
		now := s.Now().UTC()
		tooFast := now.Sub(e.Polled) < e.Pause
		e.Polled = now
		switch {
		case e.Kind != store.LoginDevice || e.Status == store.LoginUsed:
			answer = ErrGrant
		case !now.Before(e.Expires):
			answer = ErrExpired
		case e.Status == store.LoginRefused:
			answer = ErrDenied
		case tooFast:
			e.Pause += pollEvery
			answer = ErrSlowDown
		case e.Status == store.LoginWaiting:
			answer = ErrPending
		default:
			e.Status = store.LoginUsed
			a = Allowed{e.User, e.Session, e.Host}
		}
		return nil
	})
	if director.KindOf(err) == director.KindNotFound {
		err = ErrGrant
	}
	if err == nil {
		err = answer
	}
	return a, err
}

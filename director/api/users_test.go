package api_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/wire"
)

func (b *bundle) login(t *testing.T, user, password string) {
	t.Helper()
	var s wire.Session
	b.do(t, http.MethodPost, "/login", `{"user":"`+user+`","password":"`+password+`"}`, http.StatusOK, &s)
	b.token = s.Token
}

func TestUsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token
	var once wire.OneTimePassword
	b.do(t, http.MethodPost, "/users", `{"name":"ann"}`, http.StatusCreated, &once)
	if once.User.Role != "user" || once.Password == "" || !once.User.MustChangePassword {
		t.Errorf("%+v", once)
	}
	if strings.Contains(b.log.String(), once.Password) {
		t.Error("the log has the password")
	}
	b.do(t, http.MethodPost, "/users", `{"name":"ann"}`, http.StatusConflict, nil)
	// Only what a person may choose is taken.
	for _, body := range []string{
		`{"name":"bob","role":"owner"}`, `{"name":"bob","must_change_password":false}`, `{"name":"bob","password":"x"}`,
		`{"name":"bob","password_hash":"x"}`, `{"role":"admin"}`, `{"name":"system"}`,
	} {
		b.do(t, http.MethodPost, "/users", body, http.StatusUnprocessableEntity, nil)
	}
	b.login(t, "ann", once.Password)
	b.do(t, http.MethodPost, "/password", `{"current":"`+once.Password+`","new":"ann's own password"}`,
		http.StatusNoContent, nil)
	ann := b.token
	for _, c := range [][3]string{
		{"GET", "/users"},
		{"POST", "/users", `{"name":"bob"}`},
		{"GET", "/users/admin"},
		{"GET", "/users/nobody-here"},
		{"DELETE", "/users/admin"},
		{"POST", "/users/ann/role", `{"role":"admin"}`},
		{"POST", "/users/admin/disable"},
		{"POST", "/users/admin/enable"},
		{"POST", "/users/admin/reset-password"},
		{"GET", "/users/admin/sessions"},
		{"DELETE", "/users/admin/sessions/x"},
	} {
		b.do(t, c[0], c[1], c[2], http.StatusForbidden, nil)
	}
	var own wire.LoginSessions
	b.do(t, http.MethodGet, "/sessions", "", http.StatusOK, &own)
	if len(own.Items) != 1 || !own.Items[0].Current || own.Items[0].Address == "" {
		t.Errorf("%+v", own)
	}
	b.token = admin
	var of wire.LoginSessions
	b.do(t, http.MethodGet, "/users/ann/sessions", "", http.StatusOK, &of)
	if len(of.Items) != 1 || of.Items[0].Current || of.Items[0].ID != own.Items[0].ID {
		t.Errorf("%+v", of)
	}
	b.do(t, http.MethodDelete, "/users/ann/sessions/"+of.Items[0].ID, "", http.StatusNoContent, nil)
	b.do(t, http.MethodDelete, "/users/ann/sessions/"+of.Items[0].ID, "", http.StatusNotFound, nil)
	b.token = ann
	b.do(t, http.MethodGet, "/me", "", http.StatusUnauthorized, nil)
}

func TestUserVerbs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, verb := range []string{"disable", "reset-password"} {
		b.do(t, http.MethodPost, "/users/admin/"+verb, "", http.StatusConflict, nil)
	}
	b.do(t, http.MethodDelete, "/users/admin", "", http.StatusConflict, nil)
	b.do(t, http.MethodPost, "/users/admin/role", `{"role":"user"}`, http.StatusConflict, nil)
	var once wire.OneTimePassword
	b.do(t, http.MethodPost, "/users", `{"name":"eve","role":"admin"}`, http.StatusCreated, &once)
	var u wire.User
	b.do(t, http.MethodPost, "/users/eve/disable", "", http.StatusOK, &u)
	if u.DisabledAt == nil {
		t.Errorf("%+v", u)
	}
	b.do(t, http.MethodPost, "/users/eve/enable", "", http.StatusOK, &u)
	b.do(t, http.MethodPost, "/users/eve/role", `{"role":"user"}`, http.StatusOK, &u)
	if u.Role != "user" {
		t.Errorf("%+v", u)
	}
	var next wire.OneTimePassword
	b.do(t, http.MethodPost, "/users/eve/reset-password", "", http.StatusOK, &next)
	if next.Password == once.Password {
		t.Error("the password is the one from before")
	}
	var list wire.Users
	b.do(t, http.MethodGet, "/users?limit=1", "", http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "admin" || list.Continue == "" {
		t.Fatalf("%+v", list)
	}
	b.do(t, http.MethodGet, "/users?limit=1&continue="+list.Continue, "", http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "eve" {
		t.Errorf("%+v", list)
	}
	b.do(t, http.MethodGet, "/users?sort=password", "", http.StatusUnprocessableEntity, nil)
	b.do(t, http.MethodDelete, "/users/eve", "", http.StatusNoContent, nil)
	b.do(t, http.MethodGet, "/users/eve", "", http.StatusNotFound, nil)
}

// A stream ends with the token that opened it.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Recheck = 10 * time.Millisecond })
	admin := b.token
	ann, err := b.users.GetUser(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	ann.Name, ann.Role = "ann", director.RoleUser
	if err := b.users.PutUser(t.Context(), ann); err != nil {
		t.Fatal(err)
	}
	b.login(t, "ann", password)
	resp := b.send(t, http.MethodGet, "/events", "", "Accept", "text/event-stream")
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	b.token = admin
	b.do(t, http.MethodPost, "/users/ann/disable", "", http.StatusOK, nil)
	if _, err := io.Copy(io.Discard, bufio.NewReader(resp.Body)); err != nil { // until the director ends it
		t.Error(err)
	}
}

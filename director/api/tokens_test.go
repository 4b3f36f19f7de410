package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/wire"
)

// decode reads an answer that must have the status.
func decode(t *testing.T, resp *http.Response, status int, out any) {
	t.Helper()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: %s: %s, %v", resp.Request.Method, resp.Request.URL.Path, resp.Status, raw, err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
}

// A person creates a token with the password, uses it within its scope, and revokes it.
func TestOwnTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token
	body := func(name, scope, password string) string {
		return `{"name":"` + name + `","scope":"` + scope + `","password":"` + password + `"}`
	}
	b.do(t, http.MethodPost, "/tokens", body("ci", "read", "wrong password"), http.StatusUnprocessableEntity, nil)
	b.do(t, http.MethodPost, "/tokens", body("ci", "read", ""), http.StatusUnprocessableEntity, nil)
	b.do(t, http.MethodPost, "/tokens", body("../ci", "read", password), http.StatusUnprocessableEntity, nil)
	b.do(t, http.MethodPost, "/tokens", body("ci", "root", password), http.StatusUnprocessableEntity, nil)
	b.do(t, http.MethodPost, "/tokens", `{"name":"ci","days":367,"password":"`+password+`"}`,
		http.StatusUnprocessableEntity, nil)
	tokens := map[string]wire.CreatedToken{}
	for _, scope := range []string{"all", "read"} {
		var c wire.CreatedToken
		b.do(t, http.MethodPost, "/tokens", body("ci-"+scope, scope, password), http.StatusCreated, &c)
		tokens[scope] = c
	}
	b.do(t, http.MethodPost, "/tokens", body("ci-read", "read", password), http.StatusConflict, nil)

	b.token = tokens["all"].Token
	b.do(t, http.MethodPost, "/apply?dry_run=true", cluster, http.StatusOK, nil)
	for _, c := range [][2]string{ // an API token never manages the account
		{http.MethodGet, "/tokens"},
		{http.MethodPost, "/tokens"},
		{http.MethodPost, "/password"},
		{http.MethodGet, "/sessions"},
		{http.MethodDelete, "/tokens/" + tokens["read"].Record.ID},
	} {
		b.do(t, c[0], c[1], "", http.StatusForbidden, nil)
	}
	b.token = tokens["read"].Token
	b.do(t, http.MethodGet, "/documents/Cluster", "", http.StatusOK, nil)
	b.do(t, http.MethodPost, "/apply?dry_run=true", cluster, http.StatusForbidden, nil)
	var me wire.Me
	b.do(t, http.MethodGet, "/me", "", http.StatusOK, &me)
	if me.Kind != "api" || me.Scope != "read" || me.User != "admin" {
		t.Errorf("%+v", me)
	}

	b.token = login
	var list wire.APITokens
	b.do(t, http.MethodGet, "/tokens", "", http.StatusOK, &list)
	if len(list.Items) != 2 || list.Items[0].UsedAt == nil {
		t.Errorf("%+v", list)
	}
	var sessions wire.LoginSessions
	b.do(t, http.MethodGet, "/sessions", "", http.StatusOK, &sessions)
	if len(sessions.Items) != 1 || sessions.Items[0].Kind != "login" {
		t.Errorf("%+v", sessions)
	}
	b.do(t, http.MethodDelete, "/tokens/"+tokens["read"].Record.ID, "", http.StatusNoContent, nil)
	b.do(t, http.MethodDelete, "/tokens/"+tokens["read"].Record.ID, "", http.StatusNotFound, nil)
	b.token = tokens["read"].Token
	b.do(t, http.MethodGet, "/me", "", http.StatusUnauthorized, nil)
}

// untold takes every task, and remembers none.
type untold struct{}

func (untold) AskPhase(_ context.Context, actor, id string, r director.PhaseRequest) (phases.View, error) {
	return phases.View{PhaseTask: director.PhaseTask{ID: id, Request: r, By: actor, State: director.PhaseWaiting}}, nil
}

func (untold) Phase(_ context.Context, id string) (phases.View, error) {
	return phases.View{}, director.Errorf(director.KindNotFound, "test.phase", "there is no task %s", id)
}

// The outer planner's account can do nothing but ask for phases. Nobody makes a token for another person.
func TestServiceAccounts(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Phases = untold{} })
	admin := b.token
	var made wire.OneTimePassword
	b.do(t, http.MethodPost, "/users", `{"name":"planner","role":"operator","service":true}`, http.StatusCreated, &made)
	if !made.User.Service || made.Password != "" || made.ExpiresAt != nil {
		t.Errorf("%+v", made)
	}
	b.do(t, http.MethodPost, "/users/planner/reset-password", "", http.StatusConflict, nil)
	var c, own wire.CreatedToken
	b.do(t, http.MethodPost, "/users/planner/tokens", `{"name":"outer","scope":"phases"}`, http.StatusCreated, &c)
	b.do(t, http.MethodPost, "/users/nobody/tokens", `{"name":"outer"}`, http.StatusNotFound, nil)
	b.do(t, http.MethodPost, "/users", `{"name":"ann"}`, http.StatusCreated, nil)
	b.do(t, http.MethodPost, "/users/ann/tokens", `{"name":"mine"}`, http.StatusConflict, nil)

	b.token = c.Token
	b.do(t, http.MethodGet, "/phases/none", "", http.StatusNotFound, nil)
	for _, path := range []string{"/clusters", "/plans", "/documents/Cluster", "/events", "/users", "/tokens"} {
		if resp := b.send(t, http.MethodGet, path, ""); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, resp.Status)
		} else if p := problemOf(t, resp); p.Detail != "the token is not for this" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	const upgrade = `{"task_id":"up7","phase":"director","upgrade":{"upload":"3fab"}}`
	resp := b.send(t, http.MethodPost, "/phases", upgrade)
	if p := problemOf(t, resp); resp.StatusCode != http.StatusForbidden || p.Detail != "this needs the role admin" {
		t.Errorf("the upgrade of the director: %+v", p)
	}
	b.token = admin
	asked := `{"name":"up","scope":"phases","password":"` + password + `"}`
	b.do(t, http.MethodPost, "/tokens", asked, http.StatusCreated, &own)
	b.token = own.Token
	b.do(t, http.MethodPost, "/phases", upgrade, http.StatusAccepted, nil)
	b.token = admin
	var list wire.APITokens
	b.do(t, http.MethodGet, "/users/planner/tokens", "", http.StatusOK, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "outer" || list.Items[0].Scope != "phases" {
		t.Errorf("%+v", list)
	}
	b.do(t, http.MethodPost, "/users/planner/disable", "", http.StatusOK, nil)
	b.token = c.Token
	b.do(t, http.MethodGet, "/phases/none", "", http.StatusUnauthorized, nil)
}

package auth

import (
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// kindUser and kindAudit are users and the audit trail. Only who manages or audits the director reads them.
const (
	kindUser  = "User"
	kindAudit = "Audit"
	kindPhase = "Phase"
)

// rule says on which kinds of objects a role may do an action. A rule without kinds is for all of them.
type rule struct {
	only   []string
	except []string
}

func (r rule) covers(kind string) bool {
	if len(r.only) > 0 {
		return slices.Contains(r.only, kind)
	}
	return !slices.Contains(r.except, kind)
}

// rules are what each role may do, beyond what concerns oneself. What is not here is refused. Providers, images and
// networks are infrastructure: a user sees none of them.
var rules = map[director.UserRole]map[director.Action]rule{
	director.RoleAdmin: everything(),
	director.RoleOperator: {
		director.ActRead:      {except: []string{kindUser, kindAudit}},
		director.ActPlan:      {},
		director.ActRun:       {},
		director.ActInventory: {},
	},
	director.RoleUser: {
		director.ActRead: {only: []string{"Cluster", "Plan", kindPhase, "Release"}},
	},
	director.RoleAuditor: {
		director.ActRead: {},
	},
}

func everything() map[director.Action]rule {
	all := map[director.Action]rule{}
	for _, a := range director.Actions() {
		all[a] = rule{}
	}
	return all
}

// Can reports whether actor may do the action on the object. It is the only place that decides, and it is pure.
func Can(actor director.Actor, action director.Action, object director.Object) bool {
	switch {
	case actor.User == "" || !within(actor, action, object):
		return false
	case action == director.ActSelf, action == director.ActAccount:
		return true
	case actor.MustChange:
		return false
	}
	r, ok := rules[actor.Role][action]
	return ok && r.covers(object.Kind)
}

// within reports whether the actor's token may be used for the action. An API token never manages the user's account:
// who steals one cannot make another one of it, or lock the user out.
func within(actor director.Actor, action director.Action, object director.Object) bool {
	if actor.Kind == director.TokenAPI && action == director.ActAccount {
		return false
	}
	switch actor.Scope {
	case director.ScopeAll:
		return true
	case director.ScopeRead:
		return action == director.ActSelf || action == director.ActRead
	case director.ScopePhases:
		return action == director.ActSelf || object.Kind == kindPhase
	}
	return false
}

// Require returns nil if Can says yes, and otherwise a forbidden error that tells what to do.
func (s *Service) Require(actor director.Actor, action director.Action, object director.Object) error {
	if Can(actor, action, object) {
		return nil
	}
	if actor.MustChange {
		return director.Errorf(director.KindForbidden, "auth.can", "the one-time password must be changed first").
			WithHint("change it with: directorctl password")
	}
	if !within(actor, action, object) {
		return director.Errorf(director.KindForbidden, "auth.can", "the token is not for this").
			WithHint("its scope is %s; log in with a password, or use another token", actor.Scope)
	}
	var may []string
	for _, role := range director.UserRoles() {
		if Can(director.Actor{User: actor.User, Role: role, Scope: director.ScopeAll}, action, object) {
			may = append(may, string(role))
		}
	}
	return director.Errorf(director.KindForbidden, "auth.can", "this needs the role %s", strings.Join(may, " or ")).
		WithHint("ask an administrator")
}

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

	kindGrant   = "Grant"
	kindProject = "Project"
	kindCluster = "Cluster"
	kindPlan    = "Plan"
	kindRelease = "Release"
	kindNode    = director.KindNode
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
		director.ActRead:      {except: []string{kindUser, kindAudit, kindGrant}},
		director.ActPlan:      {},
		director.ActRun:       {},
		director.ActInventory: {},
		director.ActToken:     {only: []string{kindCluster}},
	},
	director.RoleUser: {
		director.ActRead:  {only: []string{kindCluster, kindPlan, kindPhase, kindRelease, kindProject, kindNode}},
		director.ActToken: {only: []string{kindCluster}},
	},
	director.RoleAuditor: {
		director.ActRead:  {},
		director.ActToken: {only: []string{kindCluster}},
	},
	director.RoleNone: {},
}

// inside are what each role may do with the clusters that a grant is for, and with their plans. What a whole director
// shares, such as providers and users, is not among it.
var inside = map[director.UserRole][]director.Action{
	director.RoleAdmin: {
		director.ActRead, director.ActApply, director.ActDelete, director.ActPlan, director.ActRun,
		director.ActKubeconfig, director.ActToken, director.ActInventory, director.ActSecrets,
	},
	director.RoleOperator: {
		director.ActRead, director.ActPlan, director.ActRun, director.ActInventory, director.ActToken,
	},
	director.RoleUser:    {director.ActRead, director.ActToken},
	director.RoleAuditor: {director.ActRead, director.ActToken},
}

func everything() map[director.Action]rule {
	all := map[director.Action]rule{}
	for _, a := range director.Actions() {
		all[a] = rule{}
	}
	return all
}

// Can reports whether actor may do the action on the object. It is the only place that decides, and it is pure. Of a
// cluster or a plan, a grant counts only if the object says where it belongs.
func Can(actor director.Actor, action director.Action, object director.Object) bool {
	return decide(actor, action, object, func(g director.Granted) bool { return covers(g, action, object) })
}

// CanSome reports whether there may be an object of the kind that actor may do the action on.
func CanSome(actor director.Actor, action director.Action, kind string) bool {
	return decide(actor, action, director.Object{Kind: kind}, func(g director.Granted) bool {
		return covers(g, action, director.Object{Kind: kind, Name: g.Project, Cluster: g.Cluster, Project: g.Project})
	})
}

// VisibleTo returns which of the clusters, plans and projects the actor may see, and nil for all of them.
func VisibleTo(actor director.Actor, kind string) *director.Visible {
	wide := actor
	wide.Grants = nil
	for _, g := range actor.Grants {
		if g.Project == "" && g.Cluster == "" {
			wide.Grants = append(wide.Grants, g)
		}
	}
	if Can(wide, director.ActRead, director.Object{Kind: kind}) {
		return nil
	}
	v := &director.Visible{}
	for _, g := range actor.Grants {
		switch {
		case !slices.Contains(inside[g.Role], director.ActRead):
		case g.Project != "":
			v.Projects = append(v.Projects, g.Project)
		case g.Cluster != "":
			v.Clusters = append(v.Clusters, g.Cluster)
		}
	}
	return v
}

// RolesOn returns the roles that the actor has on the cluster, by the own role and by grants, in a fixed order. The
// object must say to what the cluster belongs. There is one if and only if the actor may see the cluster.
func RolesOn(actor director.Actor, cluster director.Object) []director.UserRole {
	var out []director.UserRole
	for _, role := range director.UserRoles() {
		one := actor
		one.Role, one.Grants = director.RoleNone, nil
		if actor.Role == role {
			one.Role = role
		}
		for _, g := range actor.Grants {
			if g.Role == role {
				one.Grants = append(one.Grants, g)
			}
		}
		if Can(one, director.ActToken, cluster) {
			out = append(out, role)
		}
	}
	return out
}

// covers reports whether the grant allows the action on the object.
func covers(g director.Granted, action director.Action, object director.Object) bool {
	if g.Project == "" && g.Cluster == "" {
		r, ok := rules[g.Role][action]
		return ok && r.covers(object.Kind)
	}
	switch object.Kind {
	case kindCluster, kindPlan, kindNode:
		in := g.Cluster != "" && g.Cluster == object.Cluster || g.Project != "" && g.Project == object.Project
		return in && slices.Contains(inside[g.Role], action)
	case kindProject:
		return action == director.ActRead && g.Project != "" && g.Project == object.Name && len(inside[g.Role]) > 0
	case kindRelease: // clusters name them, and they hold nothing of anyone's
		return action == director.ActRead && len(inside[g.Role]) > 0
	}
	return false
}

func decide(
	actor director.Actor, action director.Action, object director.Object, granted func(director.Granted) bool,
) bool {
	switch {
	case actor.User == "" || !within(actor, action, object):
		return false
	case action == director.ActSelf, action == director.ActAccount:
		return true
	case actor.MustChange:
		return false
	}
	if r, ok := rules[actor.Role][action]; ok && r.covers(object.Kind) {
		return true
	}
	return slices.ContainsFunc(actor.Grants, granted)
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

// Refusal returns the forbidden error for what Can refuses. It tells what to do.
func Refusal(actor director.Actor, action director.Action, object director.Object) error {
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

package auth_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
)

// mayInside is what each role may do with the clusters and plans of its grant, written down a second time.
var mayInside = map[director.UserRole]string{
	director.RoleAdmin:    "read apply delete plan run kubeconfig token inventory secrets",
	director.RoleOperator: "read plan run inventory token",
	director.RoleUser:     "read token", director.RoleAuditor: "read token", director.RoleNone: "", "owner": "", "": "",
}

// TestGrants is the whole matrix of grants: role, where it is for, action, and every kind inside and outside of it.
func TestGrants(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"", "Provider", "Image", "Release", "Network", "Cluster", "Plan", "Schedule", "Credentials", "User", "Audit",
		"Phase", "Grant", "Project", "IdentityProvider",
	}
	objects := []director.Object{
		{},
		{Name: "shop"},
		{Name: "web"},
		{Name: "shop", Cluster: "shop", Project: "web"},
		{Name: "blog", Cluster: "blog", Project: "web"},
		{Name: "old", Project: "web"},
		{Name: "shop", Cluster: "shop"},
		{Name: "other", Cluster: "other", Project: "others"},
	}
	for role, actions := range mayInside {
		for _, g := range []director.Granted{{Role: role, Project: "web"}, {Role: role, Cluster: "shop"}} {
			for _, action := range director.Actions() {
				for _, kind := range kinds {
					for _, o := range objects {
						o.Kind = kind
						checkGrant(t, g, action, o, slices.Contains(strings.Fields(actions), string(action)))
					}
				}
			}
		}
	}
}

// checkGrant holds Can for an actor with the grant alone against what the grant is for.
func checkGrant(t *testing.T, g director.Granted, action director.Action, o director.Object, may bool) {
	t.Helper()
	actor := director.Actor{
		User: "u", Role: director.RoleNone, Scope: director.ScopeAll, Grants: []director.Granted{g},
	}
	roles := auth.RolesOn(actor, o)
	if has := auth.Can(actor, director.ActToken, o); has != (len(roles) == 1 && roles[0] == g.Role) {
		t.Errorf("%+v: RolesOn(%+v) = %v", g, o, roles)
	}
	known := mayInside[g.Role] != ""
	want := action == director.ActSelf || action == director.ActAccount
	switch o.Kind {
	case "Cluster", "Plan":
		inside := g.Project == "web" && o.Project == "web" || g.Cluster == "shop" && o.Cluster == "shop"
		want = want || inside && may
	case "Release":
		want = want || action == director.ActRead && known
	case "Project":
		want = want || action == director.ActRead && known && g.Project == "web" && o.Name == "web"
	}
	if got := auth.Can(actor, action, o); got != want {
		t.Errorf("%+v: Can(%s, %+v) = %v", g, action, o, got)
	}
	for _, other := range director.UserRoles() { // a grant adds to the role, and takes nothing away
		wide := actor
		wide.Role, wide.Grants = other, nil
		both := actor
		both.Role = other
		if got := auth.Can(both, action, o); got != (want || auth.Can(wide, action, o)) {
			t.Errorf("%s with %+v: Can(%s, %+v) = %v", other, g, action, o, got)
		}
	}
	actor.MustChange = true
	if auth.Can(actor, action, o) != (action == director.ActSelf || action == director.ActAccount) {
		t.Errorf("with a one-time password: %s %+v", action, o)
	}
	if want && auth.Can(director.Actor{
		User: "u", Scope: director.ScopePhases, Kind: director.TokenAPI, Grants: actor.Grants,
	}, action, o) != (action == director.ActSelf) {
		t.Errorf("a token for phases: %s %+v", action, o)
	}
}

// A grant on the whole director is the role itself.
func TestWideGrants(t *testing.T) {
	t.Parallel()
	for _, role := range director.UserRoles() {
		for _, action := range director.Actions() {
			for _, kind := range []string{"", "Provider", "Cluster", "User", "Grant", "Phase", "Project"} {
				o := director.Object{Kind: kind, Name: "x"}
				has := director.Actor{User: "u", Role: role, Scope: director.ScopeAll}
				granted := director.Actor{
					User: "u", Role: director.RoleNone, Scope: director.ScopeAll,
					Grants: []director.Granted{{Role: role}},
				}
				if auth.Can(has, action, o) != auth.Can(granted, action, o) {
					t.Errorf("%s: %s %s", role, action, kind)
				}
			}
		}
	}
}

func TestVisibleTo(t *testing.T) {
	t.Parallel()
	grants := []director.Granted{
		{Role: director.RoleUser, Project: "web"},
		{Role: director.RoleAdmin, Cluster: "shop"},
		{Role: "owner", Cluster: "x"},
	}
	for name, c := range map[string]struct {
		actor director.Actor
		want  *director.Visible
	}{
		"no grant": {director.Actor{Role: director.RoleNone}, &director.Visible{}},
		"some": {
			director.Actor{Role: director.RoleNone, Grants: grants},
			&director.Visible{Projects: []string{"web"}, Clusters: []string{"shop"}},
		},
		"role": {director.Actor{Role: director.RoleUser, Grants: grants}, nil},
		"wide grant": {director.Actor{
			Role:   director.RoleNone,
			Grants: append(slices.Clone(grants), director.Granted{Role: director.RoleUser}),
		}, nil},
	} {
		c.actor.User, c.actor.Scope = "u", director.ScopeAll
		if diff := cmp.Diff(c.want, auth.VisibleTo(c.actor, "Plan")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		some := c.want == nil || len(c.want.Projects) > 0
		if got := auth.CanSome(c.actor, director.ActRead, "Cluster"); got != some {
			t.Errorf("%s: CanSome = %v", name, got)
		}
	}
	if auth.CanSome(director.Actor{User: "u", Scope: director.ScopeAll, Grants: grants}, director.ActRead, "Provider") {
		t.Error("a grant in a project shows providers")
	}
}

package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// What a token can do is what its role and its grants allow on something, and nothing that they do not.
func TestWhatATokenCanDo(t *testing.T) {
	t.Parallel()
	self := []string{"self", "account"}
	one := director.Granted{Role: director.RoleOperator, Cluster: "demo"}
	for name, tt := range map[string]struct {
		actor director.Actor
		want  []string
	}{
		"an operator": {
			director.Actor{User: "ann", Role: director.RoleOperator, Scope: director.ScopeAll},
			append(self, "read", "plan", "run", "token", "inventory"),
		},
		"a user": {
			director.Actor{User: "ann", Role: director.RoleUser, Scope: director.ScopeAll},
			append(self, "read", "token"),
		},
		"a grant on one cluster": {
			director.Actor{
				User: "ann", Role: director.RoleNone, Scope: director.ScopeAll, Grants: []director.Granted{one},
			},
			append(self, "read", "plan", "run", "token", "inventory"),
		},
		"no grant": {director.Actor{User: "ann", Role: director.RoleNone, Scope: director.ScopeAll}, self},
		"a one-time password": {
			director.Actor{User: "ann", Role: director.RoleAdmin, Scope: director.ScopeAll, MustChange: true}, self,
		},
	} {
		if diff := cmp.Diff(tt.want, meOf(tt.actor).Can); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

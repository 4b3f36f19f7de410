package daemon

import (
	"io"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// person creates a user and returns a client of that user, whose one-time password is changed.
func person(
	t *testing.T, c Config, d *Daemon, admin *client.Client, name string, role director.UserRole,
) *client.Client {
	t.Helper()
	once, err := admin.CreateUser(t.Context(), wire.NewUser{Name: name, Role: string(role)})
	if err != nil {
		t.Fatal(err)
	}
	api := loginAs(t, c, d, name, director.Secret(once.Password))
	next := director.Secret("the own password of " + name)
	if err := api.ChangePassword(t.Context(), director.Secret(once.Password), next); err != nil {
		t.Fatal(err)
	}
	return api
}

// With approval: other, a plan that destroys starts only after a second person has agreed to it.
func TestTwoPeopleApprove(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	c.Approval = "other"
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, c, d)
	operator := person(t, c, d, admin, "oscar", director.RoleOperator)
	auditor := person(t, c, d, admin, "audrey", director.RoleAuditor)
	run(t, admin, plan.ClusterCreate)
	p, err := operator.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterDelete})
	if err != nil || len(p.Approvals) == 0 {
		t.Fatalf("%v, %v", p.Approvals, err)
	}
	for name, try := range map[string]*client.Client{"who made it": operator, "an auditor": auditor} {
		if _, err := try.ApprovePlan(t.Context(), p.ID, p.Hash); director.KindOf(err) != director.KindForbidden {
			t.Errorf("%s approves: %v", name, err)
		}
	}
	if _, err := operator.StartPlan(t.Context(), p.ID, p.Hash); director.KindOf(err) != director.KindConflict {
		t.Errorf("it starts without an approval: %v", err)
	}
	if _, err := admin.ApprovePlan(t.Context(), p.ID, p.Hash); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.StartPlan(t.Context(), p.ID, p.Hash); err != nil {
		t.Error(err)
	}
}

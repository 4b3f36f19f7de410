package hooks_test

import (
	"log/slog"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// On a PostgreSQL, which directors share, hooks are told and asked as on a database of one.
func TestHooksOnPostgreSQL(t *testing.T) {
	t.Parallel()
	storetest.Shared(t) // or the test is skipped
	address := storetest.Postgres(t)
	connect := func() *lab {
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: address}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return openOn(t, t.TempDir(), db)
	}
	one := connect()
	told := one.hook("told", webhooktest.JSON(200, ""), nil)
	asked := one.hook("asked", webhooktest.JSON(202, ""), nil)
	notify := func(phase string) plan.Step {
		return asks("told", func(p *step.HookParams) { p.Phase, p.Mode = phase, model.HookNotify })
	}
	one.begin("p1", notify("before.plan"), notify("before.lock"), asks("asked", nil), notify("after.plan"))
	one.await("the question is accepted", func() bool {
		for _, d := range one.deliveries("p1") {
			if d.State == director.HookAccepted {
				return true
			}
		}
		return false
	})
	waiting, err := one.hooks.Deliveries(t.Context(), director.HookQuery{
		Waiting: true, Limit: 10, Visible: &director.Visible{Clusters: []string{"c-p1"}},
	})
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	if none, err := one.hooks.Deliveries(t.Context(), director.HookQuery{
		Limit: 10, Visible: &director.Visible{Projects: []string{"another"}}, Before: waiting[0].ID,
	}); err != nil || len(none) != 0 {
		t.Errorf("who may not see the cluster sees %v, %v", none, err)
	}
	if _, err := one.hooks.Answer(t.Context(), "bob", waiting[0].ID, director.HookContinues, ""); err != nil {
		t.Fatal(err)
	}
	one.ends("p1", plan.StatusDone)
	one.await("all is told", func() bool { return len(told.Got()) == 3 })
	if len(asked.Got()) != 1 {
		t.Errorf("it was asked %d times", len(asked.Got()))
	}
}

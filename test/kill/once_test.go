package kill

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

// holdAnswers lets no answer be kept in the database as long as somebody holds the lock 4711: whoever did the work of a request with a key stands
// still between its commit and its answer.
const holdAnswers = `
CREATE FUNCTION hold_answers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$;
CREATE TRIGGER hold_answers BEFORE UPDATE ON once FOR EACH ROW WHEN (NEW.status <> 0) EXECUTE FUNCTION hold_answers()`

// A request that was done and whose answer never came is sent again with its key: to the same director, to another one, and to another one after
// the first was killed between its commit and its answer. Each time the client gets what was done, and it was done once.
func TestLostAnswersAreGivenAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	line, err := rig.NewLine(f.Directors[0].Listen)
	must(t, err)
	t.Cleanup(func() { _ = line.Close() })
	c, err := f.Directors[0].ClientAt(t.Context(), line.Addr())
	must(t, err)
	t.Cleanup(c.Close)
	_, err = f.api[1].Apply(t.Context(), []byte(rig.Cluster("one", "shared", workers)+rig.Cluster("two", "shared", workers)), "documents", false)
	must(t, err)

	made := f.lost(t, c, line, "a plan is made", func(ctx context.Context) (wire.Plan, error) {
		return c.MakePlan(ctx, "one", plan.Request{Operation: plan.ClusterCreate})
	}, func() bool { return len(f.plans(t, "one")) > 0 }, f.Directors[0].Listen)
	f.wantPlans(t, "one", made)

	begun := f.lost(t, c, line, "it is started", func(ctx context.Context) (wire.Plan, error) {
		return c.StartPlan(ctx, made.ID, made.Hash)
	}, func() bool { return f.plans(t, "one")[0].Phase != string(plan.PhasePlanned) }, f.Directors[1].Listen)
	if begun.ID != made.ID || begun.Hash != made.Hash {
		t.Errorf("started as %+v", begun)
	}

	line.Cut(f.Directors[0].Listen)
	_, err = c.Me(t.Context())
	must(t, err)
	_, err = f.db.Pool().Exec(t.Context(), holdAnswers)
	must(t, err)
	hold, err := f.db.Pool().Acquire(t.Context())
	must(t, err)
	defer hold.Release()
	_, err = hold.Exec(t.Context(), "SELECT pg_advisory_lock(4711)")
	must(t, err)
	answer := make(chan error, 1)
	go func() {
		var err error
		made, err = c.MakePlan(t.Context(), "two", plan.Request{Operation: plan.ClusterCreate})
		answer <- err
	}()
	await(t, "the plan is there and its answer is not kept", func() bool {
		var waiting int
		err := f.db.Pool().QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting)
		return err == nil && waiting == 1 && len(f.plans(t, "two")) == 1
	})
	line.Cut(f.Directors[1].Listen) // before the kill: what the client meets next is the other director
	must(t, f.Directors[0].Kill())
	_, err = hold.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	must(t, err)
	_, err = hold.Exec(t.Context(), "SELECT pg_advisory_unlock(4711)")
	must(t, err)
	select {
	case err := <-answer:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("there is no answer")
	}
	f.wantPlans(t, "two", made)
}

// plans lists the plans of the cluster, as the second director knows them.
func (f *fleet) plans(t *testing.T, cluster string) []wire.PlanSummary {
	t.Helper()
	plans, err := f.api[1].Plans(t.Context(), client.PlanFilter{Cluster: cluster})
	must(t, err)
	return plans
}

// wantPlans proves that there is the one plan, and that the client got it.
func (f *fleet) wantPlans(t *testing.T, cluster string, got wire.Plan) {
	t.Helper()
	plans := f.plans(t, cluster)
	if len(plans) != 1 {
		t.Fatalf("%d plans were made: %+v", len(plans), plans)
	}
	want, err := f.api[1].Plan(t.Context(), plans[0].ID)
	must(t, err)
	if diff := cmp.Diff(want.Steps, got.Steps); diff != "" || want.ID != got.ID || want.Hash != got.Hash {
		t.Errorf("the answer is another plan than %s: %s %s", want.ID, got.ID, diff)
	}
}

// lost calls the director through the line, cuts it once it was done, and lets it lead to the address. It returns the answer.
func (f *fleet) lost(
	t *testing.T, c *client.Client, line *rig.Line, what string, call func(context.Context) (wire.Plan, error), done func() bool, next string,
) wire.Plan {
	t.Helper()
	_, err := c.Me(t.Context()) // there is a connection
	must(t, err)
	line.Deafen()
	answer := make(chan wire.Plan, 1)
	fault := make(chan error, 1)
	go func() {
		p, err := call(t.Context())
		answer <- p
		fault <- err
	}()
	await(t, what, done)
	line.Cut(next)
	select {
	case p := <-answer:
		must(t, <-fault)
		return p
	case <-time.After(time.Minute):
		t.Fatalf("%s: there is no answer", what)
	}
	return wire.Plan{}
}

package access

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// published are the keys of an issuer.
type published string

func (p published) Documents(context.Context) (discovery, jwks []byte, err error) {
	return []byte("{}"), []byte(p), nil
}

// planned keeps plans in the database, and starts none.
type planned struct {
	db      *store.Store
	made    []string
	started []string
	problem error
}

func (p *planned) MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error) {
	id := "p" + string(rune('0'+len(p.made)))
	made := plan.Plan{ID: id, CreatedAt: time.Now(), CreatedBy: actor, Content: plan.Content{
		Format: plan.Format, Operation: r.Operation, Cluster: cluster, Request: r,
		Steps: []plan.Step{{ID: "s", Kind: "ansible.play", Title: "Play", Attempts: 1, Timeout: time.Minute}},
	}}
	made.Hash = plan.HashOf(made.Content)
	p.made = append(p.made, id)
	err := p.db.Update(ctx, func(tx *store.Tx) error { return tx.AddPlan(made) })
	return plan.View{Plan: made, State: plan.NewState(&made)}, err
}

func (p *planned) Start(_ context.Context, _, id, _ string) error {
	p.started = append(p.started, id)
	return p.problem
}

// A cluster that has other keys is brought the present ones, by one plan at a time.
func TestKeepTokenKeys(t *testing.T) {
	t.Parallel()
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	_, db := installedCluster(t, "10.0.0.1:6443", keys{authorities})
	docs, err := db.Documents(t.Context(), model.KindCluster)
	if err != nil {
		t.Fatal(err)
	}
	plans := &planned{db: db}
	now := time.Now()
	k := Keeper{
		Store: db, Issuer: published("one"), Plans: plans, Now: func() time.Time { return now },
		Log: slog.New(slog.DiscardHandler),
	}
	uid, present := docs[0].UID, steps.KeysDigest([]byte("{}"), []byte("one"))
	keep := func(name string, made, started int) {
		t.Helper()
		if err := k.Keep(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(plans.made) != made || len(plans.started) != started {
			t.Errorf("%s: made %v and started %v, want %d and %d", name, plans.made, plans.started, made, started)
		}
	}
	set := func(digest string) {
		t.Helper()
		if err := db.SetTokenKeys(t.Context(), uid, digest); err != nil {
			t.Fatal(err)
		}
	}
	keep("a cluster that has never had keys", 0, 0)
	set(present)
	keep("a cluster with the present keys", 0, 0)
	set("-")
	plans.problem = director.Errorf(director.KindConflict, "test", "another plan holds the cluster")
	keep("a cluster whose masters differ", 1, 1)
	plans.problem = nil
	k.Issuer = published("two")
	set(present)
	keep("other keys", 2, 2)
	if p, _, err := db.Plan(t.Context(), "p1"); err != nil || p.Operation != plan.ClusterTokenKeys ||
		p.CreatedBy != keysActor {
		t.Errorf("the plan is %+v %v", p, err)
	}
	// A person has just made a plan and is about to start it.
	if _, err := plans.MakePlan(t.Context(), "ann", "demo", plan.Request{Operation: plan.ClusterScale}); err != nil {
		t.Fatal(err)
	}
	keep("a person's plan waits", 3, 2)
	now = now.Add(2 * keysPause)
	keep("a person's plan was left", 4, 3)
}

package hooks_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
	"github.com/director-kaas/kaas/director/webhookkeys"
)

// adapted is the store as the engine wants it.
type adapted struct{ *store.Store }

func (s adapted) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return s.Store.Update(ctx, func(tx *store.Tx) error { return fn(tx) })
}

func (s adapted) Active(ctx context.Context) ([]string, error) {
	return s.Plans(ctx, store.PlanFilter{Statuses: plan.Driven()})
}

type nobody struct{}

func (nobody) HookSent(string, bool, time.Duration) {}

func (nobody) OpenHook(context.Context, string, model.Hook) (director.Credentials, error) {
	return director.Credentials{}, nil
}

// lab is a director's database with an engine and hooks on real endpoints.
type lab struct {
	t         testing.TB
	dir       string
	db        *store.Store
	box       *seal.Box
	engine    *engine.Engine
	hooks     *hooks.Service
	authority *webhooktest.Authority
	stop      func()
}

func open(t *testing.T) *lab {
	t.Helper()
	return openLab(t)
}

func openLab(t testing.TB) *lab {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, dir, db)
}

// openOn is openLab on a database.
func openOn(t testing.TB, dir string, db *store.Store) *lab {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, db: db, box: box, authority: webhooktest.NewAuthority(t)}
	l.start()
	t.Cleanup(func() { l.stop() })
	return l
}

// start starts an engine and the hooks, as a director does.
func (l *lab) start() {
	l.t.Helper()
	var err error
	if l.engine, l.hooks, err = run(l.t.Context(), l.db, l.box); err != nil {
		l.t.Fatal(err)
	}
	e, h := l.engine, l.hooks
	l.stop = func() {
		if err := h.Stop(context.Background()); err != nil {
			l.t.Error(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			l.t.Error(err)
		}
		l.stop = func() {}
	}
}

// run starts an engine and the hooks on the database.
func run(ctx context.Context, db *store.Store, box *seal.Box) (*engine.Engine, *hooks.Service, error) {
	log := slog.New(slog.DiscardHandler)
	handlers := steps.Handlers(steps.Env{
		Installation: steps.Installation{Now: time.Now},
		Clusters:     steps.Clusters{Keys: steps.Keys{Sealer: box}},
		Hooks:        hooks.Asker{Store: db, Now: time.Now},
	})
	handlers["work"] = plan.HandlerFunc(func(context.Context, plan.Run) error { return nil })
	e, err := engine.New(ctx, engine.Config{
		Director: db.DirectorID(), Store: adapted{db}, Log: log, Handlers: handlers, Workers: 4,
		Interruptions: 1000, // the test kills it more often than a director is killed
	})
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	h := hooks.New(hooks.Config{
		Store: db, Sealer: box, Engine: e, Accounts: nobody{}, Observer: nobody{},
		URL: "https://director.test", Own: func() []netip.AddrPort { return nil }, Instance: db.DirectorID(),
		Version: "test", Shared: db.Pool() != nil, Now: time.Now, Log: log,
	})
	return e, h, h.Start(ctx)
}

// hook applies a hook on an endpoint that answers so.
func (l *lab) hook(name string, answer http.HandlerFunc, change func(*model.Hook)) *webhooktest.Endpoint {
	l.t.Helper()
	e := webhooktest.Start(l.t, "127.0.0.1:0", l.authority, false, answer)
	h := model.Hook{
		URL: e.URL, Phases: []string{"before.plan"}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		TLS: model.HookTLS{CA: l.authority.PEM}, Timeout: model.Duration(30 * time.Second),
	}
	if change != nil {
		change(&h)
	}
	d := model.Document{Kind: model.KindHook, Metadata: model.Metadata{Name: name}, Hook: &h}
	model.Default(&d)
	if err := l.db.Update(l.t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(d, "test", time.Now())
	}); err != nil {
		l.t.Fatal(err)
	}
	return e
}

// asks is a step that asks the hook.
func asks(hook string, change func(*step.HookParams)) plan.Step {
	p := step.HookParams{
		Hook: hook, Phase: "before.plan", Mode: model.HookBlock, Deadline: time.Hour, OnDeadline: model.HookPark,
		OnRefuse: model.HookPark,
	}
	if change != nil {
		change(&p)
	}
	text, _ := json.Marshal(p)
	return plan.Step{
		ID: step.HookID(p.Phase, hook, "demo"), Kind: step.HookAsk, Params: text, Attempts: 3, Timeout: time.Minute,
	}
}

// begin starts a plan of the steps, one after the other, and of a last one that works.
func (l *lab) begin(id string, list ...plan.Step) {
	l.t.Helper()
	l.add(id, list...)
	if err := l.engine.Begin(l.t.Context(), id, "ann", nil); err != nil {
		l.t.Fatal(err)
	}
}

// add adds such a plan.
func (l *lab) add(id string, list ...plan.Step) {
	l.t.Helper()
	list = append(list, plan.Step{ID: "work", Kind: "work", Attempts: 1})
	for i := range list {
		if i > 0 {
			list[i].Needs = []string{list[i-1].ID}
		}
	}
	c := plan.Content{Operation: plan.ClusterUpgrade, Cluster: "c-" + id, Summary: "Upgrade it.", Steps: list}
	if err := c.Check(); err != nil {
		l.t.Fatal(err)
	}
	p := plan.Plan{ID: id, CreatedAt: time.Now(), CreatedBy: "t", Hash: plan.HashOf(c), Content: c}
	if err := l.db.Update(l.t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		l.t.Fatal(err)
	}
}

// await waits until cond holds.
func (l *lab) await(what string, cond func() bool) {
	l.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			l.t.Fatalf("it does not come to this: %s", what)
		}
		select {
		case <-l.engine.Changed():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (l *lab) status(id string) plan.Status {
	s, _, err := l.db.Progress(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *lab) ends(id string, want plan.Status) {
	l.t.Helper()
	l.await(fmt.Sprintf("plan %s is %s", id, want), func() bool { return l.status(id) == want })
}

func (l *lab) deliveries(plan string) []director.HookDelivery {
	l.t.Helper()
	list, err := l.hooks.Deliveries(l.t.Context(), director.HookQuery{Plan: plan, Limit: 100})
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

func TestAPlanContinuesWhenItsHookAgrees(t *testing.T) {
	t.Parallel()
	l := open(t)
	e := l.hook("cmdb", webhooktest.JSON(200, `{"decision":"continue","reason":"ticket 7"}`), nil)
	l.begin("p1", asks("cmdb", nil))
	l.ends("p1", plan.StatusDone)
	got := e.Got()
	if len(got) != 1 {
		t.Fatalf("it was asked %d times", len(got))
	}
	keys, err := l.hooks.Keys(t.Context(), "ann", "cmdb", false)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if err := webhook.Verify(keys[0].Public, got[0].Header, got[0].Body, time.Now()); err != nil {
		t.Error(err)
	}
	var event struct {
		SpecVersion, ID, Source, Type, Subject string
		Data                                   struct {
			Hook, Phase, Plan, Hash, Cluster, Answer string
			Blocks                                   bool
		}
	}
	if err := json.Unmarshal(got[0].Body, &event); err != nil {
		t.Fatal(err)
	}
	d := l.deliveries("p1")[0]
	if event.SpecVersion != "1.0" || event.ID != d.ID || event.ID != got[0].ID || event.Data.Plan != "p1" ||
		event.Type != "io.github.director-kaas.hook.before.plan" || event.Subject != "cluster/c-p1" ||
		!event.Data.Blocks || event.Data.Answer != "https://director.test/api/v1/hook-deliveries/"+d.ID+"/answer" ||
		event.Data.Hash == "" {
		t.Errorf("it was told %s", got[0].Body)
	}
	if d.State != director.HookAnswered || d.Decision != director.HookContinues || d.Reason != "ticket 7" {
		t.Errorf("%+v", d)
	}
}

func TestWhatFollowsARefusalAndSilence(t *testing.T) {
	t.Parallel()
	refuses, later := webhooktest.JSON(200, `{"decision":"refuse","reason":"freeze"}`), webhooktest.JSON(202, "")
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		change  func(*step.HookParams)
		want    plan.Status
		message string
	}{
		"refused, park": {refuses, nil, plan.StatusParked, "Hook/h answers for Hook/h: refuse: freeze"},
		"refused, fail": {
			refuses, func(p *step.HookParams) { p.OnRefuse = model.HookFail }, plan.StatusFailed,
			"refuse: freeze",
		},
		"refused, continue": {
			refuses, func(p *step.HookParams) { p.OnRefuse = model.HookContinue },
			plan.StatusDone, "",
		},
		"silent, park": {
			later, func(p *step.HookParams) { p.Deadline = time.Second }, plan.StatusParked,
			"has not answered before.plan within 1s",
		},
		"silent, fail": {
			later,
			func(p *step.HookParams) { p.Deadline, p.OnDeadline = time.Second, model.HookFail }, plan.StatusFailed,
			"within 1s",
		},
		"silent, continue": {
			later,
			func(p *step.HookParams) { p.Deadline, p.OnDeadline = time.Second, model.HookContinue },
			plan.StatusDone, "",
		},
		"gone, park": {
			webhooktest.JSON(410, ""), nil, plan.StatusParked,
			"cannot be asked: the endpoint says that it is gone",
		},
		"answers with pages": {
			webhooktest.JSON(200, "<html>"), func(p *step.HookParams) { p.Deadline = time.Second },
			plan.StatusParked, "not JSON",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			l.hook("h", test.answer, nil)
			l.begin("p1", asks("h", test.change))
			l.ends("p1", test.want)
			_, s, err := l.db.Plan(t.Context(), "p1")
			if err != nil || !strings.Contains(s.Message, test.message) {
				t.Errorf("%q, %v", s.Message, err)
			}
		})
	}
}

// A person who retries the step has the hook asked again, under another id.
func TestARetryAsksAgain(t *testing.T) {
	t.Parallel()
	l := open(t)
	var agrees atomic.Bool
	e := l.hook("h", func(w http.ResponseWriter, r *http.Request) {
		if agrees.Load() {
			webhooktest.JSON(200, `{"decision":"continue"}`)(w, r)
			return
		}
		webhooktest.JSON(200, `{"decision":"refuse"}`)(w, r)
	}, nil)
	l.begin("p1", asks("h", nil))
	l.ends("p1", plan.StatusParked)
	agrees.Store(true)
	if err := l.engine.Retry(t.Context(), "p1", "", "ann"); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusDone)
	if got := e.Got(); len(got) != 2 || got[0].ID == got[1].ID {
		t.Errorf("it was asked %d times: %+v", len(got), l.deliveries("p1"))
	}
}

func TestAnEndpointThatWaitsIsAskedAgain(t *testing.T) {
	t.Parallel()
	l := open(t)
	var n atomic.Int64
	e := l.hook("h", func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			webhooktest.JSON(503, "")(w, r)
		case 2:
			webhooktest.JSON(200, `{"decision":"wait","retryAfter":1,"reason":"a lock"}`)(w, r)
		default:
			webhooktest.JSON(200, `{"decision":"continue"}`)(w, r)
		}
	}, nil)
	l.begin("p1", asks("h", nil))
	l.ends("p1", plan.StatusDone)
	got := e.Got()
	if len(got) != 3 || got[0].ID != got[2].ID || string(got[0].Body) != string(got[2].Body) {
		t.Errorf("it was asked %d times", len(got))
	}
}

// A plan that is stopped asks no more; a person may leave the question out then.
func TestAPlanThatIsStoppedWithdrawsItsQuestion(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), nil)
	l.begin("p1", asks("h", nil))
	l.accepted("p1")
	if err := l.engine.Cancel(t.Context(), "p1", "ann", false); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusCancelled)
	d := l.deliveries("p1")[0]
	if d.State != director.HookWithdrawn {
		t.Errorf("%+v", d)
	}
	if _, err := l.hooks.Answer(t.Context(), "bob", d.ID, director.HookContinues,
		""); director.KindOf(err) != director.KindConflict {
		t.Errorf("an answer to what was withdrawn: %v", err)
	}
	if err := l.engine.Skip(t.Context(), "p1", d.Step, "the window is over", "ann"); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusDone)
}

func TestNotificationsKeepTheOrderOfTheirPlan(t *testing.T) {
	t.Parallel()
	l := open(t)
	var n atomic.Int64
	e := l.hook("h", func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, nil)
	var list []plan.Step
	for _, phase := range []string{"before.plan", "before.lock", "before.drain", "after.drain", "after.lock"} {
		list = append(list, asks("h", func(p *step.HookParams) { p.Phase, p.Mode = phase, model.HookNotify }))
	}
	l.begin("p1", list...)
	l.ends("p1", plan.StatusDone) // it does not wait for them
	l.await("all are delivered", func() bool {
		for _, d := range l.deliveries("p1") {
			if d.State != director.HookDelivered {
				return false
			}
		}
		return true
	})
	got := e.Got()
	if len(got) != 6 || got[0].ID != got[1].ID {
		t.Fatalf("it got %d", len(got))
	}
	for i, r := range got[1:] {
		if want := `"phase":"` + []string{
			"before.plan", "before.lock", "before.drain", "after.drain",
			"after.lock",
		}[i] + `"`; !strings.Contains(string(r.Body), want) {
			t.Errorf("%d is %s", i, r.Body)
		}
	}
}

var hanging = flag.Int("hanging", 40, "how many endpoints hang while a healthy one is asked")

// Endpoints that hang hold up their own plans alone.
func TestAHealthyEndpointDoesNotWaitForThoseThatHang(t *testing.T) {
	t.Parallel()
	l := open(t)
	many := *hanging
	release := make(chan struct{})
	hang := func(http.ResponseWriter, *http.Request) { <-release }
	defer close(release) // before the endpoints are closed
	var hung []*webhooktest.Endpoint
	for i := range many {
		hung = append(hung, l.hook(fmt.Sprintf("hangs-%d", i), hang, nil))
		l.begin(fmt.Sprintf("h%d", i), asks(fmt.Sprintf("hangs-%d", i), nil))
	}
	l.await("all hang", func() bool {
		for _, e := range hung {
			if len(e.Got()) == 0 {
				return false
			}
		}
		return true
	})
	l.hook("good", webhooktest.JSON(200, `{"decision":"continue"}`), nil)
	began := time.Now()
	l.begin("p1", asks("good", nil))
	l.ends("p1", plan.StatusDone)
	t.Logf("while %d endpoints hang, a plan that asks another one took %s", many, time.Since(began))
	for i := range many {
		if s := l.status(fmt.Sprintf("h%d", i)); s != plan.StatusRunning {
			t.Errorf("plan %d is %s: it does not hang", i, s)
		}
	}
}

func TestKeysOverlapWhenTheyAreRotated(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{model.SignEd25519, model.SignHMAC} {
		l := open(t)
		e := l.hook("h", webhooktest.JSON(200, ""), func(h *model.Hook) { h.Signature = algorithm })
		key := func(k webhookkeys.View) string {
			if algorithm == model.SignHMAC {
				return k.Shared.Reveal()
			}
			return k.Public
		}
		before, err := l.hooks.Keys(t.Context(), "ann", "h", true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.hooks.RotateKey(t.Context(), "ann", "h"); err != nil {
			t.Fatal(err)
		}
		after, err := l.hooks.Keys(t.Context(), "ann", "h", true)
		if err != nil || len(after) != 2 {
			t.Fatal(after, err)
		}
		if d, err := l.hooks.Test(t.Context(), "ann", "h"); err != nil || d.State != director.HookDelivered {
			t.Fatalf("%+v, %v", d, err)
		}
		got := e.Got()[0]
		for _, k := range []webhookkeys.View{before[0], after[0]} {
			if err := webhook.Verify(key(k), got.Header, got.Body, time.Now()); err != nil {
				t.Errorf("%s: %v", algorithm, err)
			}
		}
		if before[0].ID != after[1].ID || after[1].Ends.IsZero() || key(before[0]) == key(after[0]) {
			t.Errorf("%+v became %+v", before, after)
		}
		if public, err := l.hooks.Keys(t.Context(), "ann", "h", false); err != nil || public[0].Shared != "" {
			t.Errorf("a secret is shown unasked: %v", err)
		}
		for range 3 {
			if _, err := l.hooks.RotateKey(t.Context(), "ann", "h"); err != nil {
				t.Fatal(err)
			}
		}
		if last, err := l.hooks.Keys(t.Context(), "ann", "h", false); err != nil || len(last) != 2 {
			t.Errorf("%d keys sign, %v", len(last), err)
		}
	}
}

// An endpoint that says that it is gone is left alone until its document changes or a test succeeds.
func TestAnEndpointThatIsGone(t *testing.T) {
	t.Parallel()
	l := open(t)
	var back atomic.Bool
	e := l.hook("h", func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}, nil)
	notify := func(p *step.HookParams) { p.Mode = model.HookNotify }
	gone := func() bool {
		list, err := l.hooks.List(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0].Gone
	}
	l.begin("p1", asks("h", notify))
	l.await("it is gone", gone)
	l.begin("p2", asks("h", notify))
	l.await("it fails", func() bool {
		d := l.deliveries("p2")
		return len(d) == 1 &&
			d[0].State == director.HookFailed
	})
	if n := len(e.Got()); n != 1 {
		t.Errorf("it got %d", n)
	}
	back.Store(true)
	if d, err := l.hooks.Test(t.Context(), "ann", "h"); err != nil || d.State != director.HookDelivered || gone() {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := l.hooks.Replay(t.Context(), "ann", l.deliveries("p2")[0].ID); err != nil {
		t.Fatal(err)
	}
	l.await("it is replayed", func() bool { return l.deliveries("p2")[0].State == director.HookDelivered })
}

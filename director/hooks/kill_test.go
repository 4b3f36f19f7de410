package hooks_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
	"github.com/director-kaas/kaas/test/program"
)

var kills = flag.Int("kills", 15, "how often a process that sends to hooks is killed")

// childDir tells the test's own binary to be such a process, on the state in the directory.
const childDir = "HOOKS_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		serve(dir)
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// tests are those of the package, with a PostgreSQL server for those that want one.
type tests struct{ m *testing.M }

func (t tests) Run() int { return storetest.Main(t.m) }

// serve runs an engine and the hooks until it is killed.
func serve(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	ctx := context.Background()
	db, err := store.Open(ctx, filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	fail(err)
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), false)
	fail(err)
	e, h, err := run(ctx, db, box)
	fail(err)
	fmt.Println("runs")
	_, _ = e, h
	select {}
}

// A process that sends to hooks may be killed at any line: nothing is lost, what a plan tells keeps its order, and what
// comes twice has one id.
func TestKills(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.stop() // the processes have the database now
	const plans = 30
	phases := []string{"before.plan", "before.lock", "before.drain", "after.drain", "after.upgrade", "after.unlock"}
	var mu sync.Mutex
	failures := map[string]bool{}
	e := l.hook("h", func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Webhook-Id")
		mu.Lock()
		again := failures[id]
		failures[id] = true
		mu.Unlock()
		if !again && rand.IntN(8) == 0 { // some events are not received the first time
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		webhooktest.JSON(200, `{"decision":"continue"}`)(w, r)
	}, nil)
	for i := range plans {
		var list []plan.Step
		for n, phase := range phases {
			list = append(list, asks("h", func(p *step.HookParams) {
				if p.Phase = phase; n%2 == 1 {
					p.Mode = model.HookNotify
				}
			}))
		}
		l.add(fmt.Sprintf("p%d", i), list...)
	}
	l.start()
	for i := range plans {
		if err := l.engine.Begin(t.Context(), fmt.Sprintf("p%d", i), "ann", nil); err != nil {
			t.Fatal(err)
		}
	}
	l.stop()
	for range *kills {
		program.KilledAfter(t, childDir+"="+l.dir, time.Duration(rand.IntN(60))*time.Millisecond)
	}
	l.start()
	for i := range plans {
		l.ends(fmt.Sprintf("p%d", i), plan.StatusDone)
		l.await("all is told", func() bool {
			for _, d := range l.deliveries(fmt.Sprintf("p%d", i)) {
				if d.State.Open() {
					return false
				}
			}
			return true
		})
	}
	check(t, e.Got(), plans, phases)
}

// check looks whether each plan has told each phase, in their order, and whether an id is that of one phase of a plan.
func check(t *testing.T, got []webhooktest.Request, plans int, phases []string) {
	t.Helper()
	told, ids := map[string][]string{}, map[string]string{}
	for _, r := range got {
		var event struct {
			Data struct{ Plan, Phase string }
		}
		if err := json.Unmarshal(r.Body, &event); err != nil {
			t.Fatal(err)
		}
		of := event.Data.Plan + " " + event.Data.Phase
		switch id, again := ids[of]; {
		case again && id != r.ID:
			t.Errorf("%s has the ids %s and %s", of, id, r.ID)
		case !again:
			ids[of] = r.ID
			told[event.Data.Plan] = append(told[event.Data.Plan], event.Data.Phase)
		}
	}
	for i := range plans {
		id := fmt.Sprintf("p%d", i)
		// Blocking phases come one after the other; notifications of one hook, too.
		if fmt.Sprint(told[id]) != fmt.Sprint(phases) {
			t.Errorf("plan %s has told %v", id, told[id])
		}
	}
	t.Logf("%d requests for %d events", len(got), len(ids))
}

package daemon

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/wire"
)

// wantRefusal wants that no plan can be made of the cluster, for that reason.
func wantRefusal(t *testing.T, api *client.Client, kind director.Kind, says string) {
	t.Helper()
	_, err := api.MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterSSHAuthority})
	if director.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("a plan was to be refused with %s %q: %v", kind, says, err)
	}
}

func (d *Daemon) pass(t *testing.T) {
	t.Helper()
	if err := d.claims.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A director is handed over in the middle of a plan and continues on another machine. The former one works on nothing,
// also after a restart, until it is told to; then the other one stops.
func TestDirectorIsHandedOver(t *testing.T) {
	t.Parallel()
	l, d := makeLost(t, "")
	api := connect(t, l.Config, d)
	run(t, api, plan.ClusterCreate)
	d.pass(t)
	half := scaling(t, api)
	file := filepath.Join(t.TempDir(), "bundle")
	if err := handOver(t, l, file); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, api, director.KindUnavailable, "handed over")
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := start(t, l.Config, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api = connect(t, l.Config, d)
	wantRefusal(t, api, director.KindUnavailable, "handed over")
	d.release(t.Context(), func() {}) // as at the end of an upgrade
	_, err = d.services.planning.MakePlan(t.Context(), "schedule", "demo", plan.Request{})
	if director.KindOf(err) != director.KindConflict {
		t.Errorf("a schedule makes a plan: %v", err)
	}
	wantRefusal(t, api, director.KindUnavailable, "handed over")
	if p, err := api.Plan(t.Context(), half); err != nil || p.Status != string(plan.StatusRunning) {
		t.Errorf("the former director shows the plan as %s (%v)", p.Status, err)
	}

	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	fresh := l.Config // it takes the address of the former one, too
	fresh.StateDir = filepath.Join(t.TempDir(), "state")
	if err := l.unpack(t, file, fresh.StateDir).Place(); err != nil {
		t.Fatal(err)
	}
	next, err := start(t, fresh, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	other := connect(t, fresh, next)
	next.pass(t)
	wantPlanDone(t, other, half)
	wantCalledBack(t, l, other, next, half)
}

// wantCalledBack has the former director take over while the other one, which has ended the plan, still runs.
func wantCalledBack(t *testing.T, l lost, other *client.Client, next *Daemon, half string) {
	t.Helper()
	back := l.Config
	back.RegistryListen = simulating(t, "").RegistryListen
	d, err := start(t, back, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.TakeOver(t.Context(), l.StateDir); err != nil {
		t.Fatal(err)
	}
	next.pass(t)
	wantRefusal(t, other, director.KindConflict, "another copy of this director works on cluster demo")
	if err := other.Ready(t.Context()); err != nil {
		t.Errorf("the other one can be asked, and is ready: %v", err)
	}
	d.pass(t)
	_, err = connect(t, back, d).MakePlan(t.Context(), "demo", plan.Request{Operation: plan.ClusterSSHAuthority})
	if err != nil && !strings.Contains(err.Error(), half) { // which it continues
		t.Errorf("the director that was called back makes no plan: %v", err)
	}
}

// handOver hands the director over into a file.
func handOver(t *testing.T, l lost, file string) error {
	t.Helper()
	var out bytes.Buffer
	err := client.HandOver(t.Context(), l.StateDir, []string{l.key.Recipient().String()}, &out)
	if err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o600)
}

// What is wrong with a hand-over is found before anything stops.
func TestWrongHandOvers(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, recipients := range map[string][]string{
		"none": nil, "not a key": {"age1"}, "a private key": {"AGE-SECRET-KEY-1"},
	} {
		err := client.HandOver(t.Context(), c.StateDir, recipients, io.Discard)
		if director.KindOf(err) != director.KindInvalid || d.held.Load() {
			t.Errorf("%s: %v, held: %t", name, err, d.held.Load())
		}
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	body := `{"recipients":["` + key.Recipient().String() + `"]}`
	ask := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, wire.HandOverPath, strings.NewReader(body))
		d.handOver(d.services.db, "test")(w, r)
		return w
	}
	stranger := context.WithValue(t.Context(), peerKey{}, peer{uid: os.Geteuid() + 1})
	if os.Geteuid() != 0 {
		stranger = t.Context()
	}
	if w := ask(stranger); w.Code != http.StatusForbidden || d.held.Load() {
		t.Errorf("a stranger gets %d, held: %t", w.Code, d.held.Load())
	}
}

// The appliance restores the data of a former root, whose database does not know the starts since. The director takes
// its clusters over once for each time.
func TestRestoredDataTakesOver(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	for i, step := range []struct {
		saved string
		want  int64
	}{{"", 0}, {"2026-11-28T01:00:00Z", 1}, {"2026-11-28T01:00:00Z", 1}, {"2026-11-28T02:00:00Z", 2}} {
		if step.saved != "" {
			mark := filepath.Join(c.StateDir, rootdisk.RestoredFile)
			if err := os.WriteFile(mark, []byte(step.saved+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d, err := start(t, c, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		_, times, err := d.services.db.Claimed(t.Context())
		if err != nil || times != step.want {
			t.Errorf("start %d, with data of %q: taken over %d times, want %d (%v)", i, step.saved, times,
				step.want, err)
		}
		if err := d.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

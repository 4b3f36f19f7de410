package phases

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/servicetest"
)

// roots is an appliance that runs v1, with an upload of v2. What is asked for is not done.
type roots struct {
	state   rootdisk.State
	upload  error // what is wrong with the upload
	refuses error
	asked   []rootdisk.Request
}

var (
	first  = rootdisk.Root{Version: "v1", Built: 1000, Schema: "0054"}
	second = rootdisk.Root{Version: "v2", Built: 2000, Schema: "0055"}
)

func (r *roots) State(context.Context) (rootdisk.State, error) { return r.state, nil }

func (r *roots) Look(context.Context, string) (rootdisk.Root, error) {
	if r.upload != nil {
		return rootdisk.Root{}, r.upload
	}
	return second, rootdisk.Newer(r.state.Running.Root, second)
}

func (r *roots) Upgrade(_ context.Context, _ string, q rootdisk.Request) error {
	if r.refuses == nil {
		r.asked = append(r.asked, q)
	}
	return r.refuses
}

// crew is a director on an appliance, or several on one database.
type crew struct {
	*testing.T
	l   *servicetest.Lab
	now time.Time
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	return &crew{t, servicetest.Open(t, 1, 1), time.Unix(1_750_000_000, 0).UTC()}
}

func (c *crew) director(name string) (*Service, *roots) {
	c.Helper()
	r := &roots{state: rootdisk.State{Running: rootdisk.Held{Slot: rootdisk.A, Root: first}}}
	if err := c.l.Store.Beat(c.Context(), "i-"+name, name, c.now, c.now); err != nil {
		c.Fatal(err)
	}
	return New(Config{
		Store: c.l.Store, Worlds: noWorld{}, Nodes: &health{}, Upgrades: r, Instance: "i-" + name, Host: name,
		PlanLife: 24 * time.Hour, Now: func() time.Time { return c.now },
	}), r
}

func (c *crew) ask(s *Service, id string, r director.PhaseRequest) (View, error) {
	r.Phase, r.Upload = director.PhaseDirector, strings.Repeat("a", 64)
	return s.AskPhase(c.Context(), "outer", id, r)
}

func (c *crew) want(s *Service, id string, state director.PhaseState, words ...string) View {
	c.Helper()
	v, err := s.Phase(c.Context(), id)
	if err != nil || v.State != state || v.Finished.IsZero() != !v.Parts[0].Ended {
		c.Fatalf("task %s is %s: %s, %v; want %s", id, v.State, v.Message, err, state)
	}
	for _, w := range words {
		if !strings.Contains(v.Message+"\n"+v.Hint, w) {
			c.Errorf("%q does not tell %q", v.Message+"\n"+v.Hint, w)
		}
	}
	return v
}

func (c *crew) tick(s *Service) {
	c.Helper()
	if err := s.Tick(c.Context()); err != nil {
		c.Fatal(err)
	}
}

// A director is upgraded once for a task, however often it is asked, and another process of it finds the outcome.
func TestUpgradeOfTheDirector(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	s, r := c.director("d1")
	v, err := c.ask(s, "t1", director.PhaseRequest{Within: 5 * time.Minute})
	if err != nil || v.State != director.PhaseRunning || v.Parts[0].Upgrade.To != "v2" {
		t.Fatalf("%+v, %v", v, err)
	}
	if _, err := c.ask(s, "t1", director.PhaseRequest{Within: 5 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	_, err = c.ask(s, "t1", director.PhaseRequest{})
	servicetest.WantKind(t, err, director.KindConflict, "task t1 was given for", "within 5m0s")
	want := rootdisk.Request{By: "outer", Task: "t1", Drain: rootdisk.UsualDrain, Within: 300}
	if len(r.asked) != 1 || r.asked[0] != want {
		t.Fatalf("root was asked %+v", r.asked)
	}
	r.state.Change = rootdisk.Change{
		Task: "t1", Stage: rootdisk.Writing, Began: c.now, Done: 7, Total: 10, To: rootdisk.Held{Root: second},
	}
	if v := c.want(s, "t1", director.PhaseRunning, "writing", "v1 to v2"); v.Parts[0].Upgrade.Done != 7 {
		t.Errorf("%+v", v.Parts[0].Upgrade)
	}
	// The process of the new root, while it is tried.
	r.state.Change.Stage = rootdisk.Trying
	tried, other := c.director("d1")
	other.state = r.state
	held := true
	tried.Held = func() bool { return held }
	c.want(tried, "t1", director.PhaseRunning, "trying")
	other.state.Change.Stage, other.state.Running.Root = rootdisk.Done, second
	held = false
	c.tick(tried)
	c.want(tried, "t1", director.PhaseDone, "version v2 runs")
	other.state.Change = rootdisk.Change{Stage: rootdisk.Failed, Began: c.now.Add(time.Hour)}
	c.want(tried, "t1", director.PhaseDone) // what was answered stays answered
	if v, err := c.ask(tried, "t2", director.PhaseRequest{}); err != nil || v.State != director.PhaseDone {
		t.Errorf("to the version that runs: %+v, %v", v, err)
	}
}

// What ends without the new version is told with its reason.
func TestUpgradesOfTheDirectorThatFail(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_750_000_001, 0).UTC()
	for name, tt := range map[string]struct {
		change rootdisk.Change
		later  time.Duration
		want   director.PhaseState
		words  []string
	}{
		"rolled back": {
			rootdisk.Change{Task: "t1", Stage: rootdisk.Failed, Began: began, Reason: "no answer", Hint: "look there"},
			0,
			director.PhaseFailed,
			[]string{"version v1 runs: no answer", "look there", "another task id"},
		},
		"another change came after it": {
			rootdisk.Change{Stage: rootdisk.Done, Began: began},
			0,
			director.PhaseFailed,
			[]string{"version v1 runs, after another change"},
		},
		"root has not taken it yet": {
			rootdisk.Change{},
			10 * time.Second, director.PhaseRunning,
			[]string{"asked for"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t)
			s, r := c.director("d1")
			if _, err := c.ask(s, "t1", director.PhaseRequest{}); err != nil {
				t.Fatal(err)
			}
			r.state.Change = tt.change
			c.now = c.now.Add(tt.later)
			c.want(s, "t1", tt.want, tt.words...)
			if len(r.asked) != 1 {
				t.Errorf("root was asked %d times", len(r.asked))
			}
		})
	}
}

// A request that was lost with its process is made again as long as the archive is there.
func TestLostRequestForAnUpgrade(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	s, r := c.director("d1")
	r.refuses = errors.New("the disk is gone")
	if _, err := c.ask(s, "t1", director.PhaseRequest{}); err == nil {
		t.Fatal("the error is not told")
	}
	r.refuses = nil
	c.want(s, "t1", director.PhaseRunning)
	if len(r.asked) != 0 {
		t.Fatal("it was asked for again too early")
	}
	c.now = c.now.Add(2 * lostAfter)
	c.want(s, "t1", director.PhaseRunning)
	if len(r.asked) != 1 {
		t.Fatalf("root was asked %d times", len(r.asked))
	}
	c.now = c.now.Add(2 * lostAfter)
	r.upload = director.Errorf(director.KindNotFound, "test", "there is no upload")
	c.want(s, "t1", director.PhaseWaiting, "there is no upload", "not on d1")
	c.now = c.now.Add(25 * time.Hour)
	c.want(s, "t1", director.PhaseFailed, "given up after 24h0m0s")
}

// A task is refused for what can be known to be wrong at once, and waits for what passes.
func TestUpgradesOfTheDirectorThatCannotBegin(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	s, r := c.director("d1")
	r.upload = director.Errorf(director.KindInvalid, "test", "no trusted key has signed it")
	_, err := c.ask(s, "t1", director.PhaseRequest{})
	servicetest.WantKind(t, err, director.KindInvalid, "no trusted key")
	r.upload = nil
	r.state.Running.Built = 9000
	_, err = c.ask(s, "t1", director.PhaseRequest{})
	servicetest.WantKind(t, err, director.KindConflict, "downgrade")
	r.state.Running.Root = first
	_, err = c.ask(s, "t1", director.PhaseRequest{Director: "nowhere"})
	servicetest.WantKind(t, err, director.KindNotFound, "nowhere")
	if _, err := s.Phase(t.Context(), "t1"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("what was refused is kept: %v", err)
	}
	r.state.Change = rootdisk.Change{Stage: rootdisk.Writing, Began: c.now}
	if _, err = c.ask(s, "t1", director.PhaseRequest{}); err != nil {
		t.Fatal(err)
	}
	c.want(s, "t1", director.PhaseWaiting, "another change of the root", "directorctl appliance status")
	r.state.Change.Stage = rootdisk.Failed
	c.tick(s) // without a question
	c.want(s, "t1", director.PhaseRunning)
}

// Of several directors the named one upgrades itself, whoever was asked, and one at a time.
func TestUpgradeOfOneOfSeveralDirectors(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	s1, r1 := c.director("d1")
	s2, r2 := c.director("d2")
	_, err := c.ask(s1, "t1", director.PhaseRequest{})
	servicetest.WantKind(t, err, director.KindInvalid, "several directors")
	v, err := c.ask(s1, "t1", director.PhaseRequest{Director: "d2"})
	if err != nil || v.State != director.PhaseWaiting {
		t.Fatalf("%+v, %v", v, err)
	}
	c.tick(s1)
	if len(r1.asked)+len(r2.asked) != 0 {
		t.Fatal("the wrong one has begun")
	}
	c.tick(s2)
	c.want(s1, "t1", director.PhaseRunning, "d2: the upgrade is asked for")
	if _, err := c.ask(s1, "t2", director.PhaseRequest{Director: "d1"}); err != nil {
		t.Fatal(err)
	}
	c.want(s1, "t2", director.PhaseWaiting, "the director on d2 is being upgraded by task t1")
	r2.state.Change = rootdisk.Change{Task: "t1", Stage: rootdisk.Done, Began: c.now}
	r2.state.Running.Root = second
	if err := c.l.Store.Beat(t.Context(), "i-d2", "d2", c.now, time.Time{}); err != nil { // it restarts
		t.Fatal(err)
	}
	c.want(s1, "t1", director.PhaseRunning)
	c.tick(s2)
	c.want(s1, "t1", director.PhaseDone, "version v2 runs")
	c.tick(s1)
	c.want(s2, "t2", director.PhaseRunning)
	// A director that does not come back.
	if err := c.l.Store.Beat(t.Context(), "i-d1", "d1", c.now, time.Time{}); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(25 * time.Hour)
	c.want(s2, "t2", director.PhaseFailed, "given up", "console of its VM")
}

// An archive that another director has is fetched before the upgrade begins; until then the task waits.
func TestArchiveOfAnotherDirector(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	s, r := c.director("d1")
	r.upload = director.Errorf(director.KindNotFound, "test", "there is no upload")
	fetched, answer := 0, r.upload
	s.Fetch = func(context.Context, string) error {
		fetched++
		if answer == nil {
			r.upload = nil
		}
		return answer
	}
	v, err := c.ask(s, "t1", director.PhaseRequest{})
	if err != nil || v.State != director.PhaseWaiting || fetched != 0 {
		t.Fatalf("%+v, %v; fetched %d times", v, err, fetched)
	}
	c.tick(s)
	c.want(s, "t1", director.PhaseWaiting, "not on d1")
	answer = director.Errorf(director.KindUnavailable, "test", "d2 is busy")
	if err := s.Tick(t.Context()); err == nil {
		t.Error("what went wrong is not told")
	}
	answer = nil
	c.tick(s)
	c.want(s, "t1", director.PhaseRunning)
	c.tick(s)
	if fetched != 3 || len(r.asked) != 1 {
		t.Errorf("fetched %d times, asked %d times", fetched, len(r.asked))
	}
}

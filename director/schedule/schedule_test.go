package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a database with a clock, on which any number of directors work.
type bundle struct {
	t  *testing.T
	db *store.Store

	mu    sync.Mutex
	clock time.Time
	ran   []string // slots that the test's job was called for
	hold  chan struct{}
	begun chan struct{}
	fail  error
}

func setup(t *testing.T, now string) *bundle {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &bundle{t: t, db: db, clock: at(now), begun: make(chan struct{}, 100)}
}

func (b *bundle) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clock
}

func (b *bundle) set(now string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock = at(now)
}

// apply stores a schedule named s that runs the job.
func (b *bundle) apply(job string, change ...func(*model.Schedule)) model.Stored {
	b.t.Helper()
	d := model.Schedule{
		Cron: "0 * * * *", TimeZone: "UTC", Job: model.ScheduledJob{Name: job},
		Deadline: model.Duration(30 * time.Minute),
	}
	for _, c := range change {
		c(&d)
	}
	doc := model.Document{Kind: model.KindSchedule, Metadata: model.Metadata{Name: "s"}, Schedule: &d}
	if err := b.db.Update(b.t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(doc, "admin", b.now())
	}); err != nil {
		b.t.Fatal(err)
	}
	return b.stored()
}

func (b *bundle) stored() model.Stored {
	b.t.Helper()
	d, err := b.db.Document(b.t.Context(), model.Ref{Kind: model.KindSchedule, Name: "s"})
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// clocked is a database with the test's clock.
type clocked struct {
	*store.Store
	now func() time.Time
}

func (c clocked) Clock(context.Context) (time.Time, error) { return c.now(), nil }

// director returns a scheduler of its own; it ends with the test.
func (b *bundle) director(more ...schedule.Job) *schedule.Scheduler {
	return b.directorAt(b.now, more...)
}

// directorAt returns a scheduler on a machine with that clock.
func (b *bundle) directorAt(now func() time.Time, more ...schedule.Job) *schedule.Scheduler {
	work := func(*schedule.Params) schedule.Work {
		return func(ctx context.Context, r director.ScheduleRun) (schedule.Result, error) {
			b.mu.Lock()
			b.ran = append(b.ran, fmt.Sprintf("%s/%d", r.Slot.Format("15:04"), r.Attempt))
			hold, fail := b.hold, b.fail
			b.mu.Unlock()
			b.begun <- struct{}{}
			if hold != nil {
				select {
				case <-hold:
				case <-ctx.Done():
					return schedule.Result{}, ctx.Err()
				}
			}
			return schedule.Result{Message: "did it"}, fail
		}
	}
	s := schedule.New(schedule.Config{
		Store: clocked{b.db, b.now}, Now: now, Lease: time.Minute,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		Jobs: append(
			[]schedule.Job{{Name: "once", Prepare: work}, {Name: "again", Repeatable: true, Prepare: work}}, more...,
		),
	})
	b.t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			b.t.Error(err)
		}
	})
	return s
}

// tick ticks, and waits until the jobs have ended unless they are held.
func (b *bundle) tick(s *schedule.Scheduler) time.Time {
	b.t.Helper()
	next, err := s.Tick(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if b.hold == nil {
		s.Wait()
	}
	return next
}

type record struct {
	Slot, By string
	Attempt  int
	Status   director.RunStatus
	Missed   int
	Message  string
}

func (b *bundle) records() []record {
	b.t.Helper()
	runs, err := b.db.Runs(b.t.Context(), b.stored().UID, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []record
	for _, r := range runs {
		if (r.Status == director.RunRunning) != r.Finished.IsZero() {
			b.t.Errorf("%s run with the end %v", r.Status, r.Finished)
		}
		out = append(out, record{r.Slot.Format("15:04"), r.By, r.Attempt, r.Status, r.Missed, r.Message})
	}
	return out
}

func (b *bundle) want(records ...record) {
	b.t.Helper()
	if diff := cmp.Diff(records, b.records()); diff != "" {
		b.t.Error(diff)
	}
}

func TestASlotIsRunOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:59:00Z")
	b.apply("once")
	s := b.director()
	if next := b.tick(s); !next.Equal(at("2026-01-01T10:00:00Z")) || len(b.ran) > 0 {
		t.Errorf("next %s, ran %v", next, b.ran)
	}
	b.set("2026-01-01T10:00:00Z")
	for range 3 {
		if next := b.tick(s); !next.Equal(at("2026-01-01T11:00:00Z")) {
			t.Errorf("next %s", next)
		}
	}
	b.fail = errors.New("boom")
	b.set("2026-01-01T11:00:05Z")
	b.tick(s)
	b.want(
		record{Slot: "11:00", Attempt: 1, Status: director.RunFailed, Message: "did it\nboom"},
		record{Slot: "10:00", Attempt: 1, Status: director.RunDone, Message: "did it"},
	)
}

// However many directors see a slot come, one runs it.
func TestSeveralDirectorsOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	b.apply("once")
	var directors []*schedule.Scheduler
	for range 4 {
		directors = append(directors, b.director())
	}
	for hour := 10; hour < 20; hour++ {
		b.set(fmt.Sprintf("2026-01-01T%02d:00:00Z", hour))
		var all sync.WaitGroup
		for _, s := range directors {
			all.Go(func() {
				if _, err := s.Tick(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, s := range directors {
			s.Wait()
		}
	}
	if len(b.ran) != 10 || len(b.records()) != 10 {
		t.Errorf("ran %v", b.ran)
	}
}

// Two that read the same cursor: the second finds its slot taken, by the cursor and by the key.
func TestALostClaimStoresNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	uid := b.apply("once").UID
	slot, run := at("2026-01-01T10:00:00Z"),
		director.ScheduleRun{UID: uid, Slot: at("2026-01-01T10:00:00Z"), Attempt: 1, Status: director.RunRunning}
	for i, want := range []bool{true, false} {
		won, err := b.db.ClaimSlots(t.Context(), uid, time.Time{}, slot, []director.ScheduleRun{run})
		if err != nil || won != want {
			t.Errorf("claim %d: %v, %v", i, won, err)
		}
	}
	// The cursor is right, but the run is there.
	won, err := b.db.ClaimSlots(t.Context(), uid, slot, slot.Add(time.Hour), []director.ScheduleRun{run})
	if err != nil || won {
		t.Errorf("a second run of the slot: %v, %v", won, err)
	}
	if c, err := b.db.SlotCursor(t.Context(), uid); err != nil || !c.Equal(slot) {
		t.Errorf("the cursor is at %s, %v", c, err)
	}
}

func TestMissedSlots(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	b.apply("once")
	b.tick(b.director())
	// Down for the slots of 10 to 13; the last is 20 minutes ago.
	b.set("2026-01-01T13:20:00Z")
	s := b.director()
	b.tick(s)
	// Down for those of 14 to 16; the last is past the deadline.
	b.set("2026-01-01T16:40:00Z")
	b.tick(s)
	b.tick(s)
	b.want(
		record{
			Slot: "16:00", Attempt: 1, Status: director.RunMissed, Missed: 3,
			Message: "no director was there, and 40m0s is past the deadline of 30m0s",
		},
		record{Slot: "13:00", Attempt: 1, Status: director.RunDone, Message: "did it"},
		record{
			Slot: "12:00", Attempt: 1, Status: director.RunMissed, Missed: 3,
			Message: "no director was there; the last slot is run late",
		},
	)
}

// What was due before a schedule was changed or while it was suspended is not made up for.
func TestSuspendAndChange(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	b.apply("once", func(d *model.Schedule) { d.Suspend = true })
	s := b.director()
	b.set("2026-01-01T12:10:00Z")
	if next := b.tick(s); !next.IsZero() || len(b.ran) > 0 {
		t.Errorf("a suspended schedule: next %s, ran %v", next, b.ran)
	}
	b.apply("once", func(d *model.Schedule) { d.Cron = "*/15 * * * *" })
	if next := b.tick(s); !next.Equal(at("2026-01-01T12:15:00Z")) || len(b.records()) > 0 {
		t.Errorf("resumed: next %s, %v", next, b.records())
	}
	b.set("2026-01-01T12:15:01Z")
	b.tick(s)
	b.want(record{Slot: "12:15", Attempt: 1, Status: director.RunDone, Message: "did it"})
}

func TestARunThatIsNotOver(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	d := b.apply("once")
	s := b.director()
	b.hold = make(chan struct{})
	b.set("2026-01-01T10:00:00Z")
	b.tick(s)
	<-b.begun
	if _, err := s.RunNow(t.Context(), d, "admin"); director.KindOf(err) != director.KindConflict {
		t.Errorf("a second run at once: %v", err)
	}
	b.set("2026-01-01T11:00:00Z")
	// as the scheduler does while it runs
	if err := b.db.LeaseRuns(t.Context(), ownerOf(t, b), b.now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b.tick(s)
	close(b.hold)
	s.Wait()
	b.want(
		record{
			Slot: "11:00", Attempt: 1, Status: director.RunMissed, Missed: 1,
			Message: "the run of 2026-01-01T10:00:00Z had not ended",
		},
		record{Slot: "10:00", Attempt: 1, Status: director.RunDone, Message: "did it"},
	)
}

func ownerOf(t *testing.T, b *bundle) string {
	t.Helper()
	r, ok, err := b.db.RunningRun(t.Context(), b.stored().UID)
	if err != nil || !ok {
		t.Fatal("nothing runs", err)
	}
	return r.Owner
}

func TestRunNow(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	d := b.apply("once", func(d *model.Schedule) { d.Suspend = true })
	s := b.director()
	r, err := s.RunNow(t.Context(), d, "carol")
	if err != nil || r.Status != director.RunRunning {
		t.Fatal(r, err)
	}
	s.Wait()
	b.want(record{Slot: "09:30", By: "carol", Attempt: 1, Status: director.RunDone, Message: "did it"})
}

// A director that died between the claim and the outcome: its lease ends, and somebody else tells.
func TestCrashBetweenClaimAndOutcome(t *testing.T) {
	t.Parallel()
	const lost = "the director that ran it stopped or died"
	for job, want := range map[string][]record{
		"once": {{Slot: "10:00", Attempt: 1, Status: director.RunInterrupted, Message: lost}},
		"again": {
			{Slot: "10:00", Attempt: 2, Status: director.RunDone, Message: "did it"},
			{Slot: "10:00", Attempt: 1, Status: director.RunInterrupted, Message: lost},
		},
	} {
		t.Run(job, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "2026-01-01T09:30:00Z")
			uid := b.apply(job).UID
			slot := at("2026-01-01T10:00:00Z")
			dead := director.ScheduleRun{
				UID: uid, Schedule: "s", Slot: slot, Attempt: 1, Job: job, Status: director.RunRunning, Started: slot,
				Owner: "dead", Lease: slot.Add(time.Minute),
			}
			if won, err := b.db.ClaimSlots(t.Context(), uid, time.Time{}, slot, []director.ScheduleRun{
				dead,
			}); err != nil || !won {
				t.Fatal(won, err)
			}
			s := b.director()
			b.set("2026-01-01T10:00:59Z")
			b.tick(s)
			if len(b.ran) > 0 {
				t.Error("the lease was not waited for")
			}
			b.set("2026-01-01T10:01:01Z")
			b.tick(s)
			b.want(want...)
			// The dead one wakes up late, and its outcome does not count.
			dead.Status, dead.Finished, dead.Message = director.RunDone, b.now(), "late"
			if won, err := b.db.EndRun(t.Context(), dead); err != nil || won {
				t.Errorf("a late outcome: %v, %v", won, err)
			}
			b.want(want...)
		})
	}
}

// A repeatable run that kills its director every time is not made for ever.
func TestRepetitionHasAnEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	b.apply("again")
	b.hold = make(chan struct{})
	b.set("2026-01-01T10:00:00Z")
	for i := range 5 {
		s := b.director()
		b.tick(s)
		if i < 3 {
			<-b.begun
		}
		if err := s.Stop(t.Context()); err != nil { // gives the lease up
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"10:00/1", "10:00/2", "10:00/3"}, b.ran); diff != "" {
		t.Error(diff)
	}
	if got := b.records(); len(got) != 3 || got[0].Status != director.RunInterrupted {
		t.Errorf("got %+v", got)
	}
}

// The loop itself, with a real clock: what is woken is looked at, and what runs when it stops is given up.
func TestStartWakeStop(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:59:59Z")
	b.apply("again")
	s := b.director()
	b.hold = make(chan struct{})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.set("2026-01-01T10:00:00Z")
	s.Wake()
	<-b.begun
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := b.db.LostRuns(t.Context(), b.now())
	if err != nil || len(lost) != 1 || lost[0].Status != director.RunRunning {
		t.Errorf("%+v, %v", lost, err)
	}
}

func TestAPanicIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T09:30:00Z")
	d := b.apply("bad")
	s := b.director(schedule.Job{Name: "bad", Prepare: func(*schedule.Params) schedule.Work {
		return func(context.Context, director.ScheduleRun) (schedule.Result, error) { panic("oops") }
	}})
	if _, err := s.RunNow(t.Context(), d, "admin"); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	b.want(record{
		Slot: "09:30", By: "admin", Attempt: 1, Status: director.RunFailed,
		Message: "the job hit a defect of the director",
	})
}

type fakePlans struct{ begun []string }

func (f *fakePlans) Begin(_ context.Context, actor, cluster string, op plan.Operation) (string, error) {
	f.begun = append(f.begun, fmt.Sprintf("%s of %s by %s", op, cluster, actor))
	switch cluster {
	case "held":
		return "", director.Errorf(director.KindConflict, "t", "plan p9 holds cluster held").WithHint("wait")
	case "fine":
		return "", nil
	}
	return "p1", nil
}

// A job that makes plans is an operation with a planner, and nothing else.
func TestAJobThatMakesPlans(t *testing.T) {
	t.Parallel()
	plans := &fakePlans{}
	job := schedule.PlanJob("rotate", "Renews certificates.", "certificates.rotate", plans)
	for cluster, want := range map[string]record{
		"demo": {Status: director.RunDone, Message: "plan p1 was started for cluster demo"},
		"fine": {Status: director.RunDone, Message: "cluster fine needs nothing"},
		"held": {Status: director.RunFailed, Message: "plan p9 holds cluster held"},
	} {
		b := setup(t, "2026-01-01T09:30:00Z")
		b.apply("rotate", func(d *model.Schedule) { d.Job.Params = map[string]any{"cluster": cluster} })
		s := b.director(job)
		b.set("2026-01-01T10:00:00Z")
		b.tick(s)
		want.Slot, want.Attempt = "10:00", 1
		b.want(want)
		if runs, err := b.db.Runs(
			t.Context(), b.stored().UID, 1,
		); err != nil || (runs[0].Plan == "p1") != (cluster == "demo") {
			t.Errorf("%s: the record names plan %q, %v", cluster, runs[0].Plan, err)
		}
	}
	if len(plans.begun) != 3 || plans.begun[0][:len("certificates.rotate of ")] != "certificates.rotate of " {
		t.Errorf("got %v", plans.begun)
	}
}

// Machines whose clocks differ by more than a lease agree on the database's: a run is neither taken from a director
// that works on it, nor begun before its time.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, "2026-01-01T09:30:00Z")
			b.apply("again")
			b.hold = make(chan struct{})
			worker := b.directorAt(func() time.Time { return b.now().Add(skew) })
			peer := b.directorAt(func() time.Time { return b.now().Add(-skew) })
			b.tick(peer)
			b.tick(worker)
			if got := b.records(); len(got) > 0 {
				t.Fatalf("something ran before its time: %+v", got)
			}
			b.set("2026-01-01T10:00:00Z")
			b.tick(worker)
			<-b.begun
			b.tick(peer)
			if got := b.records(); len(got) != 1 || got[0].Status != director.RunRunning || got[0].Attempt != 1 {
				t.Errorf("the run was taken from a director that works on it: %+v", got)
			}
			close(b.hold)
			worker.Wait()
			if got := b.records(); len(got) != 1 || got[0].Status != director.RunDone {
				t.Errorf("the run did not end as itself: %+v", got)
			}
		})
	}
}

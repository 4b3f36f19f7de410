package schedule_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/store"
)

// work prepares a job with parameters that must be right, and runs it.
func work(t *testing.T, j schedule.Job, params map[string]any) (schedule.Result, error) {
	t.Helper()
	s := schedule.New(schedule.Config{Jobs: []schedule.Job{j}})
	d := model.Schedule{Cron: "@daily", TimeZone: "UTC", Job: model.ScheduledJob{Name: j.Name, Params: params}}
	if f := s.Check(d); len(f) > 0 {
		t.Fatal(f)
	}
	return j.Prepare(schedule.NewParams(params))(t.Context(), director.ScheduleRun{Schedule: "s"})
}

// A backup is a database that a director can start on, with everything that was committed when it was made.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T03:00:00Z")
	b.apply("once")
	dir := filepath.Join(t.TempDir(), "backups")
	key := []byte("AGE-SECRET-KEY-1 the key that must stay where it is")
	if _, err := b.db.AddSecret(t.Context(), "u1", "pki", []byte("sealed")); err != nil {
		t.Fatal(err)
	}
	// Somebody writes all the time.
	ctx, cancel := context.WithCancel(t.Context())
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = b.db.AddSecret(ctx, fmt.Sprintf("w%d", i), "x", []byte("y"))
		}
	}()
	res, err := work(t, schedule.BackupJob(schedule.NewBackups(b.db, nil, dir, b.now)), nil)
	cancel()
	<-writing
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "director-20260101T030000Z.db")
	if !strings.HasPrefix(res.Message, path+" (") {
		t.Errorf("said %q", res.Message)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is open to others: %v %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, key) {
		t.Errorf("the backup holds the sealing key (%v)", err)
	}

	// The restore: a fresh state directory, the backup in the database's place.
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "director.db"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	restored, err := store.Open(t.Context(), filepath.Join(state, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if restored.DirectorID() != b.db.DirectorID() {
		t.Error("the restored director is another one: it would not know its VMs")
	}
	was := b.stored()
	is, err := restored.Document(t.Context(), was.Ref())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Error(diff)
	}
	if sealed, err := restored.Secret(t.Context(), "u1", "pki"); err != nil || string(sealed) != "sealed" {
		t.Errorf("secret %q, %v", sealed, err)
	}
	var ok string
	if err := restored.SQL().QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(
		&ok,
	); err != nil || ok != "ok" {
		t.Errorf("integrity: %q, %v", ok, err)
	}
	if _, err := restored.AddSecret(t.Context(), "u2", "pki", []byte("new")); err != nil {
		t.Errorf("the restored database cannot be written: %v", err)
	}
}

func TestBackupsRotate(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T03:00:00Z")
	dir := t.TempDir()
	for _, name := range []string{"notes.txt", "director-old.db", "director-20251231T030000Z.db.part"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= 4; n++ {
		b.set(fmt.Sprintf("2026-01-%02dT03:00:00Z", n))
		if _, err := work(t, schedule.BackupJob(schedule.NewBackups(b.db, nil, dir, b.now)),
			map[string]any{"keep": 2}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"director-20260103T030000Z.db", "director-20260104T030000Z.db", "director-old.db", "notes.txt"}
	if diff := cmp.Diff(want, list(t, dir)); diff != "" {
		t.Error(diff)
	}
	// What cannot be finished leaves nothing under a backup's name.
	_, err := work(t, schedule.BackupJob(schedule.NewBackups(broken{}, nil, dir, b.now)), nil)
	if director.KindOf(err) != director.KindExhausted {
		t.Errorf("err = %v", err)
	}
	if diff := cmp.Diff(want, list(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// Plans make backups where schedules do, and leave as many copies as any schedule does.
func TestBackupPlaces(t *testing.T) {
	t.Parallel()
	of := func(job string, suspended bool, params map[string]any) model.Stored {
		return model.Stored{Document: model.Document{Kind: model.KindSchedule, Schedule: &model.Schedule{
			Job: model.ScheduledJob{Name: job, Params: params}, Suspend: suspended,
		}}}
	}
	type places struct {
		Targets []string
		Keep    int
	}
	for name, tt := range map[string]struct {
		docs []model.Stored
		want places
	}{
		"none": {nil, places{nil, 7}},
		"copies": {
			[]model.Stored{of("backup", true, map[string]any{"keep": 30.0}), of("backup", false, nil)},
			places{nil, 30},
		},
		"fewer": {[]model.Stored{of("backup", false, map[string]any{"keep": 2})}, places{nil, 2}},
		"targets": {[]model.Stored{
			of("backup", false, map[string]any{"target": "offsite"}),
			of("etcd-backup", false, map[string]any{"target": "x"}),
			of("backup", false, map[string]any{"target": "near"}),
			of("backup", false, map[string]any{"target": "offsite"}),
			of("backup", true, map[string]any{"target": "former"}),
		}, places{[]string{"near", "offsite"}, 7}},
	} {
		var got places
		got.Targets, got.Keep = schedule.BackupPlaces(tt.docs)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// slowly is a database that tells when its copy begins, and ends it when it is let.
type slowly struct{ begun, let chan struct{} }

func (s slowly) Backup(_ context.Context, path string) error {
	s.begun <- struct{}{}
	<-s.let
	return os.WriteFile(path, nil, 0o600)
}

// Two copies at once would take each other's unfinished file away.
func TestBackupsInOnePlaceTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T03:00:00Z")
	db := slowly{make(chan struct{}), make(chan struct{})}
	backups := schedule.NewBackups(db, nil, t.TempDir(), b.now)
	first := make(chan error, 1)
	go func() {
		_, err := backups.Save(t.Context(), "", 7)
		first <- err
	}()
	<-db.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backups.Save(ctx, "", 7); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one does not wait: %v", err)
	}
	close(db.let)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// broken writes half a backup.
type broken struct{}

func (broken) Backup(_ context.Context, path string) error {
	if err := os.WriteFile(path, []byte("SQLite"), 0o600); err != nil {
		return err
	}
	return director.Errorf(director.KindExhausted, "t", "the disk is full")
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// Old plans lose their events and logs; what can continue, and what is young, loses nothing.
func TestPrune(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-06-01T03:00:00Z")
	runs := t.TempDir()
	old, young := b.now().Add(-100*24*time.Hour), b.now().Add(-24*time.Hour)
	for _, p := range []struct {
		id    string
		ended time.Time
		kind  plan.EventKind
	}{
		{"old-done", old, plan.PlanDone}, {"old-failed", old, plan.PlanFailed}, {"young-done", young, plan.PlanDone},
	} {
		addPlan(t, b.db, p.id, p.ended, p.kind)
		log(t, runs, p.id, p.ended)
	}
	log(t, runs, "nobody-old", old)
	log(t, runs, "nobody-young", young)
	u := director.User{Name: "u", Role: director.RoleUser, Created: old, Updated: old}
	if err := b.db.PutUser(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for hash, expires := range map[string]time.Time{"dead": young, "alive": b.now().Add(time.Hour)} {
		if err := b.db.PutToken(t.Context(), director.Token{
			Hash: hash, User: "u", Created: old, Expires: expires,
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, slot := range []time.Time{old, young} {
		if _, err := b.db.AddRun(t.Context(), director.ScheduleRun{
			UID: "x", Slot: slot, Attempt: i + 1, Status: director.RunDone,
		}); err != nil {
			t.Fatal(err)
		}
	}
	programs := t.TempDir()
	for digest, changed := range map[string]time.Time{"used": old, "unused": old, "unused-young": young} {
		log(t, programs, digest, changed)
	}
	served := schedule.Programs{
		Dir:  programs,
		Used: func(context.Context) (map[string]bool, error) { return map[string]bool{"used": true}, nil },
	}
	err := b.db.Update(t.Context(), func(tx *store.Tx) error {
		for id, ended := range map[string]time.Time{"ended": old, "ended-young": young, "running": {}} {
			if _, err := tx.AddPhaseTask(director.PhaseTask{
				ID: id, State: director.PhaseDone, Started: old, Finished: ended,
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := work(t, schedule.PruneJob(b.db, runs, served, &filed{}, b.now), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "archived 2 plans (3.0 MB) and 1 entry of the audit trail; removed 2 events of 1 plan, 4 events of the " +
		"stream, logs of 2 plans (0.0 MB), 1 ended session, 1 record of schedules, " +
		"1 task of outer plans, programs of 1 release (0.0 MB)"
	if res.Message != want {
		t.Errorf("said %q, want %q", res.Message, want)
	}
	if diff := cmp.Diff([]string{"nobody-young", "old-failed", "young-done"}, list(t, runs)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"unused-young", "used"}, list(t, programs)); diff != "" {
		t.Error(diff)
	}
	for id, want := range map[string]director.Kind{"ended": director.KindNotFound, "ended-young": "", "running": ""} {
		if _, err := b.db.PhaseTask(t.Context(), id); (err != nil) != (want != "") {
			t.Errorf("task %s: %v", id, err)
		}
	}
	served.Used = func(context.Context) (map[string]bool, error) { return nil, errors.New("a bundle cannot be read") }
	if _, err := work(t, schedule.PruneJob(
		b.db, runs, served, &filed{}, b.now,
	), map[string]any{"programs": "1d"}); err == nil || len(list(t, programs)) != 2 {
		t.Errorf("without knowing what is used it left %v: %v", list(t, programs), err)
	}
	for id, n := range map[string]int{"old-done": 0, "old-failed": 2, "young-done": 2} {
		if events, err := b.db.Events(t.Context(), id, 0, 10); err != nil || len(events) != n {
			t.Errorf("%s has %d events, want %d (%v)", id, len(events), n, err)
		}
		if _, s, err := b.db.Plan(t.Context(), id); err != nil || s.Seq != 2 {
			t.Errorf("%s: %+v, %v", id, s, err)
		}
	}
	if res, err := work(t, schedule.PruneJob(b.db, filepath.Join(
		runs, "none",
	), schedule.Programs{Dir: filepath.Join(runs, "none"), Used: func(context.Context) (map[string]bool, error) {
		return nil, nil
	}}, &filed{}, b.now), map[string]any{"logs": "2d"}); err != nil ||
		!strings.Contains(res.Message, "; removed 0 events") {
		t.Errorf("a second time: %q, %v", res.Message, err)
	}
}

// filed is archives that note what they are asked for.
type filed struct {
	before, recent, trail time.Time
	most                  int
}

func (f *filed) ArchivePlans(
	_ context.Context, _ string, before, recent time.Time, most int,
) (plans, bytes int64, err error) {
	f.before, f.recent, f.most = before, recent, most
	return 2, 3e6, nil
}

func (f *filed) ArchiveAudit(_ context.Context, before time.Time) (int64, error) {
	f.trail = before
	return 1, nil
}

// pastRuns are records with what has become of the schedule.
type pastRuns struct {
	schedule.Records
	runs []director.ScheduleRun
}

func (p pastRuns) Runs(context.Context, string, int) ([]director.ScheduleRun, error) {
	return p.runs, nil
}

// A clock that is years ahead makes everything old. The first run after such a jump removes nothing and says so.
func TestPruneDoubtsTheClock(t *testing.T) {
	t.Parallel()
	b := setup(t, "2031-01-01T03:00:00Z")
	slot := func(days int) time.Time { return b.now().AddDate(0, 0, days) }
	now := director.ScheduleRun{Slot: slot(0), Attempt: 2, Status: director.RunRunning}
	refused := director.ScheduleRun{Slot: slot(0), Attempt: 1, Status: director.RunFailed}
	missed := director.ScheduleRun{Slot: slot(-1), Status: director.RunMissed, Missed: 20}
	weeks := director.ScheduleRun{Slot: slot(-21), Status: director.RunDone}
	years := director.ScheduleRun{Slot: slot(-1826), Status: director.RunDone}
	none := schedule.Programs{
		Dir: t.TempDir(), Used: func(context.Context) (map[string]bool, error) { return nil, nil },
	}
	for name, tt := range map[string]struct {
		by     string
		runs   []director.ScheduleRun // the newest first
		doubts bool
	}{
		"a new director":          {"", []director.ScheduleRun{now}, false},
		"off for weeks":           {"", []director.ScheduleRun{now, missed, weeks}, false},
		"off for years":           {"", []director.ScheduleRun{now, missed, years}, true},
		"its second attempt":      {"", []director.ScheduleRun{now, refused, missed, years}, true},
		"seldom, none was missed": {"", []director.ScheduleRun{now, years}, false},
		"a person asks for it":    {"ann", []director.ScheduleRun{now, missed, years}, false},
		"the day after, it is on": {"", []director.ScheduleRun{{Slot: slot(1)}, refused, missed, years}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got filed
			job := schedule.PruneJob(pastRuns{b.db, tt.runs}, t.TempDir(), none, &got, b.now)
			run := tt.runs[0]
			run.Schedule, run.By = "nightly", tt.by
			_, err := job.Prepare(schedule.NewParams(nil))(t.Context(), run)
			if doubts := director.KindOf(err) == director.KindConflict; doubts != tt.doubts || !doubts && err != nil {
				t.Errorf("it says %v", err)
			}
			if nothing := got == (filed{}); nothing != tt.doubts {
				t.Errorf("it archived %+v", got)
			}
			if tt.doubts && !strings.Contains(director.HintOf(err), "directorctl schedules run nightly") {
				t.Errorf("the hint is %q", director.HintOf(err))
			}
		})
	}
}

// The parameters of prune say what is archived.
func TestPruneArchives(t *testing.T) {
	t.Parallel()
	b := setup(t, "2026-01-01T03:00:00Z")
	none := schedule.Programs{
		Dir: t.TempDir(), Used: func(context.Context) (map[string]bool, error) { return nil, nil },
	}
	const day = 24 * time.Hour
	for _, tt := range []struct {
		params map[string]any
		want   filed
	}{
		{nil, filed{b.now().Add(-90 * day), b.now().Add(-day), b.now().Add(-400 * day), 200}},
		{
			map[string]any{"plans": "7d", "plansPerCluster": 3, "audit": "62d"},
			filed{b.now().Add(-7 * day), b.now().Add(-day), b.now().Add(-62 * day), 3},
		},
	} {
		var got filed
		if _, err := work(t, schedule.PruneJob(b.db, t.TempDir(), none, &got, b.now), tt.params); err != nil {
			t.Fatal(err)
		}
		if got != tt.want {
			t.Errorf("%v: asked for %+v, want %+v", tt.params, got, tt.want)
		}
	}
}

func addPlan(t *testing.T, db *store.Store, id string, ended time.Time, kind plan.EventKind) {
	t.Helper()
	p := plan.Plan{ID: id, CreatedAt: ended, Content: plan.Content{Cluster: id, Facts: json.RawMessage("{}")}}
	err := db.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.AddPlan(p); err != nil {
			return err
		}
		s := plan.NewState(&p)
		return errors.Join(
			tx.Append(&s, plan.Event{Plan: id, Kind: plan.PlanStarted, At: ended}),
			tx.Append(&s, plan.Event{Plan: id, Kind: kind, At: ended}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func log(t *testing.T, runs, id string, at time.Time) {
	t.Helper()
	dir := filepath.Join(runs, id)
	path := filepath.Join(dir, "s.1.jsonl")
	err := errors.Join(
		os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte("{}\n"), 0o600), os.Chtimes(path, at, at),
		os.Chtimes(dir, at, at),
	)
	if err != nil {
		t.Fatal(err)
	}
}

type auditor struct{ report ledger.Report }

func (a auditor) Audit(context.Context, ...string) (ledger.Report, error) { return a.report, nil }

func TestDrift(t *testing.T) {
	t.Parallel()
	fine := auditor{ledger.Report{Providers: []ledger.Compared{{Name: "a", VMs: 1}, {Name: "b"}}}}
	if res, err := work(
		t, schedule.DriftJob(fine), nil,
	); err != nil || res.Message != "no drift: the ledger agrees with 1 VM on 2 providers" {
		t.Errorf("got %q, %v", res.Message, err)
	}
	bad := auditor{ledger.Report{
		Findings: []ledger.Finding{
			{Kind: ledger.Orphan, Problem: "VM x is nobody's"}, {Kind: ledger.Drift, Problem: "machine y is off"},
		},
		Providers: []ledger.Compared{
			{Name: "a", VMs: 4},
			{Name: "b", Err: director.Errorf(director.KindUnavailable, "t", "no route").WithHint("look")},
		},
		Busy: []string{"c1"},
	}}
	// A provider that does not answer is said, and does not hide the others.
	res, err := work(t, schedule.DriftJob(bad), nil)
	want := `2 differences over 4 VMs on 1 provider:
orphan: VM x is nobody's
drift: machine y is off
what to do about each: directorctl vms audit
left out, because a plan works on them: 1 cluster (c1)`
	if diff := cmp.Diff(want, res.Message); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "provider b was not compared: no route") {
		t.Errorf("got %v", err)
	}
}

// pruned is what Prune answers, and when it was asked for.
type pruned struct {
	left   []director.ImageLeft
	err    error
	actor  string
	before time.Time
}

func (p *pruned) Prune(_ context.Context, actor string, before time.Time, dryRun bool) ([]director.ImageLeft, error) {
	if dryRun {
		return nil, errors.New("only a rehearsal")
	}
	p.actor, p.before = actor, before
	return p.left, p.err
}

func TestImages(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	p := &pruned{
		left: []director.ImageLeft{{Provider: "lab", Name: "old"}, {SHA256: "a", Size: 2e6}, {SHA256: "b", Size: 1e6}},
	}
	res, err := work(t, schedule.ImagesJob(p, clock), map[string]any{"olderThan": "3d"})
	if err != nil || res.Message != "removed 1 image of providers and 2 files (3.0 MB)" {
		t.Errorf("got %q, %v", res.Message, err)
	}
	if p.before != now.Add(-72*time.Hour) || !strings.HasPrefix(p.actor, "schedule ") {
		t.Errorf("asked by %q for what is older than %s", p.actor, p.before)
	}
	p = &pruned{
		left: []director.ImageLeft{
			{Provider: "lab", Name: "old", Kept: "host h1 does not answer"}, {Provider: "lab", Name: "older"},
		},
	}
	res, err = work(t, schedule.ImagesJob(p, clock), nil)
	if res.Message != "removed 1 image of providers and 0 files (0.0 MB)" || err == nil ||
		!strings.Contains(err.Error(), "image old stays on provider lab: host h1 does not answer") {
		t.Errorf("got %q, %v", res.Message, err)
	}
	if p.before != now.Add(-7*24*time.Hour) {
		t.Errorf("took what is older than %s", p.before)
	}
}

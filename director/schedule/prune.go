package schedule

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Records is what prune takes old records from.
type Records interface {
	PruneEvents(ctx context.Context, before time.Time) (plans, events int64, err error)
	PruneStream(ctx context.Context, before time.Time) (int64, error) // of the director's stream of events
	KeptLogs(ctx context.Context, before time.Time) (map[string]bool, error)
	PruneSessions(ctx context.Context, before time.Time) (int64, error)
	PruneRuns(ctx context.Context, before time.Time) (int64, error)
	PruneOnce(ctx context.Context, now time.Time) error // answers kept for idempotency keys that have expired
	PrunePhases(ctx context.Context, before time.Time) (int64, error)
	// Runs returns the newest runs of the schedule first, at most limit.
	Runs(ctx context.Context, uid string, limit int) ([]director.ScheduleRun, error)
}

// Programs is what is served to nodes: a directory with one for each release bundle, by its digest.
type Programs struct {
	Dir string
	// Used returns the digests of which nodes may still want the programs. Nothing is removed if that is not known.
	Used func(ctx context.Context) (map[string]bool, error)
}

// Archives takes old plans and the old audit trail out of the database, into files.
type Archives interface {
	// ArchivePlans archives plans that are over for good: those that ended before the time, and of the others those
	// beyond most of each cluster that ended before recent.
	ArchivePlans(ctx context.Context, actor string, before, recent time.Time, most int) (plans, bytes int64, err error)
	// ArchiveAudit archives the months of the audit trail that ended before the time.
	ArchiveAudit(ctx context.Context, before time.Time) (entries int64, err error)
}

const day = 24 * time.Hour

// PruneJob archives old plans and months of the audit trail, and removes what is no longer needed: events and run logs
// of old plans, the old part of the director's stream, ended sessions, old records of schedules, tasks of outer plans
// that have ended, programs of releases that no cluster uses. runs is the directory of run logs, with a directory for
// each plan.
func PruneJob(records Records, runs string, programs Programs, archives Archives, now func() time.Time) Job {
	about := "Archives old plans and the old audit trail to files. Removes events and run logs of old plans, old " +
		"events of the director's stream, ended sessions, old records of schedules, ended tasks of outer plans and " +
		"the served " +
		"programs of releases that no cluster uses. An unfinished plan keeps everything."
	return Job{Name: "prune", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		events := p.Span("events", 90*day, day)
		logs := p.Span("logs", 30*day, day)
		history := p.Span("runs", 90*day, day)
		tasks := p.Span("phases", 90*day, day)
		served := p.Span("programs", 30*day, day)
		ended := p.Span("plans", 90*day, day)
		most := p.Number("plansPerCluster", 200, 1, 1_000_000)
		trail := p.Span("audit", 400*day, 31*day)
		return func(ctx context.Context, run director.ScheduleRun) (Result, error) {
			if err := clockIsLikely(ctx, records, run); err != nil {
				return Result{}, err
			}
			at := now()
			// First, so that archives hold the events and logs that are removed below.
			archived, size, err8 := archives.ArchivePlans(ctx, actorOf(run), at.Add(-ended), at.Add(-day), most)
			entries, err9 := archives.ArchiveAudit(ctx, at.Add(-trail))
			done := "archived " + count(archived, "plan") + " (" + megabytes(size) + ") and " + auditEntries(entries) +
				"; removed "
			var said []string
			plans, n, err1 := records.PruneEvents(ctx, at.Add(-events))
			said = append(said, count(n, "event")+" of "+count(plans, "plan"))
			streamed, err5 := records.PruneStream(ctx, at.Add(-events))
			said = append(said, count(streamed, "event")+" of the stream")
			dirs, bytes, err2 := pruneLogs(ctx, records, runs, at.Add(-logs))
			said = append(said, "logs of "+count(dirs, "plan")+" ("+megabytes(bytes)+")")
			sessions, err3 := records.PruneSessions(ctx, at)
			said = append(said, count(sessions, "ended session"))
			old, err4 := records.PruneRuns(ctx, at.Add(-history))
			said = append(said, count(old, "record")+" of schedules")
			phases, err6 := records.PrunePhases(ctx, at.Add(-tasks))
			said = append(said, count(phases, "task")+" of outer plans")
			releases, freed, err7 := prunePrograms(ctx, programs, at.Add(-served))
			said = append(said, "programs of "+count(releases, "release")+" ("+megabytes(freed)+")")
			return Result{
				Message: done + strings.Join(said, ", "),
			}, errors.Join(err8, err9, err1, err2, err3, err4, err5, err6, err7, records.PruneOnce(ctx, at))
		}
	}}
}

// longAway is after how long without a run one that removes things doubts the clock.
const longAway = 30 * day

// clockIsLikely returns conflict if runs were missed right before this one and the last was long ago: the clock may be
// wrong, and to a clock that is years ahead everything is old. The next run finds this one, and goes ahead, as does a
// run that a person asks for.
func clockIsLikely(ctx context.Context, records Records, run director.ScheduleRun) error {
	if run.By != "" {
		return nil
	}
	before, err := records.Runs(ctx, run.UID, 10)
	if err != nil {
		return err
	}
	missed, away := 0, time.Duration(0)
	for _, r := range before {
		if r.Status == director.RunMissed {
			missed += r.Missed
		} else if !r.Slot.Equal(run.Slot) { // an earlier attempt of the run is none before it
			away = run.Slot.Sub(r.Slot)
			break
		}
	}
	if missed == 0 || away < longAway {
		return nil
	}
	return director.Errorf(
		director.KindConflict, "schedule.prune", "nothing is removed: the last run was %s before this one, so the "+
			"director was off for long, or its clock is wrong", count(int(away/day), "day"),
	).WithHint(
		"compare the clock with a time server; if it is right, wait for the next run, or: directorctl schedules "+
			"run %s", run.Schedule,
	)
}

// pruneLogs removes the log directories of plans that ended long ago.
func pruneLogs(ctx context.Context, records Records, runs string, before time.Time) (dirs int, bytes int64, err error) {
	kept, err := records.KeptLogs(ctx, before)
	if err != nil {
		return 0, 0, err
	}
	return pruneDirs(ctx, runs, kept, before)
}

// prunePrograms removes the programs of releases that no node can want any more. Who needs them after all brings them
// again.
func prunePrograms(ctx context.Context, p Programs, before time.Time) (dirs int, bytes int64, err error) {
	used, err := p.Used(ctx)
	if err != nil {
		return 0, 0, err
	}
	return pruneDirs(ctx, p.Dir, used, before)
}

// pruneDirs removes the directories below root that are not kept. A directory that was touched after the time stays,
// whatever the database says of it.
func pruneDirs(
	ctx context.Context, root string, kept map[string]bool, before time.Time,
) (dirs int, bytes int64, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, director.Errorf(director.KindInternal, "schedule.prune", "%s cannot be listed: %w", root, err)
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return dirs, bytes, ctx.Err()
		}
		dir := filepath.Join(root, e.Name())
		size, newest := usage(dir)
		if kept[e.Name()] || !e.IsDir() || !newest.Before(before) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return dirs, bytes, director.Errorf(
				director.KindInternal, "schedule.prune", "%s cannot be removed: %w", dir, err,
			)
		}
		dirs, bytes = dirs+1, bytes+size
	}
	return dirs, bytes, nil
}

// usage returns the size of a tree and when it was last changed. What cannot be read counts as new.
func usage(dir string) (size int64, newest time.Time) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !d.IsDir() {
			size += info.Size()
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return nil
	})
	if err != nil {
		return size, time.Now()
	}
	return size, newest
}

func auditEntries(n int64) string {
	if n == 1 {
		return "1 entry of the audit trail"
	}
	return fmt.Sprintf("%d entries of the audit trail", n)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// count renders a number with its noun.
func count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

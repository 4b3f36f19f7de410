package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Database can be copied while it is in use.
type Database interface {
	// Backup writes the database into a new file at path.
	Backup(ctx context.Context, path string) error
}

// Bundles keeps all that a director is made of in backup targets.
type Bundles interface {
	// SaveBundle writes a bundle into the target, encrypted for the target's recipients, and removes older ones.
	SaveBundle(ctx context.Context, target string) (name string, size int64, removed int, err error)
}

const (
	backupPrefix = "director-"
	backupSuffix = ".db"
	backupTime   = "20060102T150405Z"
)

// The copies of the database that stay where nothing else is said, and at most.
const (
	usualKeep = 7
	mostKeep  = 1000
)

// Backups makes backups of the director itself, for schedules and for plans. Those in one place come one after another.
// It is safe for concurrent use.
type Backups struct {
	db      Database
	bundles Bundles
	dir     string
	now     func() time.Time

	mu    sync.Mutex
	turns map[string]chan struct{} // by target
}

// NewBackups returns what copies the database into dir, and all that the director is made of into targets.
func NewBackups(db Database, bundles Bundles, dir string, now func() time.Time) *Backups {
	return &Backups{db: db, bundles: bundles, dir: dir, now: now, turns: map[string]chan struct{}{}}
}

// Save makes one backup, and says which. With a target, all that the director is made of goes there, encrypted for the
// target's recipients, and the target's retention applies. Without one, the database is copied under a name with the
// time, and the newest copies stay, as many as keep. A copy gets its name only when it is complete and on the disk. The
// sealing key is not in it, so a stolen copy reveals what is planned and where, but no secret.
func (b *Backups) Save(ctx context.Context, target string, keep int) (said string, err error) {
	done, err := b.turn(ctx, target)
	if err != nil {
		return "", err
	}
	defer done()
	if target != "" {
		name, size, gone, err := b.bundles.SaveBundle(ctx, target)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf(
			"%s in BackupTarget/%s (%s); %d older ones removed", name, target, megabytes(size), gone,
		), nil
	}
	name, size, err := backup(ctx, b.db, b.dir, b.now())
	if err != nil {
		return "", err
	}
	gone, err := rotate(b.dir, keep)
	return fmt.Sprintf("%s (%s); %d older ones removed", filepath.Join(b.dir, name), megabytes(size), gone), err
}

// turn waits until no other backup is made in the same place: two within a second would have one name.
func (b *Backups) turn(ctx context.Context, target string) (done func(), err error) {
	b.mu.Lock()
	turn, known := b.turns[target]
	if !known {
		turn = make(chan struct{}, 1)
		b.turns[target] = turn
	}
	b.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// BackupJob makes backups of the director.
func BackupJob(backups *Backups) Job {
	about := "Copies the database, while it is in use, into backups/ below the state directory. The sealing key is " +
		"not part of it. With a target, everything that a director is restored from goes there, encrypted."
	return Job{Name: backupJob, About: about, Repeatable: true, Prepare: func(p *Params) Work {
		target, keep := backupParams(p)
		return func(ctx context.Context, _ director.ScheduleRun) (Result, error) {
			said, err := backups.Save(ctx, target, keep)
			return Result{Message: said}, err
		}
	}}
}

const backupJob = "backup"

func backupParams(p *Params) (target string, keep int) {
	return p.Optional("target"), p.Number("keep", usualKeep, 1, mostKeep)
}

// BackupPlaces returns where the schedules among the documents make backups of the director: the targets of those that
// are not suspended, sorted, and how many copies without a target stay. All copies lie in one directory, so the
// schedule that keeps the most counts, also if it is suspended.
func BackupPlaces(docs []model.Stored) (targets []string, keep int) {
	for _, d := range docs {
		if d.Kind != model.KindSchedule || d.Schedule.Job.Name != backupJob {
			continue
		}
		target, kept := backupParams(NewParams(d.Schedule.Job.Params))
		switch {
		case target == "":
			keep = max(keep, kept)
		case !d.Schedule.Suspend && !slices.Contains(targets, target):
			targets = append(targets, target)
		}
	}
	slices.Sort(targets)
	return targets, cmp.Or(keep, usualKeep)
}

func backup(ctx context.Context, db Database, dir string, at time.Time) (name string, size int64, err error) {
	const op = "schedule.backup"
	failed := func(err error) error {
		return &director.Error{
			Kind: director.KindExhausted, Op: op, Msg: "the backup cannot be written to " + dir + ": " + err.Error(),
			Hint: "check that the directory is writable and has room for the whole database", Err: err,
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", 0, failed(err)
	}
	// What a run that was cut off left behind.
	leftovers, _ := filepath.Glob(filepath.Join(dir, backupPrefix+"*.part")) // the pattern is good
	for _, path := range leftovers {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", 0, failed(err)
		}
	}
	name = backupPrefix + at.UTC().Format(backupTime) + backupSuffix
	part := filepath.Join(dir, name+".part")
	defer func() {
		if err != nil {
			_ = os.Remove(part) // the error that is returned says more
		}
	}()
	if err := db.Backup(ctx, part); err != nil {
		return "", 0, err
	}
	if size, err = persist(part); err != nil {
		return "", 0, failed(err)
	}
	if err := os.Rename(part, filepath.Join(dir, name)); err != nil {
		return "", 0, failed(err)
	}
	if _, err := persist(dir); err != nil {
		return "", 0, failed(err)
	}
	return name, size, nil
}

// persist brings a file or directory to the disk, and closes the file to all but the director's user.
func persist(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		if err := f.Chmod(0o600); err != nil {
			return 0, err
		}
	}
	return info.Size(), f.Sync()
}

// rotate removes all but the newest backups, and returns how many. Other files of the directory are not touched.
func rotate(dir string, keep int) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, director.Errorf(director.KindInternal, "schedule.backup", "the backups cannot be listed: %w", err)
	}
	var ours []string
	for _, e := range entries {
		stamp, ok := strings.CutPrefix(e.Name(), backupPrefix)
		stamp, ok2 := strings.CutSuffix(stamp, backupSuffix)
		if _, err := time.Parse(backupTime, stamp); ok && ok2 && err == nil {
			ours = append(ours, e.Name())
		}
	}
	slices.Sort(ours)
	old := ours[:max(len(ours)-keep, 0)]
	for _, name := range old {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return 0, director.Errorf(
				director.KindInternal, "schedule.backup", "an old backup cannot be removed: %w", err,
			)
		}
	}
	return len(old), nil
}

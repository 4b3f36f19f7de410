package schedule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
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

// BackupJob copies the database into dir, under a name with the time, and keeps the newest copies. A copy gets its name
// only when it is complete and on the disk. The sealing key is not in it, so a stolen backup reveals what is planned
// and where, but no secret.
//
// With a target, all that the director is made of goes there instead, encrypted for the target's recipients.
func BackupJob(db Database, bundles Bundles, dir string, now func() time.Time) Job {
	about := "Copies the database, while it is in use, into backups/ below the state directory. The sealing key is " +
		"not part of it. With a target, everything that a director is restored from goes there, encrypted."
	return Job{Name: "backup", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		keep, target := p.Number("keep", 7, 1, 1000), p.Optional("target")
		return func(ctx context.Context, _ director.ScheduleRun) (Result, error) {
			if target != "" {
				name, size, gone, err := bundles.SaveBundle(ctx, target)
				if err != nil {
					return Result{}, err
				}
				return Result{Message: fmt.Sprintf(
					"%s in BackupTarget/%s (%s); %d older ones removed", name, target, megabytes(size), gone,
				)}, nil
			}
			name, size, err := backup(ctx, db, dir, now())
			if err != nil {
				return Result{}, err
			}
			gone, err := rotate(dir, keep)
			return Result{
				Message: fmt.Sprintf("%s (%s); %d older ones removed", filepath.Join(dir, name), megabytes(size), gone),
			}, err
		}
	}}
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

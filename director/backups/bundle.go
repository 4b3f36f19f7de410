package backups

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
)

// The names of bundles: the time is between them.
const (
	bundlePrefix = "director-"
	bundleSuffix = ".bundle.age"
	bundleTime   = "20060102T150405Z"
)

// bundleDir is where the bundles of this director lie in a target.
func (s *Service) bundleDir() string { return "director-" + s.c.Store.DirectorID() }

// SaveBundle writes all that the director is made of into the target, for the target's recipients, reads it back and
// lets the retention remove older bundles. It returns the bundle's name in the target, its size, and how many were
// removed. Errors: conflict for a target without recipients.
func (s *Service) SaveBundle(ctx context.Context, target string) (name string, size int64, removed int, err error) {
	const op = "backups.bundle"
	doc, place, err := s.target(ctx, target)
	if err != nil {
		return "", 0, 0, err
	}
	to, err := backup.Recipients(doc.Recipients)
	if err != nil {
		return "", 0, 0, err
	}
	if len(to) == 0 {
		return "", 0, 0, director.Errorf(
			director.KindConflict, op, "BackupTarget/%s has no recipients, and the director's own key is in the bundle",
			target,
		).WithHint("make a key with age-keygen, keep it apart, and name its public half in spec.recipients")
	}
	name = path.Join(s.bundleDir(), bundlePrefix+s.c.Now().UTC().Format(bundleTime)+bundleSuffix)
	sums, err := s.putBundle(ctx, place, name, to)
	if err != nil {
		return "", 0, 0, err
	}
	if err := compare(ctx, place, name, sums); err != nil {
		return "", 0, 0, errors.Join(err, place.Delete(ctx, name))
	}
	removed, err = s.retainBundles(ctx, place, doc.Retention.Count, doc.Retention.Days)
	return name, sums.Size, removed, err
}

func (s *Service) putBundle(
	ctx context.Context, place backup.Target, name string, to []age.Recipient,
) (backup.Sums, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	type written struct {
		sums backup.Sums
		err  error
	}
	done := make(chan written, 1)
	go func() {
		sums, err := s.c.Bundle(ctx, w, to)
		_ = w.CloseWithError(err) // nil is its end
		done <- written{sums, err}
	}()
	err := place.Put(ctx, name, r)
	_ = r.CloseWithError(errGivenUp)
	got := <-done
	if got.err != nil && !errors.Is(got.err, errGivenUp) {
		return got.sums, got.err
	}
	return got.sums, err
}

// compare reads what lies in the target to its end.
func compare(ctx context.Context, place backup.Target, name string, want backup.Sums) error {
	r, err := place.Get(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err != nil {
		return err
	}
	if n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		return director.Errorf(
			director.KindUnavailable, "backups.bundle", "the target gives back another bundle than it was given",
		).WithHint("check the target's disk")
	}
	return nil
}

func (s *Service) retainBundles(ctx context.Context, place backup.Target, count, days int) (removed int, err error) {
	files, err := place.List(ctx, s.bundleDir())
	if err != nil {
		return 0, err
	}
	var names []string
	var made []time.Time
	for _, f := range files {
		stamp, ok := strings.CutPrefix(path.Base(f), bundlePrefix)
		stamp, whole := strings.CutSuffix(stamp, bundleSuffix)
		if at, err := time.Parse(bundleTime, stamp); ok && whole && err == nil {
			names, made = append(names, f), append(made, at)
		}
	}
	for i, keep := range backup.Kept(made, count, days, s.c.Now()) {
		if keep {
			continue
		}
		if err := place.Delete(ctx, names[i]); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

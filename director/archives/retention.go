package archives

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// ArchivePlans archives plans that are over for good: those that ended before the time, and of the others those beyond
// most of each cluster that ended before recent. It returns how many that were, and the bytes of their files. One that
// fails does not keep the others.
func (s *Service) ArchivePlans(
	ctx context.Context, actor string, before, recent time.Time, most int,
) (plans, bytes int64, err error) {
	ids, err := s.Store.Archivable(ctx, store.Retention{Before: before, Recent: recent, Most: most})
	if err != nil {
		return 0, 0, err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return plans, bytes, errors.Join(append(errs, ctx.Err())...)
		}
		file, err := s.writePlan(ctx, id)
		if err == nil {
			err = s.Store.ArchivePlan(ctx, id, file, actor)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		plans, bytes = plans+1, bytes+file.Size
	}
	return plans, bytes, errors.Join(errs...)
}

// writePlan writes the plan with its state, its events and the logs of its attempts that are here. What might hold a
// secret of the cluster or of the director is searched for them, as an archive for support is.
func (s *Service) writePlan(ctx context.Context, id string) (store.ArchiveFile, error) {
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return store.ArchiveFile{}, err
	}
	facts, _ := step.DecodeFacts(p.Content) // a plan without facts has no machines either
	secrets, err := s.secretsOf(ctx, facts, s.support(ctx).Private)
	if err != nil {
		return store.ArchiveFile{}, err
	}
	at := s.Now().UTC()
	return s.Files.write(filepath.Join("plans", id+".tar.gz"), at, false, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		a := &archive{dir: "plan-" + id, tar: tar.NewWriter(zip), secrets: secrets, at: at}
		for name, value := range map[string]any{
			recordName: planRecord{p, state}, "plan.json": s.Form.Plan(plan.View{Plan: p, State: state}),
		} {
			text, err := json.Marshal(value)
			if err == nil {
				err = a.add(name, append(text, '\n'))
			}
			if err != nil {
				return err
			}
		}
		if err := s.archiveEvents(ctx, a, id); err != nil {
			return err
		}
		for _, st := range state.Steps {
			for n := 1; n <= st.Attempt; n++ {
				if err := a.addLog(s.LogPath(id, st.ID, n)); err != nil {
					return err
				}
			}
		}
		return errors.Join(a.tar.Close(), zip.Close())
	})
}

// ArchiveAudit archives the entries of the audit trail, a file for each month that ended before the time. An entry
// leaves with or after those that were written before it, whatever its time. It returns how many entries that were.
func (s *Service) ArchiveAudit(ctx context.Context, before time.Time) (entries int64, err error) {
	for {
		oldest, err := s.Store.OldestAudit(ctx)
		if err != nil || oldest.IsZero() {
			return entries, err
		}
		month := time.Date(oldest.Year(), oldest.Month(), 1, 0, 0, 0, 0, time.UTC)
		if month.AddDate(0, 1, 0).After(before) {
			return entries, nil
		}
		n, err := s.archiveMonth(ctx, month)
		if err != nil {
			return entries, err
		}
		entries += n
	}
}

// archiveMonth archives a month. What was archived of it before, also by a director whose database was restored since,
// is never written to again.
func (s *Service) archiveMonth(ctx context.Context, month time.Time) (int64, error) {
	known, err := s.Store.AuditArchives(ctx, month)
	if err != nil {
		return 0, err
	}
	end, err := s.Store.AuditEnd(ctx, month.AddDate(0, 1, 0))
	if err != nil {
		return 0, err
	}
	for n := known + 1; ; n++ {
		name := "audit-" + month.Format("2006-01")
		if n > 1 {
			name += "." + strconv.Itoa(n)
		}
		var last, entries int64
		file, err := s.Files.write(filepath.Join(
			"audit", name+".jsonl.gz",
		), s.Now().UTC(), true, func(w io.Writer) error {
			zip := gzip.NewWriter(w)
			var err error
			if last, entries, err = s.Store.WriteAudit(ctx, zip, 0, end, s.Checkpoint); err != nil {
				return err
			}
			return zip.Close()
		})
		if errors.Is(err, errOther) {
			continue
		}
		if err != nil {
			return 0, err
		}
		return entries, s.Store.ArchiveAudit(ctx, name, month, last, entries, file)
	}
}

package backups

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Reread is what a look into a target showed.
type Reread struct {
	Found   int      // backups of clusters that there are, with a manifest of this director
	Added   []string // those that were not on the list
	Missing []string // those on the list whose manifest is not in the target
	Refused []Refused
}

// Refused is a file in a target that is no manifest of a backup.
type Refused struct{ File, Why string }

// rereadLimit bounds how many files of a target are reported as refused.
const rereadLimit = 100

// Reread compares the list of backups with what lies in the target, for the clusters that have a document. Backups that
// are not on the list, such as those that were made after the bundle that the director was restored from, come onto it;
// those that are gone from the target are marked. Nothing changes in the target. The archives are not read: see Verify.
// Done again, it changes nothing. Errors: not_found for a target that is not known, and what the target says.
func (s *Service) Reread(ctx context.Context, actor, name string) (Reread, error) {
	var out Reread
	_, target, err := s.target(ctx, name)
	if err != nil {
		return out, err
	}
	clusters, err := s.c.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return out, err
	}
	var found []backup.Manifest
	for _, c := range clusters {
		manifests, err := s.manifests(ctx, target, c, &out)
		if err != nil {
			return Reread{}, err
		}
		found = append(found, manifests...)
	}
	out.Found = len(found)
	return out, s.c.Store.Update(ctx, func(tx *store.Tx) error { return s.relist(tx, actor, name, found, &out) })
}

// manifests returns those of the cluster's backups that lie in the target, and notes what else is there.
func (s *Service) manifests(
	ctx context.Context, target backup.Target, c model.Stored, out *Reread,
) (found []backup.Manifest, err error) {
	files, err := target.List(ctx, backup.Dir(c.Metadata.Name, c.UID))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if !strings.HasSuffix(file, backup.ManifestSuffix) {
			continue
		}
		m, err := s.manifest(ctx, target, file)
		if err == nil && (m.ManifestName() != file || m.Cluster != c.Metadata.Name || m.ClusterUID != c.UID) {
			err = director.Errorf(
				director.KindInvalid, "backups.reread", "it is the manifest of %s, which does not lie here",
				m.ManifestName(),
			)
		}
		if err == nil {
			found = append(found, m)
			continue
		}
		if kind := director.KindOf(err); kind != director.KindInvalid && kind != director.KindNotFound {
			return nil, err
		}
		if len(out.Refused) < rereadLimit {
			out.Refused = append(out.Refused, Refused{File: file, Why: err.Error()})
		}
	}
	return found, nil
}

// manifest reads a manifest and checks that this director made it.
func (s *Service) manifest(ctx context.Context, target backup.Target, file string) (backup.Manifest, error) {
	r, err := target.Get(ctx, file)
	if err != nil {
		return backup.Manifest{}, err
	}
	defer func() { _ = r.Close() }()
	text, err := io.ReadAll(io.LimitReader(r, manifestLimit))
	if err != nil {
		return backup.Manifest{}, err
	}
	return backup.Open(text, s.c.Box)
}

// relist brings the list of backups in the target up to what was found.
func (s *Service) relist(tx *store.Tx, actor, target string, found []backup.Manifest, out *Reread) error {
	listed, err := tx.Backups(store.BackupFilter{})
	if err != nil {
		return err
	}
	out.Added, out.Missing = nil, nil // a transaction may run twice
	for _, m := range found {
		if slices.ContainsFunc(listed, func(e backup.Entry) bool { return e.ID == m.ID }) {
			continue
		}
		if err := tx.PutBackup(backup.Entry{Manifest: m, Target: target}); err != nil {
			return err
		}
		out.Added = append(out.Added, m.ID)
	}
	for _, e := range listed {
		if e.Target != target || slices.ContainsFunc(found, func(m backup.Manifest) bool { return m.ID == e.ID }) {
			continue
		}
		problem := fmt.Sprintf(
			"its manifest %s is not in the target, or is not this director's", path.Base(e.ManifestName()),
		)
		if err := tx.VerifiedBackup(e.ID, s.c.Now(), problem); err != nil {
			return err
		}
		out.Missing = append(out.Missing, e.ID)
	}
	return tx.Audit(s.c.Now(), actor, "read backups", "BackupTarget/"+target)
}

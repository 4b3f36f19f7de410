package backups

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/kube/etcdfile"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Extract returns the objects of the query as they are in the backup, Secrets too. The whole backup is read, and lies
// in a file that only the director can open meanwhile. Errors: not_found for a backup or objects that are not there,
// exhausted for too many objects or a full disk.
func (s *Service) Extract(
	ctx context.Context, actor, id string, q etcdfile.Query,
) (backup.Entry, []etcdfile.Object, error) {
	e, err := s.Get(ctx, id)
	if err != nil {
		return e, nil, err
	}
	if q.Keys, err = s.keys(ctx, e.ClusterUID); err != nil {
		return e, nil, err
	}
	// Written down before anything is read: a person may have seen it even if the answer fails.
	if err := s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), actor, "extract backup", "Backup/"+id+" "+q.Namespace+"/"+q.Kind+"/"+q.Name)
	}); err != nil {
		return e, nil, err
	}
	file, err := s.unpacked(ctx, e)
	if err != nil {
		return e, nil, err
	}
	list, err := etcdfile.Read(ctx, file, q)
	return e, list, errors.Join(err, os.Remove(file))
}

// keys are those that the cluster encrypts Secrets with, or has before; none for a cluster that is gone.
func (s *Service) keys(ctx context.Context, uid string) ([]etcdfile.Key, error) {
	keys, err := steps.Keys{Secrets: s.c.Store, Sealer: s.c.Box}.ClusterEncryptionKeys(ctx, uid)
	if director.KindOf(err) == director.KindNotFound {
		return nil, nil
	}
	var out []etcdfile.Key
	for _, k := range slices.Concat(keys.Keys, keys.Former) {
		out = append(out, etcdfile.Key{Name: k.Name, Secret: k.Secret})
	}
	return out, err
}

// unpacked writes the snapshot into a new file.
func (s *Service) unpacked(ctx context.Context, e backup.Entry) (file string, err error) {
	failed := func(err error) error {
		return director.Errorf(director.KindExhausted, "backups.extract", "the snapshot cannot be unpacked: %w", err).
			WithHint("check the space of %s", s.c.Scratch)
	}
	if err := os.MkdirAll(s.c.Scratch, 0o700); err != nil {
		return "", failed(err)
	}
	f, err := os.CreateTemp(s.c.Scratch, "snapshot-")
	if err != nil {
		return "", failed(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := s.fetch(ctx, e, f); err != nil {
		_ = f.Close()
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", failed(err)
	}
	return f.Name(), nil
}

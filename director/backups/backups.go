// Package backups makes backups of clusters in their targets, and lists, verifies, reads and deletes them.
package backups

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/bucket"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Box is the director's sealing key. *seal.Box implements it.
type Box interface {
	backup.Sealer
	Recipient() age.Recipient
	Identity() age.Identity
	Public() string
}

// Config is what New needs.
type Config struct {
	Store *store.Store
	Box   Box
	Dirs  confine.Dirs // that targets must lie in
	// Networks are the addresses of servers with buckets, and Accounts opens the keys for them.
	Networks confine.Networks
	Accounts Accounts
	Scratch  string // directory that snapshots are unpacked in for a short time
	// Bundle writes all that the director is made of, encrypted for the recipients.
	Bundle func(ctx context.Context, w io.Writer, to []age.Recipient) (backup.Sums, error)
	Now    func() time.Time
	Log    *slog.Logger
}

// Accounts opens credentials for the place that they were set for. *providers.Vault implements it.
type Accounts interface {
	OpenBackup(ctx context.Context, target string, b model.S3Bucket) (director.Credentials, error)
}

// manifestLimit is more than any manifest has.
const manifestLimit = 1 << 20

// Service keeps backups. It is safe for concurrent use.
type Service struct{ c Config }

// New returns the service.
func New(c Config) *Service { return &Service{c} }

func (s *Service) target(ctx context.Context, name string) (model.BackupTarget, backup.Target, error) {
	doc, err := s.c.Store.Document(ctx, model.Ref{Kind: model.KindBackupTarget, Name: name})
	if err != nil {
		return model.BackupTarget{}, nil, err
	}
	t := *doc.BackupTarget
	if t.Type == model.BackupS3 {
		key, err := s.c.Accounts.OpenBackup(ctx, name, *t.S3)
		if err != nil {
			return t, nil, err
		}
		target, err := backup.NewBucket(bucket.Place{
			URL: t.S3.URL, Bucket: t.S3.Bucket, Prefix: t.S3.Prefix, Region: t.S3.Region, CA: t.S3.CA,
			Key: key.User, Secret: key.Password, Dial: s.c.Networks.Dialer().DialContext,
		})
		return t, target, err
	}
	return t, backup.Directory{Path: t.Directory, Dirs: s.c.Dirs, NFS: t.Type == model.BackupNFS}, nil
}

// Save stores the snapshot that read writes, reads it back and compares, writes it down and lets the target's retention
// remove older backups of the cluster. A backup of the same id is replaced. read is called once.
func (s *Service) Save(
	ctx context.Context, m backup.Making, read func(ctx context.Context, w io.Writer) error,
) (backup.Manifest, error) {
	doc, target, err := s.target(ctx, m.Target)
	if err != nil {
		return backup.Manifest{}, err
	}
	to, err := backup.Recipients(doc.Recipients)
	if err != nil {
		return backup.Manifest{}, err
	}
	made := backup.Manifest{
		Format: backup.Format, ID: m.ID, Cluster: m.Cluster, ClusterUID: m.ClusterUID,
		Director: s.c.Store.DirectorID(),
		Made:     s.c.Now().UTC().Truncate(time.Second), Plan: m.Plan, Reason: m.Reason, Kubernetes: m.Kubernetes,
		EncryptionKeys: m.EncryptionKeys, Members: m.Members, Snapshot: m.Snapshot, Contents: m.Contents,
		Recipients: append([]string{s.c.Box.Public()}, doc.Recipients...),
	}
	made.Snapshot.Sums, made.Archive, err = upload(
		ctx, target, made.ArchiveName(), append([]age.Recipient{s.c.Box.Recipient()}, to...), read,
	)
	if err != nil {
		return backup.Manifest{}, err
	}
	if err := s.readBack(ctx, target, made, io.Discard); err != nil {
		return backup.Manifest{}, errors.Join(err, target.Delete(ctx, made.ArchiveName()))
	}
	file, err := backup.Sign(made, s.c.Box)
	if err != nil {
		return backup.Manifest{}, err
	}
	if err := target.Put(ctx, made.ManifestName(), bytes.NewReader(file)); err != nil {
		return backup.Manifest{}, err
	}
	entry := backup.Entry{Manifest: made, Target: m.Target, Verified: s.c.Now()}
	if err := s.c.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutBackup(entry) }); err != nil {
		return backup.Manifest{}, err
	}
	s.retain(ctx, m.Target, m.ClusterUID, doc.Retention, target)
	return made, nil
}

// Stored returns the backup that Save has left in the target, read to its end and compared, and puts it on the list if
// it is not there: a director that ended after Save, or was restored from before it, does not know of it. Repeating it
// changes nothing. Errors: not_found for none, invalid for one that is damaged or not this director's.
func (s *Service) Stored(ctx context.Context, m backup.Making) (backup.Manifest, error) {
	_, target, err := s.target(ctx, m.Target)
	if err != nil {
		return backup.Manifest{}, err
	}
	file := backup.Manifest{ID: m.ID, Cluster: m.Cluster, ClusterUID: m.ClusterUID}.ManifestName()
	found, err := s.manifest(ctx, target, file)
	if err != nil {
		return backup.Manifest{}, err
	}
	if found.ManifestName() != file || found.Plan != m.Plan {
		return backup.Manifest{}, director.Errorf(
			director.KindInvalid, "backups.stored", "%s is the manifest of %s of the plan %s", file,
			found.ManifestName(), found.Plan,
		).WithHint("find out who can write to the target")
	}
	if err := s.readBack(ctx, target, found, io.Discard); err != nil {
		return backup.Manifest{}, err
	}
	entry := backup.Entry{Manifest: found, Target: m.Target, Verified: s.c.Now()}
	return found, s.c.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutBackup(entry) })
}

// upload encrypts what read writes straight into the target.
func upload(
	ctx context.Context, target backup.Target, name string, to []age.Recipient,
	read func(ctx context.Context, w io.Writer) error,
) (content, archive backup.Sums, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		var err error
		content, archive, err = backup.Encode(w, to, func(into io.Writer) error {
			tail := backup.NewTail()
			if err := read(ctx, io.MultiWriter(into, tail)); err != nil {
				return err
			}
			return tail.Check()
		})
		_ = w.CloseWithError(err) // nil is the end of the archive
		done <- err
	}()
	err = target.Put(ctx, name, r)
	_ = r.CloseWithError(errGivenUp) // the writer must not wait for a reader that is gone
	if werr := <-done; werr != nil && !errors.Is(werr, errGivenUp) {
		return content, archive, werr
	}
	return content, archive, err
}

var errGivenUp = errors.New("the target takes no more")

// readBack reads the archive to its end into w and compares it with its manifest.
func (s *Service) readBack(ctx context.Context, t backup.Target, m backup.Manifest, w io.Writer) error {
	r, err := t.Get(ctx, m.ArchiveName())
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	tail := backup.NewTail()
	content, archive, err := backup.Decode(ctx, io.MultiWriter(w, tail), r, s.c.Box.Identity())
	if err != nil {
		return err
	}
	if content != m.Snapshot.Sums || archive != m.Archive {
		return director.Errorf(
			director.KindInvalid, "backups.read", "backup %s is not what its manifest says: %d bytes, SHA-256 %s", m.ID,
			archive.Size, archive.SHA256,
		).WithHint("use another backup, and find out who can write to the target")
	}
	return tail.Check()
}

// retain deletes what the retention does not keep. What cannot be deleted is left to the next backup.
func (s *Service) retain(ctx context.Context, name, uid string, r model.Retention, target backup.Target) {
	all, err := s.c.Store.Backups(ctx, store.BackupFilter{ClusterUID: uid, Target: name})
	made := make([]time.Time, len(all))
	for i, e := range all {
		made[i] = e.Made
	}
	for i, keep := range backup.Kept(made, r.Count, r.Days, s.c.Now()) {
		if !keep && err == nil {
			err = s.remove(ctx, target, all[i].Manifest)
		}
	}
	if err != nil {
		s.c.Log.WarnContext(ctx, "old backups could not be deleted", "target", name, "err", err)
	}
}

// remove deletes the manifest first: what is left without it is no backup.
func (s *Service) remove(ctx context.Context, target backup.Target, m backup.Manifest) error {
	for _, name := range []string{m.ManifestName(), m.ArchiveName()} {
		if err := target.Delete(ctx, name); err != nil {
			return err
		}
	}
	return s.c.Store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetBackup(m.ID) })
}

// List returns the backups of the cluster, or of all if it is empty, the newest first.
func (s *Service) List(ctx context.Context, cluster string) ([]backup.Entry, error) {
	return s.c.Store.Backups(ctx, store.BackupFilter{Cluster: cluster})
}

// Get returns one backup, or not_found.
func (s *Service) Get(ctx context.Context, id string) (backup.Entry, error) {
	all, err := s.c.Store.Backups(ctx, store.BackupFilter{ID: id})
	if err != nil {
		return backup.Entry{}, err
	}
	if len(all) == 0 {
		return backup.Entry{}, director.Errorf(director.KindNotFound, "backups.get", "there is no backup %q", id).
			WithHint("see: directorctl backup list CLUSTER")
	}
	return all[0], nil
}

// Verify reads the whole backup in its target, decrypts it and compares it with its manifest, and writes down what it
// found. Only what is wrong with the backup itself is its problem; any other error says nothing about it.
func (s *Service) Verify(ctx context.Context, actor, id string) (backup.Entry, error) {
	e, err := s.Get(ctx, id)
	if err != nil {
		return e, err
	}
	_, err = s.fetch(ctx, e, io.Discard)
	if err != nil && director.KindOf(err) != director.KindInvalid && director.KindOf(err) != director.KindNotFound {
		return e, err
	}
	e.Verified, e.Problem = s.c.Now(), ""
	if err != nil {
		e.Problem = err.Error()
	}
	return e, s.c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.VerifiedBackup(id, e.Verified, e.Problem); err != nil {
			return err
		}
		return tx.Audit(e.Verified, actor, "verify backup", "Backup/"+id)
	})
}

// Fetch writes the snapshot of the backup into w, once it knows that the manifest is the one that was written down. An
// error that comes after the last byte makes what was written worthless.
func (s *Service) Fetch(ctx context.Context, id string, w io.Writer) (backup.Manifest, error) {
	e, err := s.Get(ctx, id)
	if err != nil {
		return backup.Manifest{}, err
	}
	return s.fetch(ctx, e, w)
}

func (s *Service) fetch(ctx context.Context, e backup.Entry, w io.Writer) (backup.Manifest, error) {
	_, target, err := s.target(ctx, e.Target)
	if err != nil {
		return backup.Manifest{}, err
	}
	m, err := s.manifest(ctx, target, e.ManifestName())
	if err != nil {
		return m, err
	}
	if m.ID != e.ID || m.ClusterUID != e.ClusterUID || m.Archive != e.Archive || m.Snapshot != e.Snapshot {
		return m, director.Errorf(
			director.KindInvalid, "backups.read", "the manifest of backup %s is that of another one", e.ID,
		).WithHint("use another backup, and find out who can write to the target")
	}
	return m, s.readBack(ctx, target, m, w)
}

// Delete deletes the backup in its target. It can be repeated until the backup is gone.
func (s *Service) Delete(ctx context.Context, actor, id string) error {
	e, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	_, target, err := s.target(ctx, e.Target)
	if err != nil {
		return err
	}
	if err := s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), actor, "delete backup", "Backup/"+id)
	}); err != nil {
		return err
	}
	return s.remove(ctx, target, e.Manifest)
}

// Age is how old the newest backup of a cluster is.
type Age struct {
	Cluster string
	Targets []string
	Newest  time.Time // zero without a backup
	Late    bool
	Drills  DrillState
}

// Ages returns the ages of all installed clusters that name a target, by name.
func (s *Service) Ages(ctx context.Context) ([]Age, error) {
	docs, err := s.c.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return nil, err
	}
	all, err := s.c.Store.Backups(ctx, store.BackupFilter{})
	if err != nil {
		return nil, err
	}
	newest := map[[2]string]time.Time{} // by cluster and target
	for _, e := range slices.Backward(all) {
		newest[[2]string{e.ClusterUID, e.Target}] = e.Made
	}
	var out []Age
	for _, d := range docs {
		if len(d.Cluster.Backup.Targets) == 0 {
			continue
		}
		in, installed, err := s.c.Store.Installed(ctx, d.Metadata.Name)
		if err != nil {
			return nil, err
		}
		if !installed || in.UID != d.UID {
			continue
		}
		a := Age{Cluster: d.Metadata.Name, Targets: d.Cluster.Backup.Targets}
		for i, t := range a.Targets { // the target that is behind counts
			made := newest[[2]string{d.UID, t}]
			if i == 0 || made.Before(a.Newest) {
				a.Newest = made
			}
		}
		since := a.Newest
		if since.IsZero() {
			since = in.At // a cluster has as much time for its first backup
		}
		a.Late = s.c.Now().Sub(since) > d.Cluster.Backup.Late()
		drill := d.Cluster.Backup.Drill
		if a.Drills, err = s.drillsOf(ctx, d.UID, drill.Network, drill.Late(), in.At); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Age) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out, nil
}

// Due returns the clusters that an etcd-backup job makes backups of: the named one, or all with a target.
func (s *Service) Due(ctx context.Context, cluster string) ([]string, error) {
	ages, err := s.Ages(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range ages {
		if cluster == "" || a.Cluster == cluster {
			out = append(out, a.Cluster)
		}
	}
	if cluster != "" && len(out) == 0 {
		return nil, director.Errorf(
			director.KindConflict, "backups.due", "cluster %s is not installed, or names no backup target", cluster,
		).WithHint("name one in spec.backup.targets of Cluster/%s", cluster)
	}
	return out, nil
}

// Drilled returns the clusters that a restore-drill job tries: the named ones, or all whose documents name a network
// for it and that have a backup.
func (s *Service) Drilled(ctx context.Context, clusters []string) ([]string, error) {
	ages, err := s.Ages(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range ages {
		if slices.Contains(clusters, a.Cluster) || len(clusters) == 0 && a.Drills.Network != "" {
			out = append(out, a.Cluster)
		}
	}
	for _, c := range clusters {
		if !slices.Contains(out, c) {
			return nil, director.Errorf(
				director.KindConflict, "backups.drilled", "cluster %s is not installed, or names no backup target", c,
			).WithHint("name one in spec.backup.targets of Cluster/%s", c)
		}
	}
	return out, nil
}

package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// How the snapshot comes to a master, where the playbook restore.yml finds it. It has its name, and what is known of it
// lies next to it, once the backup was read to its end.
const (
	restoreWrite = "set -eu; umask 077; d=/var/lib/kaas/etcd-restore; mkdir -p $d; chmod 700 $d; " +
		"rm -f $d/staged.json $d/snapshot.db; cat > $d/snapshot.part; sync $d/snapshot.part"
	restoreStaged = "set -eu; umask 077; cd /var/lib/kaas/etcd-restore; cat > staged.part; " +
		"mv snapshot.part snapshot.db; mv staged.part staged.json; sync ."
)

// stagedSnapshot is what restore.yml reads next to a snapshot.
type stagedSnapshot struct {
	ID       string `json:"id"` // of the restore: a master that has finished it does nothing again
	Backup   string `json:"backup"`
	Revision int64  `json:"revision"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
}

// restoreStage lays the snapshot of the backup on a master. Nothing there uses it yet.
func (e backupSteps) restoreStage(ctx context.Context, r plan.Run, p step.RestoreParams) error {
	m := p.Machine.Row()
	key, _, err := e.nodeKey(ctx, m.ID)
	if err != nil {
		return err
	}
	began := e.Now()
	manifest, err := e.sendBackup(ctx, m, key, p.Backup)
	if err != nil {
		return err
	}
	if got := manifest.Snapshot; got.SHA256 != p.SHA256 || got.Size != p.Size || manifest.ClusterUID != p.UID {
		return plan.Abort(director.Errorf(
			director.KindConflict, "restore.stage", "backup %s is another one than when the plan was made", p.Backup,
		).WithHint("plan the restore again: directorctl backup restore %s", p.Backup))
	}
	file, err := json.Marshal(stagedSnapshot{
		ID: r.Plan.ID, Backup: p.Backup, Revision: p.Revision, Size: p.Size, SHA256: p.SHA256,
	})
	if err != nil {
		return err
	}
	if err := e.Transfer.Stream(ctx, m, key, restoreStaged, bytes.NewReader(file), io.Discard); err != nil {
		return err
	}
	r.Note(ctx, fmt.Sprintf(
		"%.1f MiB are on %s after %s", float64(p.Size)/(1<<20), m.Name, e.Now().Sub(began).Round(1e6),
	))
	return nil
}

var errNoReader = errors.New("the master reads no more")

// sendBackup writes the snapshot of the backup to the master. It returns without an error once the backup was read to
// its end and is what its manifest says.
func (e backupSteps) sendBackup(ctx context.Context, m director.Machine, hostKey, id string) (backup.Manifest, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r, w := io.Pipe()
	type fetched struct {
		manifest backup.Manifest
		err      error
	}
	done := make(chan fetched, 1)
	go func() {
		manifest, err := e.Backups.Fetch(ctx, id, w)
		_ = w.CloseWithError(err) // nil is the end of the snapshot
		done <- fetched{manifest, err}
	}()
	sent := e.Transfer.Stream(ctx, m, hostKey, restoreWrite, r, io.Discard)
	_ = r.CloseWithError(errNoReader) // the reader of the backup must not wait for a node that is gone
	got := <-done
	if got.err != nil && sent == nil {
		return got.manifest, got.err
	}
	kind := director.KindOf(got.err)
	if got.err != nil && (kind == director.KindInvalid || kind == director.KindNotFound) {
		return got.manifest, plan.Abort(got.err) // it says more than the transfer that it ended
	}
	return got.manifest, sent
}

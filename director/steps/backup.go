package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Backups keeps backups of clusters in their targets.
type Backups interface {
	// Save stores the snapshot that read writes, reads it back and compares. One of the same id is replaced.
	Save(
		ctx context.Context, m backup.Making, read func(ctx context.Context, w io.Writer) error,
	) (backup.Manifest, error)
	// Stored returns the backup of that id that Save has left in the target, read to its end, and puts it on the list.
	// not_found for none.
	Stored(ctx context.Context, m backup.Making) (backup.Manifest, error)
	// Fetch writes the snapshot of the backup into w. An error after the last byte makes what was written worthless.
	Fetch(ctx context.Context, id string, w io.Writer) (backup.Manifest, error)
	// Get returns what is known of a backup, or not_found.
	Get(ctx context.Context, id string) (backup.Entry, error)
	// BeginDrill writes a restore drill down, unless it is.
	BeginDrill(ctx context.Context, d backup.Drill) error
	// AnswerDrill writes down that the drill of the plan has its answer, and what is wrong with it.
	AnswerDrill(ctx context.Context, plan string, keys int64, problem string) error
	// EndDrill forgets the secrets of the drill of the cluster with that uid, and writes down that its VM is gone.
	EndDrill(ctx context.Context, plan, uid string) error
	// DrillLives returns the name of the VM that a drill of the cluster with that uid has, or "".
	DrillLives(ctx context.Context, uid string) (string, error)
}

// Transfer streams into and out of machines.
type Transfer interface {
	// Stream runs a shell script as root on the machine, which proves itself with hostKey. The script reads in and
	// prints to out.
	Stream(ctx context.Context, m director.Machine, hostKey, script string, in io.Reader, out io.Writer) error
}

// backupSteps make backups of clusters, restore them, and try them in drills.
type backupSteps struct {
	Installation
	Keys
	BackupTargets
	facts *factsCache
}

// Stream implements Transfer.
func (s sshNodes) Stream(
	ctx context.Context, m director.Machine, hostKey, script string, in io.Reader, out io.Writer,
) error {
	node, err := s.node(ctx, m, hostKey)
	if err != nil {
		return err
	}
	err = node.stream(ctx, asRoot(script), in, out)
	if _, failed := errors.AsType[*ssh.ExitError](err); failed {
		return director.Errorf(director.KindUnavailable, "node.stream", "a transfer with %s failed: %s", m.Name, err)
	}
	return hostKeyError(m, err)
}

// What the playbook backup.yml leaves on one of the masters, and how it is read.
const (
	snapshotStatus = "cat /var/lib/kaas/etcd-backup/status.json 2>/dev/null || true"
	snapshotRead   = "exec cat /var/lib/kaas/etcd-backup/snapshot.db"
	snapshotRemove = "rm -rf /var/lib/kaas/etcd-backup"
)

// takenSnapshot is the status file next to a snapshot.
type takenSnapshot struct {
	Made     time.Time       `json:"made"`
	Member   string          `json:"member"`
	Etcd     string          `json:"etcd"`
	Revision int64           `json:"revision"`
	Keys     int64           `json:"keys"`
	Hash     uint32          `json:"hash"`
	Members  []backup.Member `json:"members"`
	// Contents is nil if etcd did not tell it any more at that revision.
	Contents *backup.Contents `json:"contents"`
}

// backupStore brings the snapshot that was taken on one of the masters into the target. The last step of a plan removes
// it from the master: if the director ended then, or was restored from before, the target has the backup already.
func (e backupSteps) backupStore(ctx context.Context, r plan.Run, p step.BackupParams) error {
	facts, err := e.facts.of(r.Plan)
	if err != nil {
		return plan.Abort(err)
	}
	making := backup.Making{
		ID: r.Plan.ID + "-" + p.Target, Cluster: p.Cluster, ClusterUID: p.UID, Plan: r.Plan.ID, Reason: p.Reason,
		Target: p.Target, Kubernetes: facts.Kubernetes,
	}
	from, key, taken, err := e.findSnapshot(ctx, p.Masters)
	if err != nil {
		return e.stored(ctx, r, making, err)
	}
	keys, _, err := e.EncryptionKeys(ctx, p.UID)
	if err != nil {
		return err
	}
	making.EncryptionKeys, making.Members, making.Contents = backup.KeyIDs(keys), taken.Members, taken.Contents
	making.Snapshot = backup.Snapshot{
		Revision: taken.Revision, Keys: taken.Keys, Hash: taken.Hash, Etcd: taken.Etcd, Member: taken.Member,
	}
	began := e.Now()
	made, err := e.Backups.Save(ctx, making, func(ctx context.Context, w io.Writer) error {
		return e.Transfer.Stream(ctx, from, key, snapshotRead, nil, w)
	})
	if err != nil {
		return err
	}
	r.Note(ctx, fmt.Sprintf("%s in %s", sizeOf(made.Snapshot), e.Now().Sub(began).Round(time.Millisecond)))
	if p.Last {
		return e.Transfer.Stream(ctx, from, key, snapshotRemove, nil, io.Discard)
	}
	return nil
}

// stored is well if the target has what the masters have not. It fails with missing otherwise.
func (e backupSteps) stored(ctx context.Context, r plan.Run, m backup.Making, missing error) error {
	made, err := e.Backups.Stored(ctx, m)
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return missing
	case err != nil:
		return errors.Join(missing, err)
	}
	r.Note(ctx, sizeOf(made.Snapshot)+", stored before")
	return nil
}

func sizeOf(s backup.Snapshot) string {
	return fmt.Sprintf("revision %d, %d keys, %.1f MiB", s.Revision, s.Keys, float64(s.Size)/(1<<20))
}

// findSnapshot looks for the newest snapshot on the masters. Masters that do not answer have none.
func (e backupSteps) findSnapshot(
	ctx context.Context, masters []plan.MachineSpec,
) (from director.Machine, hostKey string, newest takenSnapshot, err error) {
	var silent error
	for _, spec := range masters {
		m := spec.Row()
		key, _, err := e.nodeKey(ctx, m.ID)
		if err != nil {
			return from, "", newest, err
		}
		var out bytes.Buffer
		look, cancel := context.WithTimeout(ctx, 15*time.Second)
		err = e.Transfer.Stream(look, m, key, snapshotStatus, nil, &out)
		cancel()
		if err != nil {
			silent = errors.Join(silent, fmt.Errorf("%s: %w", m.Name, err))
			continue
		}
		var taken takenSnapshot
		if json.Unmarshal(out.Bytes(), &taken) == nil && taken.Made.After(newest.Made) {
			from, hostKey, newest = m, key, taken
		}
	}
	if newest.Made.IsZero() {
		return from, "", newest, &director.Error{
			Kind: director.KindUnavailable, Op: "backup.store", Msg: "no master has the snapshot",
			Hint: "make the backup again: directorctl backup create", Err: silent,
		}
	}
	return from, hostKey, newest, nil
}

package steps

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// target keeps what is saved in it, by id.
type target struct {
	Backups
	kept map[string]string
}

func (k target) Save(
	ctx context.Context, m backup.Making, read func(context.Context, io.Writer) error,
) (backup.Manifest, error) {
	var text bytes.Buffer
	if err := read(ctx, &text); err != nil {
		return backup.Manifest{}, err
	}
	k.kept[m.ID] = text.String()
	return backup.Manifest{ID: m.ID, Snapshot: m.Snapshot}, nil
}

func (k target) Stored(_ context.Context, m backup.Making) (backup.Manifest, error) {
	if _, there := k.kept[m.ID]; !there {
		return backup.Manifest{}, director.Errorf(director.KindNotFound, "t", "there is no %s", m.ID)
	}
	return backup.Manifest{ID: m.ID}, nil
}

// A director that ended after the snapshot was removed from the master, or was restored from before that, stores it
// again: the target has it. Without it there, the backup has to be made again. Over a real SSH server.
func TestSnapshotIsStoredOnce(t *testing.T) {
	t.Parallel()
	doc := model.Cluster{}
	doc.Services.Domain = "cluster.example"
	_, _, run := issuing(t, doc)
	env := sshEnv(t)
	params := step.ClusterParams{UID: "c1", Name: "demo", Document: doc}
	if err := env.keys().clusterPKI(t.Context(), run, params); err != nil {
		t.Fatal(err)
	}
	node := env.born(t, "c1", "m1")
	env.Transfer = node.as(env)
	kept := target{kept: map[string]string{}}
	env.Backups = kept
	dir := filepath.Join(node.dir, "kaas/etcd-backup")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	status := `{"made": "` + time.Now().UTC().Format(time.RFC3339) + `", "revision": 7, "keys": 2}`
	for name, text := range map[string]string{"snapshot.db": "pages", "status.json": status} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var notes []string
	run.Plan.ID = "p1"
	run.Note = func(_ context.Context, text string) { notes = append(notes, text) }
	store := func() error {
		return env.backup().backupStore(t.Context(), run, step.BackupParams{
			UID: "c1", Cluster: "demo", Target: "near", Last: true,
			Masters: []plan.MachineSpec{localMachine("m1").Machine},
		})
	}
	for range 2 {
		if err := store(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the master has its snapshot: %v", err)
	}
	if kept.kept["p1-near"] != "pages" || len(notes) != 2 || !strings.HasSuffix(notes[1], ", stored before") {
		t.Errorf("the target has %v, and it was said %q", kept.kept, notes)
	}
	delete(kept.kept, "p1-near")
	if err := store(); err == nil || !strings.Contains(err.Error(), "no master has the snapshot") {
		t.Errorf("without the snapshot and the backup: %v", err)
	}
}

package steps

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// shelf has one backup, and says err behind its last byte.
type shelf struct {
	Backups
	text     string
	manifest backup.Manifest
	err      error
}

func (s shelf) Fetch(_ context.Context, _ string, w io.Writer) (backup.Manifest, error) {
	if _, err := io.WriteString(w, s.text); err != nil {
		return backup.Manifest{}, err
	}
	return s.manifest, s.err
}

// A snapshot gets its name on the master once the backup was read to its end, over a real SSH server.
func TestSnapshotIsLaidOnAMaster(t *testing.T) {
	t.Parallel()
	env := sshEnv(t)
	node := env.born(t, "c1", "m1")
	env.Transfer = node.as(env)
	params := step.RestoreParams{
		UID: "c1", Cluster: "demo", Backup: "b1", Revision: 7, Size: 8, SHA256: "aa",
		Machine: localMachine("m1").Machine,
	}
	run := plan.Run{Plan: &plan.Plan{ID: "p1"}, Note: func(context.Context, string) {}}
	whole := backup.Manifest{ClusterUID: "c1", Snapshot: backup.Snapshot{Sums: backup.Sums{Size: 8, SHA256: "aa"}}}
	damaged := director.Errorf(director.KindInvalid, "backup.decode", "the backup is damaged")
	laid := func(name string) string {
		text, err := os.ReadFile(filepath.Join(node.dir, "kaas/etcd-restore", name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	another := whole
	another.Snapshot.SHA256 = "bb"
	for name, tt := range map[string]struct {
		shelf shelf
		want  string
	}{
		"damaged": {shelf{text: "half", err: damaged}, "is damaged"},
		"away":    {shelf{text: "half", err: errors.New("the target is away")}, "the target is away"},
		"another": {shelf{text: "snapshot", manifest: another}, "is another one than"},
	} {
		env.Backups = tt.shelf
		err := env.backup().restoreStage(t.Context(), run, params)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := laid("snapshot.db") + laid("staged.json"); got != "" {
			t.Errorf("%s: the master has %q", name, got)
		}
	}
	env.Backups = shelf{text: "snapshot", manifest: whole}
	for range 2 {
		if err := env.backup().restoreStage(t.Context(), run, params); err != nil {
			t.Fatal(err)
		}
	}
	var staged stagedSnapshot
	if err := json.Unmarshal([]byte(laid("staged.json")), &staged); err != nil {
		t.Fatal(err)
	}
	want := stagedSnapshot{ID: "p1", Backup: "b1", Revision: 7, Size: 8, SHA256: "aa"}
	if laid("snapshot.db") != "snapshot" || staged != want {
		t.Errorf("%q, %v", laid("snapshot.db"), staged)
	}
	info, err := os.Stat(filepath.Join(node.dir, "kaas/etcd-restore"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// isBackedUp names a target in the cluster's document, makes a backup, and sees that it is whole, encrypted, and
// refused when one byte of it is another one.
func (s *suite) isBackedUp(t *testing.T) {
	target := s.write("models/target.yaml", "apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: local}\n"+
		"spec: {type: directory, directory: "+s.path("backups/local")+", retention: {count: 3}}\n", 0o644)
	if err := os.MkdirAll(s.path("backups/local"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.ctl(t, "apply", "-f", target)
	document := s.path("models/cluster.yaml")
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	named := bytes.Replace(text, []byte("\n  masters:\n"), []byte("\n  backup: {targets: [local]}\n  masters:\n"), 1)
	if err := os.WriteFile(document, named, 0o600); err != nil || bytes.Equal(text, named) {
		t.Fatalf("the document names no target: %v\n%s", err, named)
	}
	s.ctl(t, "apply", "-f", document, "--start", "--yes", "--wait")
	s.kubectl(t, "create", "secret", "generic", "kept", "--from-literal=word=canary-of-the-backup")
	s.ctl(t, "backup", "create", "demo", "--wait", "--yes")

	backups := s.backups(t)
	if len(backups) != 1 || backups[0].Keys < 100 || backups[0].Revision < 100 || backups[0].SizeBytes < 1<<20 {
		t.Fatalf("the backups are %+v", backups)
	}
	s.ctl(t, "backup", "verify", backups[0].ID)
	files, err := filepath.Glob(s.path("backups/local/*/*.age"))
	if more, _ := filepath.Glob(s.path("backups/local/*.age")); len(more) > 0 {
		files = append(files, more...)
	}
	if err != nil || len(files) != 1 {
		t.Fatalf("the target has the archives %v: %v", files, err)
	}
	archive, err := os.ReadFile(files[0])
	if err != nil || !bytes.HasPrefix(archive, []byte("age-encryption.org/")) ||
		bytes.Contains(archive, []byte("canary-of-the-backup")) || bytes.Contains(archive, []byte("/registry/")) {
		t.Errorf("the archive is not encrypted, or cannot be read: %v", err)
	}
	if left := s.onNode(t, s.masterNames()[0], "ls /var/lib/kaas 2>/dev/null || true"); strings.Contains(left,
		"etcd-backup") {
		t.Errorf("the snapshot is left on the master: %s", left)
	}

	archive[len(archive)/2] ^= 1
	if err := os.WriteFile(files[0], archive, 0o600); err != nil {
		t.Fatal(err)
	}
	s.refused(t, []string{"backup " + backups[0].ID}, "backup", "verify", backups[0].ID)
	s.ctl(t, "backup", "delete", backups[0].ID, "--yes")
	if left, err := filepath.Glob(s.path("backups/local/*")); err != nil || len(left) > 0 && len(s.backups(t)) != 0 {
		t.Errorf("the target has %v: %v", left, err)
	}
	s.kubectl(t, "delete", "secret", "kept")
}

// rotationIsBackedUp wants the backup that the director has made before it rotated certificates on a master.
func (s *suite) rotationIsBackedUp(t *testing.T) {
	t.Helper()
	backups := s.backups(t)
	if len(backups) != 1 || backups[0].Reason != "before cluster.rotate_certs" {
		t.Errorf("the backups are %+v, want one from before the rotation", backups)
	}
}

type backupView struct {
	ID        string `json:"id"`
	Target    string `json:"target"`
	Reason    string `json:"reason"`
	Revision  int64  `json:"revision"`
	Keys      int64  `json:"keys"`
	SizeBytes int64  `json:"size_bytes"`
}

func (s *suite) backups(t *testing.T) []backupView {
	t.Helper()
	var list struct {
		Items []backupView `json:"items"`
	}
	out := s.ctl(t, "backup", "list", "demo", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return list.Items
}

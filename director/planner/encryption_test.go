package planner

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func TestEncryptionKeyIsRotated(t *testing.T) {
	t.Parallel()
	r := plan.Request{Operation: plan.ClusterEncryptionKey}
	for name, tt := range map[string]struct {
		names KeyNames
		key   string
		added bool
	}{
		"another key":             {KeyNames{Keys: []string{"key1"}}, "key2", true},
		"a name is used once":     {KeyNames{Keys: []string{"key2"}, Former: []string{"key3", "key1"}}, "key4", true},
		"stopped before its use":  {KeyNames{Keys: []string{"key1", "key2"}}, "key2", false},
		"stopped before the drop": {KeyNames{Keys: []string{"key10", "key9"}}, "key10", false},
	} {
		w := backedUp(t, 3, 1, "offsite")
		w.Encryption = tt.names
		c, err := RotateEncryptionKey(w, r)
		want := []string{"backup/demo", "backup.store/offsite"}
		if tt.added {
			want = append(want, "encryption.key/add")
		}
		want = append(
			want, "encryption_read/demo", "encryption.key/use", "encryption_write/demo", "encrypt_secrets/demo",
			"encryption.key/drop", "encryption_forget/demo",
		)
		if got := ids(t, c, err); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
		for i, s := range c.Steps[1:] { // one after another: each stage rests on the one before
			if !slices.Equal(s.Needs, []string{c.Steps[i].ID}) {
				t.Errorf("%s: %s needs %v", name, s.ID, s.Needs)
			}
		}
		var p step.EncryptionParams
		use, _ := (&plan.Plan{Content: c}).Step("encryption.key/use")
		if err := json.Unmarshal(use.Params, &p); err != nil || !slices.Equal(p.Keys, []string{tt.key}) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func TestEncryptionKeyIsNotRotated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*World)
		want   string
	}{
		"not installed":   {func(w *World) { w.Installed = nil }, "is not installed"},
		"no answer":       {func(w *World) { w.Blind = "connection refused" }, "does not answer"},
		"a master is off": {func(w *World) { w.Seen["demo-master-2"] = Seen{} }, "demo-master-2 is not ready"},
		"half an upgrade": {func(w *World) { w.Machines[0].Kubernetes = "v1.36.4" }, "its document wants"},
	} {
		w := backedUp(t, 3, 1)
		w.Encryption = KeyNames{Keys: []string{"key1"}}
		tt.change(&w)
		_, err := RotateEncryptionKey(w, plan.Request{Operation: plan.ClusterEncryptionKey})
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A backup from before a rotation needs the former key until its Secrets are encrypted again.
func TestRestoreTakesUpFormerKeys(t *testing.T) {
	t.Parallel()
	w := restorable(t, 1, 1)
	w.Restore.FormerKeys = []string{"key1"}
	c, err := RestoreBackup(w, plan.Request{Operation: plan.ClusterRestore, Restore: plan.Restore{Backup: "b1"}})
	want := []string{
		"encryption.key/recall", "encryption_read/demo", "restore.stage/demo-master-1", "backup/demo",
		"backup.store/offsite", "restore/demo", "kube.ready/demo", "verify/demo", "encrypt_secrets/demo",
		"encryption.key/drop", "encryption_forget/demo",
	}
	if got := ids(t, c, err); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for id, waits := range map[string]bool{"encryption_read/demo": false, "encryption_forget/demo": true} {
		s, _ := (&plan.Plan{Content: c}).Step(id)
		var p step.PlayParams
		if err := json.Unmarshal(s.Params, &p); err != nil || p.Vars["encryption_keys_wait"] != waits {
			t.Errorf("%s: %v, %v", id, p.Vars, err)
		}
	}
	w.Cluster.Cluster.Masters.Persist = nil
	c, err = RestoreBackup(w, plan.Request{
		Operation: plan.ClusterRestore, Restore: plan.Restore{Backup: "b1", NewMasters: true},
	})
	got := ids(t, c, err)
	if slices.Contains(got, "encryption_read/demo") || got[0] != "encryption.key/recall" {
		t.Errorf("new masters: %v", got)
	}
	hold, _ := (&plan.Plan{Content: c}).Step("hold/demo")
	if !slices.Equal(hold.Needs, []string{"encryption.key/recall"}) {
		t.Errorf("new masters: they may come before the keys: %v", hold.Needs)
	}
}

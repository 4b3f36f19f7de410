package planner

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// changesOfKeys are worlds in which the keys of a cluster are changed, or their change is finished, by what plans that.
func changesOfKeys(t *testing.T) map[string]func(DirectorBackups) (plan.Content, error) {
	t.Helper()
	one, begun := KeyNames{Keys: []string{"key1"}}, KeyNames{Keys: []string{"key1", "key2"}}
	out := map[string]func(DirectorBackups) (plan.Content, error){}
	for _, tt := range []struct {
		op   plan.Operation
		keys func(*World, KeyNames)
		plan func(World, plan.Request) (plan.Content, error)
	}{
		{plan.ClusterEncryptionKey, func(w *World, k KeyNames) { w.Encryption = k }, RotateEncryptionKey},
		{plan.ClusterSigningKey, func(w *World, k KeyNames) { w.Signing = k }, RotateServiceAccountKey},
		{plan.ClusterSSHAuthority, func(w *World, k KeyNames) { w.SSHAuthorities = k }, RotateSSHAuthority},
		{plan.ClusterCA, func(w *World, k KeyNames) { w.Authorities["cluster"] = k }, RotateAuthority},
		{plan.ClusterEtcdCA, func(w *World, k KeyNames) { w.Authorities["etcd"] = k }, RotateAuthority},
		{plan.ClusterFrontProxyCA, func(w *World, k KeyNames) { w.Authorities["front-proxy"] = k }, RotateAuthority},
		{plan.ClusterRotateCerts, func(w *World, k KeyNames) {
			w.Authorities["cluster"], w.Authorities["etcd"] = k, k
			w.EndedAuthorities = map[string]bool{"cluster": true, "etcd": true}
		}, RotateCertificates},
	} {
		for name, keys := range map[string]KeyNames{"": one, " begun": begun} {
			out[string(tt.op)+name] = func(b DirectorBackups) (plan.Content, error) {
				w := backedUp(t, 3, 2)
				w.Authorities = unchanged()
				tt.keys(&w, keys)
				r := plan.Request{Operation: tt.op}
				if tt.op == plan.ClusterRotateCerts {
					r.Certificates = plan.Certificates{MadeBefore: time.Unix(1, 0), Cold: true}
				}
				if !ChangesKeys(w, r) {
					return plan.Content{}, fmt.Errorf("%s is not known to change keys", tt.op)
				}
				w.DirectorBackups = b
				return tt.plan(w, r)
			}
		}
	}
	return out
}

// before returns which steps come before the step, whatever happens.
func before(c plan.Content, id string) map[string]bool {
	out := map[string]bool{}
	s, _ := (&plan.Plan{Content: c}).Step(id)
	for _, n := range s.Needs {
		out[n] = true
		for m := range before(c, n) {
			out[m] = true
		}
	}
	return out
}

// Whatever nodes are given rests on a backup of the director in each place that was made after the last change of what
// the director gives them, apart from a key that it has forgotten.
func TestDirectorIsBackedUpBeforeNodesHaveItsKeys(t *testing.T) {
	t.Parallel()
	targets := []string{"near", "offsite"}
	for name, planOf := range changesOfKeys(t) {
		c, err := planOf(DirectorBackups{Targets: targets, Copies: 7})
		ids(t, c, err)
		for _, s := range c.Steps {
			earlier := before(c, s.ID)
			if s.Kind != step.Play || s.ID == "clocks/demo" { // which gives them nothing
				continue
			}
			saved := "add"
			for id := range earlier {
				if strings.Contains(id, "/use") {
					saved = "use"
				}
			}
			for _, target := range targets {
				if !earlier[step.DirectorBackup+"/"+saved+"-"+target] {
					t.Errorf("%s: %s does not come after the backup to %s (%s)", name, s.ID, target, saved)
				}
			}
		}
		needs, err := step.NeedsOf(c)
		for _, target := range targets {
			if !needs.Documents[model.Ref{Kind: model.KindBackupTarget, Name: target}] {
				t.Errorf("%s: the target %s may go while the plan needs it (%v)", name, target, err)
			}
		}
		if text := strings.Join(c.Warnings, "\n"); strings.Contains(text, "backup") {
			t.Errorf("%s: it warns of %s", name, text)
		}
	}
}

// Without a target, plans say what that means.
func TestDirectorIsBackedUpNowhereElse(t *testing.T) {
	t.Parallel()
	for name, planOf := range changesOfKeys(t) {
		for copies, want := range map[int]string{
			5: "backed up on its own machine alone", 0: "this plan makes no backup of the director",
		} {
			c, err := planOf(DirectorBackups{Copies: copies})
			got := ids(t, c, err)
			text := strings.Join(c.Warnings, "\n")
			if !strings.Contains(text, want) || !strings.Contains(text, "name a BackupTarget") {
				t.Errorf("%s, %d copies: it warns of %q", name, copies, text)
			}
			i := slices.Index(got, step.DirectorBackup+"/use")
			if (i >= 0) != (copies > 0) {
				t.Errorf("%s, %d copies: %v", name, copies, got)
			}
			if i < 0 {
				continue
			}
			var p step.DirectorBackupParams
			if err := json.Unmarshal(c.Steps[i].Params, &p); err != nil || p.Target != "" || p.Keep != copies {
				t.Errorf("%s: %s, %v", name, c.Steps[i].Params, err)
			}
		}
	}
}

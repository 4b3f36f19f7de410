package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

func TestSSHAuthorityIsRotated(t *testing.T) {
	t.Parallel()
	rest := []string{"ssh_trust/demo", "ssh.authority/use", "ssh_login/demo", "ssh.authority/drop", "ssh_forget/demo"}
	for name, tt := range map[string]struct {
		names KeyNames
		want  []string
	}{
		"another one":  {KeyNames{Keys: []string{"key1"}}, append([]string{"ssh.authority/add"}, rest...)},
		"stopped half": {KeyNames{Keys: []string{"key1", "key2"}}, rest},
		"nearly done":  {KeyNames{Keys: []string{"key2", "key1"}}, rest},
	} {
		w := backedUp(t, 3, 2)
		w.SSHAuthorities = tt.names
		c, err := RotateSSHAuthority(w, plan.Request{Operation: plan.ClusterSSHAuthority})
		if got := ids(t, c, err); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v", name, got)
		}
		for i, s := range c.Steps[1:] {
			if !slices.Equal(s.Needs, []string{c.Steps[i].ID}) {
				t.Errorf("%s: %s needs %v", name, s.ID, s.Needs)
			}
		}
		if use, _ := (&plan.Plan{Content: c}).Step("ssh.authority/use"); !strings.Contains(string(use.Params), "key2") {
			t.Errorf("%s: %s", name, use.Params)
		}
	}
}

// TestSSHAuthorityNeedsAllNodes refuses what would lock the director out of a node.
func TestSSHAuthorityNeedsAllNodes(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"demo-master-2", "demo-worker-1"} {
		w := backedUp(t, 3, 2)
		w.SSHAuthorities = KeyNames{Keys: []string{"key1"}}
		w.Seen[away] = Seen{}
		_, err := RotateSSHAuthority(w, plan.Request{Operation: plan.ClusterSSHAuthority})
		if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), away+" is not ready") {
			t.Errorf("%s: %v", away, err)
		}
	}
}

func TestSSHAuthorityAndHalfAnUpgrade(t *testing.T) {
	t.Parallel()
	w := backedUp(t, 3, 2)
	w.SSHAuthorities = KeyNames{Keys: []string{"key1"}}
	w.Machines[0].Kubernetes = "v1.36.4"
	_, err := RotateSSHAuthority(w, plan.Request{Operation: plan.ClusterSSHAuthority})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "its document wants") {
		t.Errorf("in the middle of an upgrade: %v", err)
	}
}

package steps

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
)

// recorder is a player that keeps the last play.
type recorder struct{ last ansible.Play }

func (r *recorder) Play(_ context.Context, p ansible.Play) (ansible.Result, error) {
	r.last = p
	return ansible.Result{}, nil
}

// A play is given the inventory of the templates that its plan was made with. A tree from before trees had templates is
// still opened.
func TestPlaysAreRenderedWithTheTemplatesOfTheirPlan(t *testing.T) {
	t.Parallel()
	old, kept := t.TempDir(), t.TempDir()
	dir := filepath.Join(kept, inventory.TemplatesDir)
	if err := os.CopyFS(dir, inventorytemplates.FS()); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(dir, "hosts.ini.tmpl")
	text, err := os.ReadFile(hosts)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hosts, append([]byte("# of the former director\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{}
	for _, v := range inventory.Variables() {
		if image, ok := strings.CutSuffix(v.Name, "_image_tag"); ok {
			tags[image] = "1"
		}
	}
	facts, err := json.Marshal(step.Facts{
		Cluster: "demo", UID: "u", Kubernetes: "v1.37.1", Registry: "172.30.0.1:5000", Tags: tags,
		Network: adapters().Network,
		Document: model.Cluster{
			Network:  "demo",
			Pods:     model.PodNetwork{Plugin: "calico", CIDR: netip.MustParsePrefix("10.244.0.0/16"), MTU: 1450},
			Services: model.ServiceNetwork{CIDR: netip.MustParsePrefix("10.96.0.0/16"), Domain: "cluster.local"},
		},
		Nodes: []plan.MachineSpec{
			{ID: "m0", Name: "demo-master-1", Role: director.RoleMaster, Network: "demo", Address: "10.88.0.10"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for tree, want := range map[string]bool{old: false, kept: true} {
		player := &recorder{}
		env := waitingEnv(t, nil)
		env.Player, env.Trees = player, func(string) (string, error) { return tree, nil }
		env.LogPath, env.Now = func(string, string, int) string { return "" }, time.Now
		r := quietRun()
		r.Plan = &plan.Plan{Content: plan.Content{Facts: facts}}
		if err := env.plays().play(t.Context(), r, step.PlayParams{Playbook: "install.yml"}); err != nil {
			t.Fatal(err)
		}
		got := string(player.last.Inventory["hosts.ini"])
		if !strings.Contains(got, "demo-master-1") || strings.HasPrefix(got, "# of the former director\n") != want {
			t.Errorf("with the former director's templates: %t; got\n%s", want, got)
		}
	}
}

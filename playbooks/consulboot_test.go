package playbooks_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// bootFacts is a cluster whose nodes have agents, with all that a file of theirs may hold.
func bootFacts() step.Facts {
	check := func(http, https string) model.VMServiceCheck {
		return model.VMServiceCheck{TCP: http+https == "", HTTP: http, HTTPS: https, Port: 8081, Interval: 10e9}
	}
	return step.Facts{
		Cluster: "demo", UID: "4f1c2a90-0000-4000-8000-000000000001",
		Agents: &step.Agents{
			Owner: "d1", Datacenter: "dc1", Domain: "consul.example.org", CA: "-----BEGIN CERTIFICATE-----\nMIIB\n",
			Join: []string{"10.0.0.11:8301", "consul.example.org:8301"}, AutoEncrypt: true,
		},
		Document: model.Cluster{
			API: model.APIEndpoint{VIP: netip.MustParseAddr("10.0.0.9")},
			Workers: []model.WorkerPool{{Name: "worker", VMModel: model.VMModel{
				Services: []model.VMService{
					{
						Name: "web", Port: 8080, Tags: []string{"blue", "v1"},
						Check: check("/healthz?full=1&deep=<1>", ""),
					},
					{Name: "shop", Port: 8443, Check: check("", "/ready")},
					{Name: "db", Port: 5432, Check: check("", "")},
				},
			}}},
		},
	}
}

// toldAs is what the inventory says of the agent on a machine.
func toldAs(t *testing.T, f step.Facts, m plan.MachineSpec) map[string]any {
	t.Helper()
	told, err := json.Marshal(f.Agents)
	if err != nil {
		t.Fatal(err)
	}
	services := []map[string]any{}
	for _, s := range f.Services(m) {
		services = append(services, map[string]any{
			"id": s.ID, "name": s.Name, "address": s.Address, "port": s.Port, "tags": s.Tags, "scheme": s.Check.Scheme,
			"check_port": s.Check.Port, "path": s.Check.Path, "interval": s.Check.Interval,
		})
	}
	return map[string]any{
		"cluster_uid": f.UID, "node_ip": m.Address, "consul_agents": string(told), "consul_services": services,
		"consul_agent_tokens": `{"` + m.Name + `": "s3cret"}`, "consul_gossip_key": "a2V5",
		"consul_agent_live": false,
	}
}

// TestNodesHaveTheirFilesAtBoot runs the role on nodes that have the files of their first boot: it leaves these as they
// are, and adds the program and the secrets. If Go and the role wrote different files, this would fail.
func TestNodesHaveTheirFilesAtBoot(t *testing.T) {
	t.Parallel()
	least := bootFacts()
	least.Agents.AutoEncrypt, least.Document.Workers = false, nil
	for _, c := range []struct {
		name  string
		facts step.Facts
		m     plan.MachineSpec
	}{
		{"worker", bootFacts(), plan.MachineSpec{
			Name: "demo-worker-1", Role: director.RoleWorker, Pool: "worker", Address: "10.0.0.2",
		}},
		{"master", bootFacts(), plan.MachineSpec{Name: "demo-master-1", Role: director.RoleMaster, Address: "fd00::2"}},
		{"least", least, plan.MachineSpec{
			Name: "demo-worker-2", Role: director.RoleWorker, Pool: "worker", Address: "10.0.0.3",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			findsItsFiles(t, c.facts, c.m)
		})
	}
}

// findsItsFiles runs the role on a machine with the files of its first boot.
func findsItsFiles(t *testing.T, f step.Facts, m plan.MachineSpec) {
	t.Helper()
	vars, err := filepath.Abs("vars/cluster.yml")
	if err != nil {
		t.Fatal(err)
	}
	n := &agentNode{t: t, name: m.Name, dir: t.TempDir(), vars: toldAs(t, f, m), varsFile: vars}
	n.vars["consul_agent_root"] = n.dir
	n.write("usr/bin/consul", []byte("#!/bin/sh\n"), 0o755)
	files, err := consulagent.OnNode(f, m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		for _, path := range []string{"/etc/consul.d/", "/var/lib/consul", "/usr/local/lib/kaas-consul/"} {
			for _, before := range []string{`"`, "=", ":"} {
				files[i].Text = bytes.ReplaceAll(files[i].Text, []byte(before+path), []byte(before+n.dir+path))
			}
		}
		n.write(files[i].Path, files[i].Text, 0o644)
	}
	if got := n.play("main"); got != "3" {
		t.Errorf("the role changed %s tasks, want the program's place, its link and the secrets:\n%s", got, n.said)
	}
	for _, file := range files {
		got, err := os.ReadFile(filepath.Join(n.dir, file.Path))
		if err != nil || !bytes.Equal(got, file.Text) {
			t.Errorf("%s is\n%s\nafter\n%s\n%v", file.Path, got, file.Text, err)
		}
	}
	if got := n.play("main"); got != "0" {
		t.Errorf("the second run changed %s tasks", got)
	}
}

// write puts a file on the node.
func (n *agentNode) write(path string, text []byte, mode os.FileMode) {
	n.t.Helper()
	at := filepath.Join(n.dir, path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(at, text, mode); err != nil {
		n.t.Fatal(err)
	}
}

package playbooks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

// TestClusterDNS runs the role against a real API server: what it reports as changed is what the server has changed.
// The pretended cluster of the playbooks' other tests knows only what its author knew of kubectl.
func TestClusterDNS(t *testing.T) {
	t.Parallel()
	p, err := pki.NewCluster("dns")
	if err != nil {
		t.Fatal(err)
	}
	s := kubetest.Start(t, p)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("kubeconfig", s.Admin().Reveal())
	play := write("play.yml", `---
- name: Settings of CoreDNS
  hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: cluster_dns
      vars:
        cluster_dns_upstreams: "{{ upstreams }}"
        cluster_dns_forwards: "{{ forwards | default([]) }}"
        cluster_dns_kubeconfig: `+kubeconfig+`
`)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(
			t.Context(), "ansible-playbook", append([]string{"-i", "localhost,", play}, args...)...,
		)
		cmd.Env = append(
			os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+dir,
			"PATH="+filepath.Dir(s.Kubectl)+":"+os.Getenv("PATH"),
		)
		out, err := cmd.CombinedOutput()
		counts := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(out)
		if err != nil || counts == nil {
			t.Fatalf("ansible-playbook %v: %v\n%s", args, err, out)
		}
		return string(counts[1])
	}
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(
			t.Context(), s.Kubectl, append([]string{"--kubeconfig", kubeconfig, "-n", "kube-system"}, args...)...,
		).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}

	consul := `{"upstreams": ["192.0.2.2"], "forwards": [{"domain": "consul", "servers": ["192.0.2.3:8600", ` +
		`"192.0.2.4:8600"]}]}`
	one, other := `{"upstreams": ["192.0.2.1"]}`, `{"upstreams": ["192.0.2.2"]}`
	for _, step := range []struct {
		name, want string
		args       []string
		before     func()
	}{
		{"check mode sees what is missing", "1", []string{"--check", "-e", one}, nil},
		{"the first run makes it", "1", []string{"-e", one}, nil},
		{"the second changes nothing", "0", []string{"-e", one}, nil},
		{"check mode agrees", "0", []string{"--check", "-e", one}, nil},
		{"check mode sees another setting", "1", []string{"--check", "-e", other}, nil},
		{"another setting is applied", "1", []string{"-e", other}, nil},
		{"a budget that somebody has changed is put right", "1", []string{"-e", other}, func() {
			kubectl("patch", "poddisruptionbudget/coredns", "--type=merge", "-p", `{"spec":{"maxUnavailable":2}}`)
		}},
		{"and then nothing changes", "0", []string{"-e", other}, nil},
		{"a domain of other servers is applied", "1", []string{"-e", consul}, nil},
		{"and then nothing changes, with the domain", "0", []string{"-e", consul}, nil},
	} {
		if step.before != nil {
			step.before()
		}
		if got := run(step.args...); got != step.want {
			t.Errorf("%s: changed=%s, want %s", step.name, got, step.want)
		}
	}
	if got := kubectl("get", "poddisruptionbudget/coredns", "-o", "jsonpath={.spec.maxUnavailable}"); got != "1" {
		t.Errorf("the budget allows %s, want 1", got)
	}
	if corefile := kubectl(
		"get", "configmap/coredns", "-o", "jsonpath={.data.Corefile}",
	); !regexp.MustCompile(`forward \. 192\.0\.2\.2 `).MatchString(corefile) ||
		!regexp.MustCompile(`consul:53 {\n    errors\n    forward \. 192\.0\.2\.3:8600 192\.0\.2\.4:8600 `+
			`{`).MatchString(corefile) {
		t.Errorf("the Corefile is\n%s", corefile)
	}
}

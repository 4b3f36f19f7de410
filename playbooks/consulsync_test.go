package playbooks_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

// syncRole runs the role consul_sync against an API server.
type syncRole struct {
	t          *testing.T
	server     *kubetest.Server
	dir        string
	kubeconfig string
	book       string // file in dir
	said       string
}

// run plays the role and returns how many tasks changed something.
func (r *syncRole) run(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "ansible-playbook",
		append([]string{"-vv", "-i", "localhost,", filepath.Join(r.dir, r.book)}, args...)...)
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+r.dir,
		"PATH="+filepath.Dir(r.server.Kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	counts := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(out)
	if err != nil || counts == nil {
		r.t.Fatalf("ansible-playbook %v: %v\n%s", args, err, out)
	}
	r.said += string(out)
	return string(counts[1])
}

func (r *syncRole) kubectl(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.server.Kubectl,
		append([]string{"--kubeconfig", r.kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (r *syncRole) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// TestConsulSync runs the role against a real API server: the second run changes nothing, the program accepts the
// configuration, the pods meet the restricted standard, and the token is not in what Ansible says.
func TestConsulSync(t *testing.T) {
	t.Parallel()
	p, err := pki.NewCluster("sync")
	if err != nil {
		t.Fatal(err)
	}
	r := &syncRole{t: t, server: kubetest.Start(t, p), dir: t.TempDir(), book: "play.yml"}
	// A deletion in the foreground ends by it; the Deployment has no pods without a controller of its own.
	r.server.StartControllers("garbage-collector-controller")
	r.kubeconfig = r.write("kubeconfig", r.server.Admin().Reveal())
	r.write("vars.json", `{"token": "s3cret-token"}`)
	r.write("play.yml", `---
- name: Sync with Consul
  hosts: localhost
  connection: local
  gather_facts: false
  roles:
    - role: consul_sync
      vars:
        consul_sync_config:
          owner: director-1
          cluster: c1
          consul: {addresses: ["https://consul.example:8501"], serverName: server.dc1.consul}
          export: {loadBalancer: true}
          import: [{service: db, namespace: shop, name: db, port: 5432}]
        consul_sync_token: "{{ token }}"
        consul_sync_ca: "{{ ca | default('certificates') }}"
        consul_sync_kubeconfig: `+r.kubeconfig+`
`)
	token := []string{"-e", "@" + filepath.Join(r.dir, "vars.json")}
	if got := r.run(append(token, "--check")...); got == "0" {
		t.Error("check mode sees no change")
	}
	if got := r.run(token...); got != "3" {
		t.Errorf("the first run changed %s tasks, want 3", got)
	}
	if got := r.run(token...); got != "0" {
		t.Errorf("the second run changed %s tasks, want none", got)
	}
	before := r.kubectl("-n", "kube-system", "get", "deployment", "consul-sync", "-o",
		"jsonpath={.spec.template.metadata.annotations}")
	if got := r.run(append(token, "-e", "ca=others")...); got != "1" {
		t.Errorf("another authority changed %s tasks, want 1", got)
	}
	after := r.kubectl("-n", "kube-system", "get", "deployment", "consul-sync", "-o",
		"jsonpath={.spec.template.metadata.annotations}")
	if before == after {
		t.Error("another authority does not start the pods again")
	}
	if strings.Contains(r.said, "s3cret-token") {
		t.Error("Ansible shows the token")
	}
	var m struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(r.kubectl("-n", "kube-system", "get", "configmap", "consul-sync", "-o", "json")),
		&m); err != nil {
		t.Fatal(err)
	}
	c, err := consulsync.ParseConfig([]byte(m.Data["config.yaml"]))
	if err != nil || c.Consul.TokenFile != "/etc/consul-sync-token/token" ||
		c.Consul.ServerName != "server.dc1.consul" {
		t.Errorf("configuration %+v, error %v", c, err)
	}
	for question, want := range map[string]string{
		"create services -n shop": "yes", "delete endpointslices -n shop": "yes", "list ingresses -A": "yes",
		"create services -n default": "no", "delete services -n kube-system": "no", "get secrets -n kube-system": "no",
		"update configmaps/coredns -n kube-system": "no", "update configmaps/consul-sync-status -n kube-system": "yes",
		"update leases/kube-scheduler -n kube-system": "no", "list pods -A": "no",
	} {
		args := append([]string{"auth", "can-i", "--as=system:serviceaccount:kube-system:consul-sync"},
			strings.Fields(question)...)
		cmd := exec.CommandContext(t.Context(), r.server.Kubectl,
			append([]string{"--kubeconfig", r.kubeconfig}, args...)...)
		out, _ := cmd.Output() // "no" is a failure for kubectl
		if got := strings.TrimSpace(string(out)); got != want {
			t.Errorf("may it %s: %q, want %s", question, got, want)
		}
	}
	if got := r.kubectl("label", "--dry-run=server", "--overwrite",
		"namespace", "shop", "pod-security.kubernetes.io/enforce=restricted"); strings.Contains(got, "Warning") {
		t.Error(got)
	}
	// The pod of the template, in a namespace that enforces the restricted standard.
	r.kubectl("label", "namespace", "shop", "pod-security.kubernetes.io/enforce=restricted")
	var d struct {
		Spec struct{ Template map[string]any }
	}
	if err := json.Unmarshal([]byte(r.kubectl("-n", "kube-system", "get", "deployment", "consul-sync", "-o", "json")),
		&d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	pod["metadata"] = map[string]any{"name": "try", "namespace": "shop"}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	r.kubectl("create", "--dry-run=server", "-f", r.write("pod.json", string(text)))
	r.removed()
}

// removed has the sync removed again, with what it has imported, and nothing else.
func (r *syncRole) removed() {
	r.t.Helper()
	r.book = "remove.yml"
	r.write(r.book, `---
- name: Sync no more
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Remove the sync
      ansible.builtin.include_role:
        name: consul_sync
        tasks_from: remove
      vars:
        consul_sync_cluster: c1
        consul_sync_kubeconfig: `+r.kubeconfig+`
`)
	service := func(name, cluster string) {
		r.kubectl("-n", "shop", "create", "service", "clusterip", name, "--tcp=80")
		r.kubectl("-n", "shop", "label", "--overwrite", "service", name, "app.kubernetes.io/managed-by=consul-sync",
			"consul.kaas/cluster="+cluster)
	}
	service("db", "c1")
	service("of-another", "c2")
	if got := r.run("--check"); got != "2" {
		r.t.Errorf("check mode sees %s changes, want 2", got)
	}
	if got := r.run(); got != "2" {
		r.t.Errorf("the removal changed %s tasks, want 2", got)
	}
	if got := r.run(); got != "0" {
		r.t.Errorf("the second removal changed %s tasks, want none", got)
	}
	const kinds = "deployments,configmaps,secrets,services,serviceaccounts,roles,rolebindings,clusterroles," +
		"clusterrolebindings,poddisruptionbudgets,leases"
	for line := range strings.Lines(r.kubectl("get", kinds, "-A", "-o", "name")) {
		if strings.Contains(line, "consul-sync") || strings.TrimSpace(line) == "service/db" {
			r.t.Errorf("there still is %s", line)
		}
	}
	if got := r.kubectl("-n", "shop", "get", "services", "-o", "name"); strings.TrimSpace(got) != "service/of-another" {
		r.t.Errorf("of the namespace is left %q", got)
	}
}

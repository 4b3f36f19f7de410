package playbooks_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

// settings runs the role control_plane on a directory and returns the flags of the API server in what it wrote for
// kubeadm.
func settings(t *testing.T, p pki.ClusterPKI, dir string) []string {
	t.Helper()
	vars, err := json.Marshal(map[string]any{
		"control_plane_kubernetes_dir": dir, "control_plane_log_dir": dir, "control_plane_live": false,
		"control_plane_kubernetes_version": "v1.37.1",
		"control_plane_node_ip":            "10.0.0.1", "control_plane_bootstrap_token": "abcdef.0123456789abcdef",
		"control_plane_encryption_keys": []map[string]string{{"name": "key1", "secret": p.EncryptionKey.Reveal()}},
		"control_plane_pki": map[string]string{
			"ca_crt": p.CA.Cert, "ca_key": "x", "front_proxy_ca_crt": "x", "front_proxy_ca_key": "x",
			"etcd_ca_crt": "x", "etcd_ca_key": "x", "sa_key": "x", "sa_pub": "x",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	play := filepath.Join(dir, "play.yml")
	text := "- hosts: localhost\n  connection: local\n  gather_facts: false\n  roles:\n    - role: control_plane\n"
	if err := os.WriteFile(play, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vars.json"), vars, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(
		t.Context(), "ansible-playbook", "-i", "localhost,", "-e", "@"+filepath.Join(dir, "vars.json"), play,
	)
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ansible-playbook: %v\n%s", err, out)
	}
	file, err := os.Open(filepath.Join(dir, "kaas", "init.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var flags []string
	for documents := yaml.NewDecoder(file); ; {
		var document struct {
			APIServer struct {
				ExtraArgs []struct{ Name, Value string } `yaml:"extraArgs"`
			} `yaml:"apiServer"`
		}
		if err := documents.Decode(&document); err != nil {
			return flags
		}
		for _, a := range document.APIServer.ExtraArgs {
			flags = append(flags, "--"+a.Name+"="+a.Value)
		}
	}
}

// TestAPIServerSettings starts a real API server with the flags and files that a master gets.
func TestAPIServerSettings(t *testing.T) {
	t.Parallel()
	p, err := pki.NewCluster("hardening")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	flags := settings(t, p, dir)
	// The server of the test has keys of its own, and nothing of what it writes may wait in a buffer.
	flags = slices.DeleteFunc(flags, func(f string) bool {
		return strings.HasPrefix(f, "--encryption-provider-config=")
	})
	s := kubetest.StartWith(t, p, flags...)

	t.Run("what answers without credentials", func(t *testing.T) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(p.CA.Cert))
		client := &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		}
		defer client.CloseIdleConnections()
		for path, want := range map[string][]int{
			"/livez": {200}, "/readyz": {200}, "/healthz": {200},
			"/api/v1/namespaces/kube-public/configmaps/cluster-info": {403}, // until kubeadm allows it, which it does
			"/version": {401}, "/api": {401}, "/openapi/v2": {401}, "/metrics": {401}, "/readyz/etcd": {401},
			"/api/v1/nodes": {401},
			"/api/v1/namespaces/kube-public/configmaps": {401}, "/.well-known/openid-configuration": {401},
		} {
			resp, err := client.Get(s.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if !slices.Contains(want, resp.StatusCode) {
				t.Errorf("%s answers %d, want %v", path, resp.StatusCode, want)
			}
		}
		old := &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}},
		} //nolint:gosec // it is to be refused
		if resp, err := old.Get(s.URL + "/livez"); err == nil {
			_ = resp.Body.Close()
			t.Error("TLS 1.1 was taken")
		}
	})

	kubeconfig := func(user string, groups ...string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(s.Kubeconfig(user, groups...).Reveal()), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	admin := kubeconfig("admin", "system:masters")
	kubectl := func(as, stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), s.Kubectl, append([]string{"--kubeconfig", as}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("external addresses of services", func(t *testing.T) {
		service := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "thief"}, "spec": {"ports": ` +
			`[{"port": 80}], "externalIPs": ["192.0.2.1"]}}`
		if out, err := kubectl(
			admin, service, "create", "-f", "-",
		); err == nil || !strings.Contains(out, "externalIPs") {
			t.Errorf("a service took an address of somebody else: %v %s", err, out)
		}
	})
	t.Run("reads of secrets by nodes are in the audit log", func(t *testing.T) {
		node := kubeconfig("system:node:w1", "system:nodes")
		out, err := kubectl(node, "", "-n", "default", "get", "secret", "wanted")
		if err == nil || !strings.Contains(out, "orbidden") {
			t.Errorf("a node without pods reads a secret: %v %s", err, out)
		}
		_, _ = kubectl(node, "", "get", "node", "w1")
		log, err := os.ReadFile(filepath.Join(dir, "audit", "audit.log"))
		if err != nil {
			t.Fatal(err)
		}
		var read, noise int
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"system:node:w1"`) && strings.Contains(line, "/secrets/wanted") {
				read++
			}
			if strings.Contains(line, `"system:node:w1"`) && strings.Contains(line, "/nodes/w1") {
				noise++
			}
		}
		if read == 0 || noise > 0 {
			t.Errorf(
				"the audit log has %d reads of the secret, want some, and %d of the node's other reads, want none",
				read, noise,
			)
		}
	})
}

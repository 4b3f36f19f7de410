package inventory

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	inventorytemplates "github.com/director-kaas/kaas/inventory-templates"
)

var update = flag.Bool("update", false, "write the golden files")

func small() Input {
	return Input{
		Name: "demo", UID: "c-1", Kubernetes: "v1.37.2", PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/16",
		Registry: "172.30.0.1:5000",
		ImageTags: map[string]string{
			"etcd": "v3.7.3", "coredns": "v1.14.6", "pause": "3.10.2", "toolbox": "v1", "kube-proxy": "v1.37.2",
		},
		Nodes: []Node{
			{Name: "demo-worker-1", Role: director.RoleWorker, Address: "10.88.0.11"},
			{Name: "demo-master-1", Role: director.RoleMaster, Address: "10.88.0.10"},
		},
	}
}

func large() Input {
	in := small()
	in.Name, in.UID = "prod", "c-2"
	in.APIVIP = "10.88.0.5"
	in.APINames = []string{"api.prod.example"}
	in.PodMTU = 1450
	in.RegistryCA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	in.Registries = `[{"host":"docker.io","mode":"mirror","endpoints":["https://mirror.example"],"ca":"a\nb"}]`
	in.Bundle = "/var/lib/director/releases/k8s-1.37.2"
	in.BinariesURL = "https://172.30.0.1:8443/artifacts/sha256-0123/bin"
	in.Binaries = map[string]string{"kubelet": strings.Repeat("0a", 32), "kubeadm": strings.Repeat("1b", 32)}
	in.DNS, in.NTP = []string{"10.0.0.53"}, []string{"10.0.0.123", "yes"}
	in.Aliases = []Alias{{Address: "10.0.0.9", Names: []string{"nfs", "nfs.example"}}}
	in.EtcdHeartbeat, in.EtcdElection = 500*time.Millisecond, 5*time.Second
	in.KeyFile = "ssh_key"
	in.Nodes = []Node{
		{Name: "m2", Role: director.RoleMaster, Address: "10.88.0.12", HostKey: "ssh-ed25519 AAAAC3Nz2 m2"},
		{Name: "m1", Role: director.RoleMaster, Address: "10.88.0.11", HostKey: "ssh-ed25519 AAAAC3Nz1"},
		{Name: "m3", Role: director.RoleMaster, Address: "10.88.0.13", Taints: []string{}},
		{
			Name: "w1", Role: director.RoleWorker, Address: "10.88.0.21", HostKey: "ssh-ed25519 AAAAC3Nz4",
			Labels: map[string]string{"pool": "gpu", "answer": "yes", "n": "010"},
			Taints: []string{"gpu=true:NoSchedule", "slow:NoExecute"},
		},
	}
	in.Networks = []Network{
		{Role: "internal", Name: "prod", CIDR: "10.88.0.0/24", Gateway: "10.88.0.1"},
		{Role: "storage", Name: "nfs", CIDR: "10.89.0.0/24"},
	}
	in.Nodes[3].Interfaces = []Interface{
		{Role: "internal", Device: "eth0", Network: "prod", Address: "10.88.0.21/24", MAC: "52:54:00:00:00:01"},
		{Role: "storage", Device: "eth1", Network: "nfs", Address: "10.89.0.21/24", MAC: "52:54:00:00:00:02"},
	}
	in.Nodes[2].Aliases, in.Nodes[2].NTP = []Alias{{Address: "10.0.0.8", Names: []string{"gpu"}}},
		[]string{"10.89.0.123"}
	in.Nodes[3].Services = []Service{
		{
			ID: "web-w1", Name: "web", Address: "10.88.0.21", Port: 8080, Tags: []string{"blue"},
			Check: ServiceCheck{Scheme: "https", Port: 8081, Path: "/healthz", Interval: 10},
		},
		{
			ID: "db-w1", Name: "db", Address: "10.88.0.9", Port: 5432, Tags: []string{},
			Check: ServiceCheck{Scheme: "tcp", Port: 5432, Interval: 30},
		},
	}
	in.Nodes[3].KubeReserved = map[string]string{"memory": "512Mi", "pid": "1000"}
	in.Vars = map[string]any{
		"calico_ipv4pool_cidr": "10.200.0.0/16", "setup_chrony": false, "vxlan_port": float64(8472),
		"helm_chart_loc_override":        "oci://{{ lookup('pipe', 'id') }}",
		"pod_security_exempt_namespaces": []any{"kube-system", "on"},
	}
	return in
}

func TestRender(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]Input{"small": small(), "large": large()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := Render(in)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, path := range files.Paths() {
				got.WriteString("-- " + path + " --\n" + string(files[path]))
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("%s (-want +got; -update writes it):\n%s", golden, d)
			}
			again, err := Render(in)
			if err != nil || !cmp.Equal(files, again) {
				t.Errorf("a second rendering differs: %v", err)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Input)
		want   []string // paths of the fields
	}{
		"everything unset": {
			func(in *Input) { *in = Input{} },
			[]string{
				"cluster_name", "cluster_uid", "kubernetes_version", "api_endpoint_host", "pod_cidr", "service_cidr",
				"cluster_dns_ip",
				"docker_registry_host", "etcd_image_tag", "coredns_image_tag", "pause_image_tag", "toolbox_image_tag",
				"nodes",
			},
		},
		"two masters and no virtual address": {
			func(in *Input) {
				in.Nodes = append(in.Nodes, Node{
					Name: "demo-master-2", Role: director.RoleMaster, Address: "10.88.0.12",
				})
			},
			[]string{"api_endpoint_host"},
		},
		"unknown and forbidden variables": {
			func(in *Input) {
				in.Vars = map[string]any{
					"sudo_everything": true, "cluster_name": "x", "pki_ca_key": "x", "setup_chrony": "yes",
				}
			},
			[]string{
				"spec.vars.cluster_name", "spec.vars.pki_ca_key", "spec.vars.setup_chrony", "spec.vars.sudo_everything",
			},
		},
		"alias against its variable": {
			func(in *Input) {
				in.Vars = map[string]any{"calico_ipv4pool_cidr": "10.1.0.0/16", "pod_cidr": "10.2.0.0/16"}
			},
			[]string{"spec.vars.calico_ipv4pool_cidr"},
		},
		"wrong types": {
			func(in *Input) {
				in.Vars = map[string]any{
					"vxlan_port": 1.5, "pod_cidr": "10.0.0.0", "chrony_config_server": []any{1},
					"cluster_dns_ip": "dns",
					"host_aliases":   []any{map[string]any{"ip": "10.0.0.1"}},
				}
			},
			[]string{
				"spec.vars.chrony_config_server", "spec.vars.cluster_dns_ip", "spec.vars.host_aliases",
				"spec.vars.pod_cidr", "spec.vars.vxlan_port",
			},
		},
		"checksums": {
			func(in *Input) { in.Binaries = map[string]string{"kubelet": "0A"} },
			[]string{"release_binaries"},
		},
		"nodes": {
			func(in *Input) {
				in.Nodes = append(in.Nodes,
					Node{Name: "Bad\nname", Role: director.RoleWorker, Address: "10.88.0.13"},
					Node{Name: "w", Role: "boss", Address: "nowhere"},
					Node{
						Name: "demo-worker-1", Role: director.RoleWorker, Address: "10.88.0.11", Taints: []string{"x"},
					})
			},
			[]string{
				"nodes.Bad\nname", "nodes.w", "nodes.w", "nodes.demo-worker-1", "nodes.demo-worker-1",
				"nodes.demo-worker-1", "Nodes[2].Name",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := small()
			tt.change(&in)
			files, err := Render(in)
			problem, ok := errors.AsType[*director.Error](err)
			if !ok || problem.Kind != director.KindInvalid || files != nil {
				t.Fatalf("got %v, want an invalid error and no files", err)
			}
			var got []string
			for _, f := range problem.Fields {
				got = append(got, f.Path)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("fields (-want +got):\n%s", d)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	values := map[string]string{}
	for _, v := range Variables() {
		if v.Secret {
			values[v.Name] = "canary-" + v.Name
		}
	}
	raw, err := Secrets(values)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(raw, &back); err != nil || !cmp.Equal(values, back) {
		t.Errorf("the file does not hold what it was given: %v", err)
	}
	delete(values, "pki_ca_key")
	values["bootstrap_tokens"] = "canary"
	_, err = Secrets(values)
	if director.KindOf(err) != director.KindInvalid || strings.Contains(err.Error(), "canary") {
		t.Fatalf("got %v, want an invalid error without values", err)
	}
	if !strings.Contains(err.Error(), "pki_ca_key") || !strings.Contains(err.Error(), "bootstrap_tokens") {
		t.Errorf("%v does not name both", err)
	}
}

// TestSchema holds the schema, the templates and the playbooks together.
func TestSchema(t *testing.T) {
	t.Parallel()
	s, err := readSchema(inventorytemplates.FS())
	if err != nil {
		t.Fatal(err)
	}
	files, err := Render(large())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range s.list {
		if v.Doc == "" || !strings.HasSuffix(v.Doc, ".") {
			t.Errorf("%s has no sentence of documentation", v.Name)
		}
		in := func(path string) bool { return strings.Contains("\n"+string(files[path]), "\n"+v.Name+":") }
		switch {
		case v.Secret && (in("group_vars/all.yml") || in("host_vars/w1.yml")):
			t.Errorf("the secret %s is in a file of the inventory", v.Name)
		case v.PerHost && !in("host_vars/w1.yml"):
			t.Errorf("%s is not in host_vars", v.Name)
		case !v.Secret && !v.PerHost && !in("group_vars/all.yml"):
			t.Errorf("%s is not in group_vars", v.Name)
		}
	}
}

// run has a program of Ansible read the rendered inventory, and returns what it writes.
func run(t *testing.T, in Input, program string, args ...string) []byte {
	t.Helper()
	files, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files["ansible.cfg"] = nil
	for path, data := range files {
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"-i", filepath.Join(dir, "hosts.ini")}, args...)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG="+filepath.Join(dir, "ansible.cfg"), "ANSIBLE_LOCAL_TEMP="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// TestOnlySomeNodesHaveVariables has the real Ansible read an inventory without the variables of two nodes: the
// playbooks ask those for their address alone.
func TestOnlySomeNodesHaveVariables(t *testing.T) {
	t.Parallel()
	in := large()
	in.Only = []string{"w1", "m1"}
	files, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"group_vars/all.yml", "host_vars/m1.yml", "host_vars/w1.yml", "hosts.ini", "known_hosts",
	}
	if d := cmp.Diff(want, files.Paths()); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	all, err := Render(large())
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{"group_vars/all.yml", "host_vars/m1.yml", "host_vars/w1.yml", "known_hosts"} {
		if d := cmp.Diff(string(all[same]), string(files[same])); d != "" {
			t.Errorf("%s differs from that of a whole inventory (-want +got):\n%s", same, d)
		}
	}
	out := run(
		t, in, "ansible", "w1", "-c", "local", "-m", "ansible.builtin.debug", "-a",
		"msg={{ groups['cluster'] | map('extract', hostvars, 'node_ip') | join(' ') }}",
	)
	if addresses := "10.88.0.11 10.88.0.12 10.88.0.13 10.88.0.21"; !strings.Contains(string(out), addresses) {
		t.Errorf("the addresses are not %s:\n%s", addresses, out)
	}
}

// TestAnsibleReadsIt asks the real Ansible what it understands.
func TestAnsibleReadsIt(t *testing.T) {
	t.Parallel()
	out := run(t, large(), "ansible-inventory", "--host", "w1")
	var vars map[string]any
	if err := json.Unmarshal(out, &vars); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"ansible_host": "10.88.0.21", "node_ip": "10.88.0.21", "pod_cidr": "10.200.0.0/16",
		"calico_ipv4pool_cidr": "10.200.0.0/16",
		"setup_chrony":         false, "vxlan_port": float64(8472), "api_endpoint_host": "10.88.0.5",
		"cluster_dns_ip": "10.96.0.10",
		"node_labels":    map[string]any{"pool": "gpu", "answer": "yes", "n": "010"},
		"node_taints": []any{
			map[string]any{"key": "gpu", "value": "true", "effect": "NoSchedule"},
			map[string]any{"key": "slow", "value": "", "effect": "NoExecute"},
		},
		"chrony_config_server":           []any{"10.0.0.123", "yes"},
		"pod_security_exempt_namespaces": []any{"kube-system", "on"},
		"host_aliases": []any{
			map[string]any{"address": "10.0.0.9", "names": []any{"nfs", "nfs.example"}},
		},
		"registry_ca":             large().RegistryCA,
		"helm_chart_loc_override": map[string]any{"__ansible_unsafe": "oci://{{ lookup('pipe', 'id') }}"},
	}
	for name, value := range want {
		if d := cmp.Diff(value, vars[name]); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestAgainstKubeadm compares the director with kubeadm by hand, with the same images, on the same guests and to the
// same readiness. By hand, the pods of Calico have the probes that Calico ships them with. Each makes its cluster of
// nodes that have just booted and were prepared by the director: nodes that have carried a cluster have its files in
// memory. The director goes first and last. The last time compares with the time by hand: the image was on the host
// then, as it was by hand. The log tells all times and their ratios.
func TestAgainstKubeadm(t *testing.T) {
	s := begin(t, newer, suite{})
	var spans []time.Duration
	var config string
	creates := func(t *testing.T) {
		s.createsACluster(t)
		sum, span := s.madeKubernetes(t)
		spans = append(spans, span)
		t.Logf("the director            %6.1f s from first to last, %.1f s as a sum", span.Seconds(), sum.Seconds())
		config = plainKubeadm(t, s.onNode(t, s.masterNames()[0], "cat /etc/kubernetes/kaas/init.yaml"))
	}
	var hand time.Duration
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates a cluster", creates},
		{"prepares fresh nodes", s.preparesFreshNodes},
		{"kubeadm makes a cluster by hand", func(t *testing.T) { hand = s.kubeadmByHand(t, config) }},
		{"deletes it", s.deletesCluster},
		{"creates a cluster again", creates},
	})
	for i, what := range []string{"the image was new to the host", "as by hand"} {
		t.Logf("ratio %.2f (%s)", spans[i].Seconds()/hand.Seconds(), what)
	}
}

// preparesFreshNodes replaces the cluster by nodes without one: the plan stops at a value that the control plane does
// not take.
func (s *suite) preparesFreshNodes(t *testing.T) {
	s.deletesCluster(t)
	s.failingTaskIsExplained(t)
}

// kubeadmByHand measures the commands that a person would type. What they need is written to the nodes first.
func (s *suite) kubeadmByHand(t *testing.T, config string) time.Duration {
	master, worker := s.masterNames()[0], s.workerName()
	s.onNode(t, master, "cat > /root/plain.yaml <<'EOF'\n"+config+"\nEOF")
	manifest := ownProbes(t, s.podNetwork(t))
	s.ansible(
		t, master, "ansible.builtin.copy",
		"mode=0600 dest=/root/pod-network.yaml src="+s.write("pod-network.yaml", manifest, 0o644),
	)
	s.export(t)
	login := s.login(t)
	address := regexp.MustCompile(`(?m)^ *advertiseAddress: "?([0-9.]+)`).FindStringSubmatch(config)[1]
	for _, node := range []string{master, worker} {
		// Nothing of Kubernetes is there, and the kubelet's settings of the director are taken away.
		login(t, node, "test ! -e /etc/kubernetes/kubelet.conf && rm -rf /etc/kubernetes/kaas")
	}

	began := time.Now()
	lap := func(what string, from time.Time) { t.Logf("by hand, %-14s %6.1f s", what, time.Since(from).Seconds()) }
	login(t, master, "kubeadm init --config /root/plain.yaml")
	lap("kubeadm init", began)
	kubectl := "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	login(t, master, kubectl+"apply -f /root/pod-network.yaml")
	// The lab has no DNS server to forward to, and CoreDNS ends without one. The director leaves this part out.
	login(t, master, kubectl+"-n kube-system get configmap coredns -o yaml | sed '/forward \\. /,/}/d' | "+
		kubectl+"replace -f -")
	joining := time.Now()
	login(t, worker, fmt.Sprintf(
		"kubeadm join %s:6443 --node-name %s --token %s --discovery-token-unsafe-skip-ca-verification",
		address, worker, plainToken,
	))
	lap("kubeadm join", joining)
	waiting := time.Now()
	login(t, master, kubectl+"wait --for=condition=Ready node --all --timeout=10m && "+
		kubectl+"-n kube-system rollout status daemonset --timeout=10m && "+
		kubectl+"-n kube-system rollout status deployment --timeout=10m")
	lap("until ready", waiting)
	hand := time.Since(began)
	t.Logf("by hand, in all         %6.1f s", hand.Seconds())
	return hand
}

// madeKubernetes returns how long the newest plan took to make a ready cluster of prepared nodes: the sum of its steps,
// and the time from the first one's start to the last one's end.
func (s *suite) madeKubernetes(t *testing.T) (sum, span time.Duration) {
	t.Helper()
	var first, last time.Time
	steps := regexp.MustCompile(`^(control_plane|pod_network|workers|kube\.ready)/`)
	for _, st := range s.plan(t, s.newestPlan(t)).Steps {
		if !steps.MatchString(st.ID) {
			continue
		}
		sum += st.FinishedAt.Sub(st.StartedAt)
		if first.IsZero() || st.StartedAt.Before(first) {
			first = st.StartedAt
		}
		if st.FinishedAt.After(last) {
			last = st.FinishedAt
		}
	}
	if sum == 0 {
		t.Fatal("the plan has none of the steps that make Kubernetes")
	}
	return sum, last.Sub(first)
}

const plainToken = "abcdef.0123456789abcdef"

// plainKubeadm takes from the director's configuration of kubeadm what says which images, networks and kubelet there
// are. All else is kubeadm's default.
func plainKubeadm(t *testing.T, text string) string {
	t.Helper()
	keep := map[string][]string{
		"InitConfiguration": {"apiVersion", "kind", "localAPIEndpoint", "nodeRegistration"},
		"ClusterConfiguration": {
			"apiVersion", "kind", "clusterName", "kubernetesVersion", "controlPlaneEndpoint", "imageRepository",
			"networking",
			"dns",
		},
		"KubeletConfiguration":   {"apiVersion", "kind", "cgroupDriver", "clusterDNS", "clusterDomain"},
		"KubeProxyConfiguration": {"apiVersion", "kind", "mode", "clusterCIDR"},
	}
	var out []string
	docs := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc map[string]any
		if err := docs.Decode(&doc); err != nil {
			break
		}
		kind, _ := doc["kind"].(string)
		plain := map[string]any{}
		for _, k := range keep[kind] {
			if v, ok := doc[k]; ok {
				plain[k] = v
			}
		}
		switch kind {
		case "InitConfiguration":
			plain["bootstrapTokens"] = []map[string]any{{"token": plainToken}}
		case "ClusterConfiguration":
			etcd, _ := doc["etcd"].(map[string]any)
			local, _ := etcd["local"].(map[string]any)
			if tag, ok := local["imageTag"]; ok {
				plain["etcd"] = map[string]any{"local": map[string]any{"imageTag": tag}}
			}
		}
		b, err := yaml.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	if len(out) != len(keep) {
		t.Fatalf("%d documents in the configuration of kubeadm, want %d:\n%s", len(out), len(keep), text)
	}
	return strings.Join(out, "---\n")
}

// podNetwork returns the manifest of the pod network as the playbooks apply it.
func (s *suite) podNetwork(t *testing.T) string {
	t.Helper()
	dir := s.export(t)
	vars := map[string]any{}
	text, err := os.ReadFile(filepath.Join(dir, "group_vars", "all.yml"))
	if err == nil {
		err = yaml.Unmarshal(text, &vars)
	}
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(fmt.Sprint(vars["calico_manifest"]))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\n"+
		"metadata: {name: kubernetes-services-endpoint, namespace: "+
		"kube-system}\ndata: {KUBERNETES_SERVICE_HOST: %q, KUBERNETES_SERVICE_PORT: %q}\n---\n",
		fmt.Sprint(vars["api_endpoint_host"]), fmt.Sprint(vars["api_endpoint_port"]))
	return endpoint + strings.NewReplacer(
		"@REGISTRY@", fmt.Sprintf("%v/%v", vars["docker_registry_host"], vars["registry_prefix"]),
		"@POD_CIDR@", fmt.Sprint(vars["pod_cidr"]), "@VXLAN_PORT@", fmt.Sprint(vars["vxlan_port"]),
		"@MTU@", fmt.Sprint(vars["pod_network_mtu"]),
	).Replace(string(manifest))
}

// ownProbes gives the pods of the pod network the times of the probes in Calico's own manifest (calico-vxlan.yaml). The
// director's release changes them.
func ownProbes(t *testing.T, manifest string) string {
	t.Helper()
	var out []string
	changed := 0
	docs := yaml.NewDecoder(strings.NewReader(manifest))
	for {
		var doc map[string]any
		if err := docs.Decode(&doc); err != nil {
			break
		}
		if len(doc) == 0 { // comments alone
			continue
		}
		spec, _ := doc["spec"].(map[string]any)
		template, _ := spec["template"].(map[string]any)
		pod, _ := template["spec"].(map[string]any)
		containers, _ := pod["containers"].([]any)
		for _, c := range containers {
			container := c.(map[string]any)
			delete(container, "startupProbe")
			for name, delay := range map[string]int{"livenessProbe": 10, "readinessProbe": 0} {
				probe := container[name].(map[string]any)
				probe["initialDelaySeconds"], probe["periodSeconds"], probe["timeoutSeconds"] = delay, 10, 10
				changed++
			}
		}
		b, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	if changed != 4 {
		t.Fatalf("%d probes in the manifest of the pod network, want 4", changed)
	}
	return strings.Join(out, "---\n")
}

// export returns a directory with the cluster's inventory and the means to log in to its nodes, which the test removes.
func (s *suite) export(t *testing.T) string {
	t.Helper()
	dir := s.path("inventory")
	s.ctl(t, "inventory", "demo", "export", "--dir", dir, "--secrets", "--password-file", s.path("admin.password"))
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// login returns what runs a shell command on a node as root, over plain SSH.
func (s *suite) login(t *testing.T) func(t *testing.T, node, command string) {
	t.Helper()
	dir := s.path("inventory")
	hosts, err := os.ReadFile(filepath.Join(dir, "hosts.ini"))
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) ansible_host=(\S+)`).FindAllStringSubmatch(string(hosts), -1) {
		addresses[m[1]] = m[2]
	}
	return func(t *testing.T, node, command string) {
		t.Helper()
		s.ok(t, 20*time.Minute, "ssh", "-i", filepath.Join(dir, "id_ed25519"), "-o", "IdentitiesOnly=yes",
			"-o", "UserKnownHostsFile="+filepath.Join(dir, "known_hosts"), "-o", "StrictHostKeyChecking=yes",
			"kaas@"+addresses[node], "sudo sh -c '"+strings.ReplaceAll(command, "'", `'\''`)+"'")
	}
}

// Package e2e is the main job on real parts: a cluster on real VMs through libvirt, cloud-init, Ansible over SSH and
// kubeadm, made by a real director process that is killed half way, looked at from outside, and taken away again.
//
// It runs inside a lab (test/lab) as root; test/e2e/e2e.sh sets that up. Without KAAS_E2E_* it is skipped.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEndToEnd is the first day: what is wrong is refused, a cluster is made over a kill of the director, looked at
// from outside, and taken away.
func TestEndToEnd(t *testing.T) {
	s := begin(t, newer, suite{})
	s.runParts(t, []part{
		{"starts and asks for a login", s.startsAndAsksForALogin},
		{"refuses bad input before anything is made", s.refusesBadInput},
		{"imports its release", s.importsItsRelease},
		{"a failing playbook says what to do", s.failingTaskIsExplained},
		{"creates the cluster on the same VMs, over a kill -9", s.createsOverAKill},
		{"the cluster answers from outside", s.answersFromOutside},
		{"people log in to the cluster with their own names", s.peopleLogIn},
		{"nodes pull from an outer registry", s.pullsFromAnOuterRegistry},
		{"etcd is backed up", s.isBackedUp},
		{"certificates are renewed", s.certificatesAreRenewed},
		{"etcd is put back to a backup", s.isRestored},
		{"the console shows it in a browser", s.consoleShowsIt},
		{"the CIS benchmark finds no failure", s.meetsTheBenchmark},
		{"the inventory runs by hand and changes nothing", s.runsByHand},
		{"no secret is in sight", s.noSecretInSight},
		{"a second apply changes nothing", s.secondApplyChangesNothing},
		{"deletes everything", s.deletesEverything},
	})
}

// consoleShowsIt looks at the nodes, rehearses a drain and downloads a kubeconfig, in Debian's Chromium.
func (s *suite) consoleShowsIt(t *testing.T) {
	s.ok(
		t, 15*time.Minute, "env", "CONSOLE_REAL="+s.server, "CONSOLE_REAL_PASSWORD="+s.path("admin.password"),
		"CONSOLE_REAL_CLUSTER=demo", "../../web/console/test.sh", "real",
	)
}

// TestNodesArePrepared is what needs a kernel and a boot loader of its own: the node image boots on VMs and playbooks
// prepare it.
func TestNodesArePrepared(t *testing.T) {
	s := begin(t, newer, suite{})
	s.runParts(t, []part{
		{"starts and asks for a login", s.startsAndAsksForALogin},
		{"VMs are prepared, and a failing playbook says what to do", s.failingTaskIsExplained},
		{"every VM has been prepared", s.everyNodeIsPrepared},
		{"deletes everything", s.deletesEverything},
	})
}

func (s *suite) startsAndAsksForALogin(t *testing.T) {
	s.startDirector(t)
	for header, want := range map[string]int{"": 401, "Authorization: Bearer wrong": 401} {
		out := s.ok(
			t, 10*time.Second, "curl", "-sS", "-o", s.path("body"), "-w", "%{http_code}", "--cacert",
			s.path("state/tls/ca.crt"), "-H", header, s.server+"/api/v1/plans",
		)
		body, err := os.ReadFile(s.path("body"))
		if err != nil || out != strconv.Itoa(want) || !strings.Contains(string(body), `"kind":"unauthenticated"`) {
			t.Errorf("header %q: %s %s %v; want %d and a problem", header, out, body, err, want)
		}
	}
	wrong := s.write("wrong.password", "not the password\n", 0o600)
	s.refused(
		t, []string{"password"}, "login", "--server", s.server, "--ca-file", s.path("state/tls/ca.crt"), "--user",
		"admin", "--password-file", wrong,
	)
	s.ctl(
		t, "login", "--server", s.server, "--ca-file", s.path("state/tls/ca.crt"), "--user", "admin", "--password-file",
		s.path("admin.password"),
	)
	for _, secret := range []string{"state/sealing.key", "state/director.db", "cli.yaml"} {
		info, err := os.Stat(s.path(secret))
		if err != nil || info.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(secret, ".db") {
			t.Errorf("%s: %v, %v; want it for the owner alone", secret, info.Mode(), err)
		}
	}
	if info, err := os.Stat(s.path("state")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state directory is open to others: %v", err)
	}
}

// importsItsRelease lets the documents name an imported bundle: the cluster is made of what the director keeps itself.
func (s *suite) importsItsRelease(t *testing.T) {
	name := "k8s-" + s.minors[0]
	s.ctl(t, "release", "import", s.bundle, name)
	out := s.ctl(t, "release", "verify", name)
	if !strings.Contains(out, "is whole") {
		t.Errorf("verify says %q", out)
	}
	s.write("models/release.yaml", s.ctl(t, "get", "release", name, "-o", "yaml"), 0o644)
}

func (s *suite) refusesBadInput(t *testing.T) {
	s.refused(
		t, []string{"relase", "did you mean release?"}, "apply", "-f",
		s.variant("unknown-field", "  release: k8s", "  relase: k8s"),
	)
	s.refused(
		t, []string{"overlaps the nodes' range"}, "apply", "-f",
		s.variant("overlap", "  workers:", "  pods: {cidr: 10.88.0.0/16}\n  workers:"),
	)
	for name, v := range map[string]struct {
		replace []string
		words   []string
	}{
		"no-image": {[]string{s.image, s.image + ".gone"}, []string{"does not exist on the director"}},
		"wrong-sum": {
			[]string{s.sum, strings.Repeat("0", 64)}, []string{"spec.sha256", "the file has another checksum"},
		},
		"no-bundle": {[]string{s.bundle, "/nowhere"}, []string{"/nowhere"}},
		"no-libvirt": {
			[]string{"qemu:///system", "qemu+unix:///system?socket=/nowhere/sock"}, []string{"/nowhere/sock"},
		},
		"no-pool":   {[]string{"pool: default", "pool: missing"}, []string{"missing"}},
		"too-large": {[]string{"memory: 4GiB", "memory: 512GiB"}, []string{"memory are needed"}},
		"over-quota": {
			[]string{"    diskCache: unsafe", "    diskCache: unsafe\n  quota: {machines: 1}"},
			[]string{"quota.machines"},
		},
		"unknown-var": {
			[]string{"  workers:\n", "  vars: {no_such_thing: 1}\n  workers:\n"},
			[]string{"spec.vars.no_such_thing", "no playbook knows this variable"},
		},
		"wrong-world": {
			[]string{"kubernetes: \"v" + s.minors[0], "kubernetes: \"v1.30"}, []string{"is for Kubernetes"},
		},
	} {
		file := s.variant(name, v.replace...)
		out, code := s.run(t, 5*time.Minute, s.root+"/bin/directorctl", "apply", "-f", file, "--start", "--yes")
		if code == 0 {
			t.Errorf("%s was accepted:\n%s", name, out)
		}
		for _, w := range v.words {
			if !strings.Contains(out, w) {
				t.Errorf("%s: the error does not say %q:\n%s", name, w, out)
			}
		}
		if _, code := s.run(t, time.Minute, s.root+"/bin/directorctl", "get", "cluster", "demo"); code == 0 {
			s.ctl(t, "delete", "cluster", "demo", "--yes", "--wait")
		}
	}
	if out := s.virsh(t, "list", "--all", "--name"); out != "" {
		t.Errorf("refused plans left VMs behind:\n%s", out)
	}
}

// createsOverAKill starts the creation, kills the director while Ansible works on the control plane, and lets it go on.
func (s *suite) createsOverAKill(t *testing.T) {
	began := time.Now()
	s.ctl(t, "apply", "-f", s.path("models"), "--start", "--yes")
	id := s.newestPlan(t)
	status := func(v planView, step string) string {
		for _, st := range v.Steps {
			if strings.HasPrefix(st.ID, step) {
				return st.Status
			}
		}
		return ""
	}
	s.await(t, 10*time.Minute, "the control plane's playbook runs", func() bool {
		v := s.plan(t, id)
		if v.Status == "failed" || v.Status == "parked" {
			t.Fatalf("the plan is %s: %+v", v.Status, v.Steps)
		}
		return status(v, "control_plane/") == "running" && len(processes("ansible-playbook")) > 0
	})
	before := s.plan(t, id)
	survivors := processes("ansible-playbook")
	s.killDirector()
	killed := time.Now()
	s.startDirector(t)
	now := processes("ansible-playbook")
	for _, pid := range survivors {
		if slices.Contains(now, pid) {
			t.Errorf("process %s of the killed director's run is still there", pid)
		}
	}
	s.await(t, 30*time.Second, "the plan continues after the kill", func() bool {
		return status(s.plan(t, id), "control_plane/") == "running"
	})
	t.Logf("going on %.1f s after kill -9", time.Since(killed).Seconds())

	out, code := s.run(t, 40*time.Minute, s.root+"/bin/directorctl", "follow", id)
	t.Logf("%s", out)
	if code != 0 {
		t.Fatalf("the plan did not end well: exit code %d", code)
	}
	after := s.plan(t, id)
	for i, st := range before.Steps {
		if now := after.Steps[i]; st.Status == "done" &&
			(now.Attempt != st.Attempt || !now.FinishedAt.Equal(st.FinishedAt)) {
			t.Errorf("%s was done before the kill and ran again: %+v then %+v", st.ID, st, now)
		}
	}
	s.logSteps(t, after)
	t.Logf("created in %.0f s, the kill included", time.Since(began).Seconds())
	if n := len(strings.Fields(s.virsh(t, "list", "--all", "--name"))); n != 2 {
		t.Errorf("%d VMs, want 2", n)
	}
	s.ctl(t, "kubeconfig", "demo", "--admin", "-o", s.path("kubeconfig"), "--ttl", "4h")
}

func (s *suite) answersFromOutside(t *testing.T) {
	nodes := s.kubectl(t, "get", "nodes", "--no-headers")
	if n := strings.Count(nodes, " Ready "); n != 2 {
		t.Errorf("%d nodes are Ready, want 2:\n%s", n, nodes)
	}
	t.Logf("\n%s", s.kubectl(t, "get", "nodes,pods", "-A", "-o", "wide"))
	if raw := s.kubectl(t, "get", "--raw", "/readyz"); raw != "ok" {
		t.Errorf("the API says %q", raw)
	}
	groups := s.kubectl(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")
	if !strings.Contains(groups, "kaas:kubeconfigs:") || strings.Contains(groups, "system:masters") {
		t.Errorf("the kubeconfig is of the groups %s: its rights cannot be taken away", groups)
	}
	catalog := s.ok(t, time.Minute, "curl", "-sS", "--cacert", s.path(
		"state/tls/ca.crt",
	), "-o", "/dev/null", "-w", "%{http_code}",
		"-H", "Accept: application/vnd.oci.image.manifest.v1+json", "https://172.30.0.1:5000/v2/kaas/toolbox/tags/list")
	// the nodes have pulled from it with the credentials of their cluster
	if catalog != strconv.Itoa(http.StatusUnauthorized) {
		t.Errorf("the registry answers %s to whoever shows nothing", catalog)
	}
	if pushed := s.ok(t, time.Minute, "curl", "-sS", "--cacert", s.path(
		"state/tls/ca.crt",
	), "-o", "/dev/null", "-w", "%{http_code}",
		"-X", "POST",
		"https://172.30.0.1:5000/v2/kaas/evil/blobs/uploads/"); pushed != strconv.Itoa(http.StatusUnauthorized) {
		t.Errorf("an upload without credentials gets %s", pushed)
	}
	// Secrets are encrypted at rest: etcd must not hold the plain text.
	s.kubectl(t, "-n", "default", "create", "secret", "generic", "canary", "--from-literal=word=canary-in-etcd")
	master := strings.TrimSpace(
		s.kubectl(
			t, "-n", "kube-system", "get", "pod", "-l", "component=etcd", "-o", "jsonpath={.items[0].metadata.name}",
		),
	)
	stored := s.kubectl(t, "-n", "kube-system", "exec", master, "--", "etcdctl", "--command-timeout=60s",
		"--dial-timeout=60s", "--endpoints=https://127.0.0.1:2379", "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
		"--cert=/etc/kubernetes/pki/etcd/server.crt", "--key=/etc/kubernetes/pki/etcd/server.key", "get",
		"/registry/secrets/default/canary")
	if !strings.Contains(stored, "k8s:enc:") || strings.Contains(stored, "canary-in-etcd") {
		t.Errorf("the secret lies in etcd in the clear: %.200q", stored)
	}
	s.kubectl(t, "-n", "default", "delete", "secret", "canary")
	rss, err := rssOf(s.director.Process.Pid)
	t.Logf("the director uses %d MB of memory after a creation (%v)", rss>>20, err)
}

func rssOf(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return 0, errors.New("no VmRSS")
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10, err
}

var recap = regexp.MustCompile(`(?m)^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)`)

// runsByHand exports the inventory and runs install.yml with plain ansible-playbook, in check mode and for real:
// nothing may change.
func (s *suite) runsByHand(t *testing.T) {
	s.exports(t)
	for _, mode := range [][]string{{"--check", "--diff"}, {}} {
		if s.playsByHand(t, "install.yml", mode...) {
			t.Errorf("install.yml %v changed something", mode)
		}
	}
}

func (s *suite) exports(t *testing.T) {
	t.Helper()
	s.ctl(t, "inventory", "demo", "export", "--dir", s.path("inventory"), "--secrets", "--password-file",
		s.path("admin.password"))
}

// playsByHand runs a playbook on both nodes of the exported inventory, with plain ansible-playbook. It reports whether
// something has changed, or would.
func (s *suite) playsByHand(t *testing.T, book string, options ...string) (changed bool) {
	t.Helper()
	dir := s.path("inventory")
	args := append([]string{
		"-i", filepath.Join(dir, "hosts.ini"), "-e", "@" + filepath.Join(dir, "secrets.json"), "--private-key",
		filepath.Join(dir, "id_ed25519"),
		"playbooks/" + book,
	}, options...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ansible-playbook", args...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG="+s.root+"/playbooks/ansible.cfg")
	out, err := cmd.CombinedOutput()
	hosts := recap.FindAllStringSubmatch(string(out), -1)
	if err != nil || len(hosts) != 2 {
		t.Fatalf("ansible-playbook %v: %v\n%s", args, err, tail(out, 6000))
	}
	for _, h := range hosts {
		if h[4] != "0" || h[5] != "0" {
			t.Errorf("%v: %s\n%s", options, h[0], tail(out, 6000))
		}
		changed = changed || h[3] != "0"
	}
	t.Logf("%s %v: %v", book, options, hosts)
	return changed
}

// noSecretInSight looks for the cluster's private keys wherever they must not be.
func (s *suite) noSecretInSight(t *testing.T) {
	text, err := os.ReadFile(s.path("inventory", "secrets.json"))
	if err != nil {
		t.Fatal(err)
	}
	var secrets map[string]string
	if err := json.Unmarshal(text, &secrets); err != nil {
		t.Fatal(err)
	}
	var keys []struct{ Secret string }
	if err := json.Unmarshal([]byte(secrets["encryption_keys"]), &keys); err != nil || len(keys) == 0 {
		t.Fatalf("no keys for Secrets: %v", err)
	}
	canaries := map[string]string{
		"password": password, "token": secrets["bootstrap_token"], "encryption": keys[0].Secret,
		"outer registry": outerPassword,
	}
	for _, name := range []string{"pki_ca_key", "pki_sa_key", "pki_etcd_ca_key"} {
		canaries[name] = strings.Split(secrets[name], "\n")[2] // a line from within the key
	}
	var looked int
	err = filepath.WalkDir(s.dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && slices.Contains([]string{"inventory", "registry", "artifacts"}, d.Name()) {
				return filepath.SkipDir
			}
			return err
		}
		switch filepath.Base(p) {
		case "admin.password", "sealing.key", "kubeconfig":
			return nil
		}
		if d.Type()&os.ModeSocket != 0 { // the way in for administrators, which holds nothing
			return nil
		}
		body, err := os.ReadFile(p)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		looked++
		for name, c := range canaries {
			if len(c) < 8 {
				t.Errorf("canary %s is only %d characters long", name, len(c))
			} else if bytes.Contains(body, []byte(c)) {
				t.Errorf("%s is in %s", name, p)
			}
		}
		return err
	})
	if err != nil || looked < 10 {
		t.Errorf("looked at %d files, %v", looked, err)
	}
	if err := os.RemoveAll(s.path("inventory")); err != nil {
		t.Error(err)
	}
}

func (s *suite) secondApplyChangesNothing(t *testing.T) {
	before := s.newestPlan(t)
	out := s.ctl(t, "apply", "-f", s.path("models"), "--start", "--yes", "--wait")
	if regexp.MustCompile(`(?m) (created|changed)$`).MatchString(out) {
		t.Errorf("a second apply changed something:\n%s", out)
	}
	if after := s.newestPlan(t); after != before {
		t.Errorf("a second apply made plan %s", after)
	}
}

// failingTaskIsExplained starts a creation whose model has a value that only the playbook can judge: the plan must fail
// soon and name the host, the task, what is wrong and what to do. The VMs stay, for the plan of the mended model.
func (s *suite) failingTaskIsExplained(t *testing.T) {
	bad := s.variant("bad-var", "  workers:\n", "  vars: {pod_security_enforce: nonsense}\n  workers:\n")
	s.refused(
		t, []string{"demo-master-1", "pod_security_enforce", "privileged, baseline, restricted"}, "apply", "-f", bad,
		"--start", "--yes", "--wait",
	)
	id := s.newestPlan(t)
	if v := s.plan(t, id); v.Status != "failed" {
		t.Errorf("the plan is %s, want failed", v.Status)
	}
	if out := s.ctl(t, "logs", id, "--failed"); !strings.Contains(out, "pod_security_enforce") {
		t.Errorf("logs --failed does not tell:\n%s", out)
	}
}

// everyNodeIsPrepared wants the playbooks to have come to their end on each VM, and the VM to have what needs a kernel
// of its own.
func (s *suite) everyNodeIsPrepared(t *testing.T) {
	v := s.plan(t, s.newestPlan(t))
	s.logSteps(t, v)
	for _, node := range s.nodeNames() {
		if !slices.ContainsFunc(v.Steps, func(st stepView) bool {
			return st.ID == "prepare/"+node && st.Status == "done"
		}) {
			t.Errorf("%s was not prepared", node)
		}
		out := s.onNode(
			t, node,
			"systemctl is-active containerd; lsmod | grep -c ^br_netfilter; sysctl -n net.ipv4.ip_forward; "+
				"systemd-detect-virt --container || :",
		)
		if want := "active\n1\n1\nnone"; out != want {
			t.Errorf("%s says %q, want %q", node, out, want)
		}
	}
}

// destroyKeptDisks destroys the data disks that nodes left behind before the cluster went, each by its name.
func (s *suite) destroyKeptDisks(t *testing.T) {
	var kept struct {
		Items []struct{ Provider, ID string }
	}
	if err := json.Unmarshal([]byte(s.ctl(t, "disks", "list", "-o", "json")), &kept); err != nil {
		t.Fatal(err)
	}
	for _, d := range kept.Items {
		s.ctl(t, "disks", "delete", d.Provider, d.ID, "--yes")
	}
}

func (s *suite) deletesEverything(t *testing.T) {
	s.deletesCluster(t)
	s.leavesNothing(t)
}

func (s *suite) deletesCluster(t *testing.T) {
	s.ctl(t, "delete", "cluster", "demo", "--delete-data", "--yes", "--wait")
	s.destroyKeptDisks(t)
}

// leavesNothing deletes the other documents, looks that nothing of the cluster is left, and stops the director.
func (s *suite) leavesNothing(t *testing.T) {
	for _, args := range [][]string{{"list", "--all", "--name"}, {"net-list", "--all", "--name"}} {
		if out := s.virsh(t, args...); out != "" {
			t.Errorf("virsh %v is not empty:\n%s", args, out)
		}
	}
	s.ctl(t, "delete", "network", "demo", "--yes")
	if s.equipped {
		s.ctl(t, "delete", "network", "storage", "--yes")
	}
	if s.drilled {
		s.ctl(t, "delete", "network", "drills", "--yes")
	}
	for _, minor := range s.minors {
		s.ctl(t, "delete", "image", "debian12-k8s-"+minor, "--yes")
		s.ctl(t, "delete", "release", "k8s-"+minor, "--yes")
	}
	s.ctl(t, "delete", "provider", "lab", "--yes")
	if out := volumes(s.virsh(t, "vol-list", "default")); len(out) != 0 {
		t.Errorf("volumes are left: %v", out)
	}
	for _, p := range []string{"ansible-playbook", "ssh", "qemu-system-x86_64"} {
		if left := processes(p); len(left) != 0 {
			t.Errorf("%s still runs: %v", p, left)
		}
	}
	if left, err := filepath.Glob(s.path("state/ansible/*")); err != nil || len(left) != 0 {
		t.Errorf("run directories are left: %v %v", left, err)
	}
	if err := s.director.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.director.Wait(); err != nil {
		t.Errorf("the director did not stop cleanly: %v", err)
	}
	_ = s.log.Close()
	s.director = nil
}

func volumes(list string) []string {
	var out []string
	for _, line := range strings.Split(list, "\n") {
		if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[1], "/") {
			out = append(out, f[0])
		}
	}
	return out
}

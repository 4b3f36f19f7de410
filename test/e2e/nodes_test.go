package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNodes is a cluster of the older minor on real VMs and what happens to its nodes: a worker is drained, taken out
// and brought back, an outer plan locks one and recreates its VM, there is one more, somebody destroys a VM, there is
// one less, and all of them are upgraded to the next minor under a running service, with a worker that fails and over a
// kill -9 of the director (B3-B7, B12, D5).
func TestNodes(t *testing.T) {
	s := begin(t, older, suite{equipped: true})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates a cluster of the older minor", s.createsACluster},
		{"its worker has what its document gives to it", func(t *testing.T) { s.wantEquipped(t, "demo-worker-1") }},
		{"certificates are rotated by hand", s.rotatesByHand},
		{"the CIS benchmark finds no failure in the older minor", s.meetsTheBenchmark},
		{"a drain that a budget blocks gives the node back", s.blockedDrain},
		{"takes a worker out and brings it back", s.outAndBackIn},
		{"an outer plan takes a worker out, and its VM is recreated", s.outerPlan},
		{"one worker more", s.oneWorkerMore},
		{"repairs a worker whose VM was destroyed", s.mendsADestroyedVM},
		{"a worker less, by name", s.lastWorkerLess},
		{"a worker that cannot be upgraded is rolled back, under a running service", s.failsAndIsRolledBack},
		{"upgrades to the next minor under a running service, over a kill -9", s.upgrades},
		{"the CIS benchmark finds no failure after the upgrade", s.meetsTheBenchmark},
		{"deletes everything", s.deletesEverything},
	})
}

func (s *suite) createsACluster(t *testing.T) {
	s.timed(t, "apply", "-f", s.path("models"), "--start", "--yes", "--wait")
	s.ctl(t, "kubeconfig", "demo", "--admin", "-o", s.path("kubeconfig"), "--ttl", "4h")
	s.wantNodes(t, s.nodeNames()...)
}

// wantEquipped wants a worker to have what equipment says (A3, A4, A6): its second address and the way to it, its
// names, its script's work, and what it keeps on its data disk. The disk is the first one's whatever has become of its
// VM, so it holds a mark that is left here.
func (s *suite) wantEquipped(t *testing.T, worker string) {
	t.Helper()
	for _, q := range []struct{ command, want string }{
		{"ip -4 -o address show eth1", " 10.89.0.15/24 "},
		{"getent hosts nfs.storage", "10.89.0.1 "},
		{"sysctl -n vm.max_map_count", "262143"},
		{"cat /var/lib/kaas/first-boot/*tune*.status", "0"},
		{"cat /var/lib/kaas/first-boot/*tune*.log", "vm.max_map_count = 262143"},
		{"/var/lib/kaas/health && echo well", "well"},
		{
			"grep -c . /var/lib/kept/tuned && readlink -f /var/lib/kept && findmnt -no SOURCE --target /var/lib/kept",
			"/dev/vdb",
		},
	} {
		if got := s.onNode(t, worker, q.command); !strings.Contains(got+" ", q.want) {
			t.Errorf("%s on %s says %q, want %q in it", q.command, worker, got, q.want)
		}
	}
	// 256 MiB are the cluster's for the kubelet, 192 the pool's for the system, and the kubelet evicts pods from the
	// last 100.
	if kept := s.memory(t, worker, "capacity") - s.memory(t, worker, "allocatable"); kept != (256+192+100)<<10 {
		t.Errorf("%s keeps %d KiB of memory from pods", worker, kept)
	}
	const mark = "/var/lib/kept/mark"
	if want, err := os.ReadFile(s.path("mark")); err == nil {
		if got := s.onNode(t, worker, "cat "+mark); got != string(want) {
			t.Errorf("%s on %s holds %q, want %q from before", mark, worker, got, want)
		}
	} else {
		s.onNode(t, worker, "echo marked > "+mark+" && sync && echo done")
		s.write("mark", "marked", 0o644)
	}
	s.ok(t, time.Minute, "ping", "-c", "1", "-W", "20", "10.89.0.15")
}

// memory is the node's status.capacity or status.allocatable of memory, in KiB.
func (s *suite) memory(t *testing.T, node, of string) int {
	t.Helper()
	text := s.kubectl(t, "get", "node", node, "-o", "jsonpath={.status."+of+".memory}")
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), "Ki"))
	if err != nil {
		t.Fatalf("%s has the %s %q: %v", node, of, text, err)
	}
	return n
}

// timed runs the CLI and logs how long it took, with the times of the plan's steps.
func (s *suite) timed(t *testing.T, args ...string) string {
	t.Helper()
	began := time.Now()
	out := s.ctl(t, args...)
	t.Logf("%s: %.0f s", strings.Join(args, " "), time.Since(began).Seconds())
	s.logSteps(t, s.plan(t, s.newestPlan(t)))
	return out
}

// wantNodes wants exactly these nodes in the cluster, all ready, and the director to see them so.
func (s *suite) wantNodes(t *testing.T, names ...string) {
	t.Helper()
	got := strings.Fields(s.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the nodes are %v, want %v", got, names)
	}
	if well := s.well(t); well != len(names) {
		t.Errorf("%d of %d nodes are well:\n%s", well, len(names), s.ctl(t, "node", "list", "demo"))
	}
}

// soonEnds is what the director says of a certificate that is good for minutes.
var soonEnds = regexp.MustCompile(`its \S+ certificate ends on \S+, in less than a day(; )?`)

// well returns how many nodes have nothing wrong with them in the director's eyes. Where certificates are good for
// minutes, that they end soon is no problem.
func (s *suite) well(t *testing.T) int {
	t.Helper()
	var seen struct {
		Items []struct {
			Role, Power, Problem  string
			Ready, Cordoned, Etcd bool
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(s.ctl(t, "node", "list", "demo", "-o", "json")), &seen); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range seen.Items {
		if s.certs > 0 || s.brief {
			v.Problem = soonEnds.ReplaceAllString(v.Problem, "")
		}
		if v.Ready && !v.Cordoned && v.Power == "on" && v.Problem == "" && (v.Etcd || v.Role != "master") {
			n++
		}
	}
	return n
}

// service is a replicated service that answers with the name of its pod, on the nodes named by the selector, behind a
// budget. A pod that is to end continues answering until every kube-proxy knows, which takes emulated nodes some
// seconds.
func service(image, name string, replicas int, budget bool, where string) string {
	text := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      %[4]s
      terminationGracePeriodSeconds: 45
      containers:
        - name: web
          image: %[3]s
          command: [toolbox, serve, ":8080"]
          lifecycle: {preStop: {sleep: {seconds: 30}}}
          readinessProbe: {tcpSocket: {port: 8080}}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec: {type: NodePort, selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`, name, replicas, image, where)
	if budget {
		text += fmt.Sprintf(`---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %[1]s, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: %[1]s}}}
`, name)
	}
	return text
}

func (s *suite) toolbox(t *testing.T) string {
	t.Helper()
	image := s.kubectl(
		t, "-n", "kube-system", "get", "ds", "kube-proxy", "-o", "jsonpath={.spec.template.spec.containers[0].image}",
	)
	prefix, _, ok := strings.Cut(strings.TrimSpace(image), "/kube-proxy:")
	if !ok {
		t.Fatalf("kube-proxy's image is %q", image)
	}
	tags, err := os.ReadDir(s.path("state/registry/docker/registry/v2/repositories/kaas/toolbox/_manifests/tags"))
	if err != nil || len(tags) == 0 {
		t.Fatalf("toolbox has the tags %v (%v)", tags, err)
	}
	return prefix + "/toolbox:" + tags[0].Name()
}

func (s *suite) blockedDrain(t *testing.T) {
	file := s.write(
		"held.yaml", service(s.toolbox(t), "held", 1, true, "nodeSelector: {kubernetes.io/hostname: demo-worker-1}"),
		0o644,
	)
	s.kubectl(t, "apply", "-f", file)
	s.kubectl(t, "rollout", "status", "deployment/held", "--timeout=10m")
	s.await(t, time.Minute, "the budget sees its pod", func() bool {
		return strings.TrimSpace(s.kubectl(t, "get", "pdb", "held", "-o", "jsonpath={.status.currentHealthy}")) == "1"
	})
	if out := s.ctl(
		t, "node", "drain", "demo", "demo-worker-1", "--dry-run",
	); !strings.Contains(out, "disruption budget held allows no disruption") {
		t.Errorf("the dry run does not name the budget:\n%s", out)
	}
	began := time.Now()
	s.refused(
		t, []string{"default/held", "budget"}, "node", "drain", "demo", "demo-worker-1", "--drain-timeout", "10m",
		"--yes", "--wait",
	)
	t.Logf("a blocked drain was told of after %.0f s", time.Since(began).Seconds())
	id := s.newestPlan(t)
	if v := s.plan(t, id); v.Status != "parked" {
		t.Errorf("the plan is %s, want parked: a person has to decide", v.Status)
	}
	s.wantNodes(t, "demo-master-1", "demo-worker-1") // schedulable again

	// Somebody loosens the budget, and the parked plan continues.
	s.kubectl(t, "delete", "pdb", "held")
	s.ctl(t, "retry", id, "--wait")
	if v := s.plan(t, id); v.Status != "done" {
		t.Errorf("the plan is %s, want done", v.Status)
	}
	if out := s.kubectl(t, "get", "node", "demo-worker-1", "-o", "jsonpath={.spec.unschedulable}"); out != "true" {
		t.Errorf("the drained node is schedulable")
	}
	s.timed(t, "node", "uncordon", "demo", "demo-worker-1", "--yes", "--wait")
	s.kubectl(t, "rollout", "status", "deployment/held", "--timeout=10m")
	s.kubectl(t, "delete", "-f", file, "--ignore-not-found")
}

func (s *suite) outAndBackIn(t *testing.T) {
	s.timed(t, "node", "delete", "demo", "demo-worker-1", "--keep-vm", "--yes", "--wait")
	if out := s.kubectl(t, "get", "nodes", "-o", "name"); strings.Contains(out, "worker") {
		t.Errorf("the worker is still a node:\n%s", out)
	}
	if out := s.ctl(t, "node", "list", "demo"); !strings.Contains(out, "it was taken out of the cluster") {
		t.Errorf("the list does not tell:\n%s", out)
	}
	if n := len(strings.Fields(s.virsh(t, "list", "--name"))); n != 2 {
		t.Errorf("%d VMs run, want 2: the VM was to stay", n)
	}
	s.timed(t, "node", "rejoin", "demo", "demo-worker-1", "--yes", "--wait")
	s.wantNodes(t, "demo-master-1", "demo-worker-1")
}

// outerPlan locks a worker as the program does that upgrades hypervisor hosts, which then destroys its VM.
func (s *suite) outerPlan(t *testing.T) {
	lock := []string{"phase", "pre-node-lock", "--node", "demo-worker-1", "--task-id", "up-1", "--wait"}
	s.timed(t, lock...)
	plan := s.newestPlan(t)
	s.ctl(t, lock...)
	if again := s.newestPlan(t); again != plan {
		t.Errorf("the same task id made another plan: %s after %s", again, plan)
	}
	s.refused(t, []string{"up-1"}, "phase", "pre-node-lock", "--node", "demo-master-1", "--task-id", "up-1", "--wait")
	if out := s.kubectl(t, "get", "nodes", "-o", "name"); strings.Contains(out, "worker") {
		t.Errorf("the worker is still a node:\n%s", out)
	}
	s.destroy(t, "demo-worker-1")
	s.timed(t, "phase", "post-node-unlock", "--node", "demo-worker-1", "--task-id", "up-2", "--wait")
	s.timed(t, "phase", "post-cluster", "--cluster", "demo", "--task-id", "up-3", "--wait")
	s.wantNodes(t, s.nodeNames()...)
	s.wantEquipped(t, "demo-worker-1")
}

// destroy takes a VM away behind the director's back.
func (s *suite) destroy(t *testing.T, name string) {
	t.Helper()
	s.vm(t, "destroy", name)
	s.vm(t, "undefine", name, "--nvram")
}

func (s *suite) mendsADestroyedVM(t *testing.T) {
	s.destroy(t, "demo-worker-1")
	if out := s.ctl(t, "node", "list", "demo"); !strings.Contains(out, "its VM is gone") {
		t.Errorf("the list does not tell:\n%s", out)
	}
	s.await(t, 10*time.Minute, "the cluster notices", func() bool {
		return !strings.Contains(s.kubectl(t, "get", "node", "demo-worker-1", "--no-headers"), " Ready")
	})
	s.timed(t, "node", "repair", "demo", "--yes", "--wait")
	s.wantNodes(t, "demo-master-1", "demo-worker-1", "demo-worker-2")
}

func (s *suite) oneWorkerMore(t *testing.T) {
	s.timed(t, "scale", "demo", "--pool", "worker=2", "--yes", "--wait")
	s.wantNodes(t, "demo-master-1", "demo-worker-1", "demo-worker-2")
}

func (s *suite) lastWorkerLess(t *testing.T) {
	s.timed(t, "scale", "demo", "--pool", "worker=1", "--remove", "demo-worker-2", "--yes", "--wait")
	s.wantNodes(t, "demo-master-1", "demo-worker-1")
	if out := s.virsh(t, "list", "--all", "--name"); strings.Contains(out, "demo-worker-2") {
		t.Errorf("its VM is still there:\n%s", out)
	}
}

// failsAndIsRolledBack begins the upgrade with a worker whose kubeadm cannot be replaced, and wants the plan to leave
// the worker as it was before.
func (s *suite) failsAndIsRolledBack(t *testing.T) {
	const worker = "demo-worker-1"
	s.underService(t, func() {
		s.use(t, newer)
		s.onNode(t, worker, "chattr +i /usr/local/bin/kubeadm && echo done")
		began := time.Now()
		out, code := s.run(
			t, 90*time.Minute, s.root+"/bin/directorctl", "apply", "-f", s.path("models"), "--start", "--yes",
			"--wait",
		)
		t.Logf("the plan of the worker that fails: %.0f s, exit code %d\n%s", time.Since(began).Seconds(), code, out)
		v := s.plan(t, s.newestPlan(t))
		s.logSteps(t, v)
		if code == 0 || v.Status != "failed" {
			t.Fatalf("the plan is %s, want failed", v.Status)
		}
		for _, word := range []string{"/usr/local/bin/kubeadm cannot be written", worker + ": rolled back"} {
			if !strings.Contains(out, word) {
				t.Errorf("the end does not say %q", word)
			}
		}
	})
	if got, want := s.kubelet(t, worker), "v"+s.minors[0]+"."; !strings.HasPrefix(got, want) {
		t.Errorf("the kubelet that was rolled back is %s, want %s", got, want)
	}
	if got, want := s.kubelet(t, "demo-master-1"), "v"+s.minors[1]+"."; !strings.HasPrefix(got, want) {
		t.Errorf("the master's kubelet is %s, want %s", got, want)
	}
	s.kubectl(t, "wait", "--for=condition=Ready", "node/"+worker, "--timeout=1s")
	if out := s.kubectl(t, "get", "node", worker, "-o", "jsonpath={.spec.unschedulable}"); out != "" {
		t.Errorf("%s does not take pods: unschedulable is %s", worker, out)
	}
	s.wantEquipped(t, worker)
}

func (s *suite) kubelet(t *testing.T, node string) string {
	t.Helper()
	return s.kubectl(t, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
}

// upgrades brings the cluster to the next minor while clients ask a service behind a budget, and kills the director
// while the first worker is upgraded.
func (s *suite) upgrades(t *testing.T) {
	nodes := len(strings.Fields(s.kubectl(t, "get", "nodes", "-o", "name")))
	s.use(t, newer)
	minor := "v" + s.minors[1] + "."
	skipped := s.variant("skip", "kubernetes: \""+minor, "kubernetes: \"v1.39.")
	if out, code := s.run(
		t, time.Minute, s.root+"/bin/directorctl", "apply", "-f", skipped, "--start", "--yes",
	); code == 0 {
		t.Errorf("an upgrade over two minors was accepted:\n%s", out)
	}
	s.ctl(t, "apply", "-f", s.path("models")) // the documents were taken, and the plan was not
	s.underService(t, func() {
		s.ctl(t, "apply", "-f", s.path("models"), "--start", "--yes")
		id := s.newestPlan(t)
		// by the strategies in place, reconstitute and replace
		worker := regexp.MustCompile(`^(upgrade|delete|vm[.]ensure)/demo-worker-`)
		s.await(t, 90*time.Minute, "the first worker is upgraded", func() bool {
			v := s.plan(t, id)
			if v.Status != "running" {
				t.Fatalf("the plan is %s: %+v", v.Status, v.Steps)
			}
			for _, st := range v.Steps {
				if worker.MatchString(st.ID) && st.Status == "running" {
					return true
				}
			}
			return false
		})
		s.killDirector()
		s.startDirector(t)
		out, code := s.run(t, 60*time.Minute, s.root+"/bin/directorctl", "follow", id)
		if code != 0 {
			t.Fatalf("the upgrade did not end well: exit code %d\n%s", code, out)
		}
		s.logSteps(t, s.plan(t, id))
	})
	versions := s.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if strings.Count(versions, minor) != nodes {
		t.Errorf("the %d kubelets run %s", nodes, versions)
	}
	if v := s.kubectl(
		t, "version", "-o", "json",
	); !strings.Contains(v[strings.Index(v, "serverVersion"):], `"gitVersion": "`+minor) {
		t.Errorf("the API server: %s", v)
	}
	if out := s.ctl(
		t, "apply", "-f", s.path("models"), "--start", "--yes",
	); !strings.Contains(out, "the document of cluster demo") && !strings.Contains(out, "nothing to do") {
		t.Logf("%s", out)
	}
}

// underService does the work while clients ask a service of two pods behind a budget, and wants every request to be
// answered.
func (s *suite) underService(t *testing.T, work func()) {
	t.Helper()
	where := "topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: " +
		"ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]"
	if s.workers == 1 { // the budget would keep the only worker from being drained
		where += "\n      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: " +
			"NoSchedule}]"
	}
	file := s.write("web.yaml", service(s.toolbox(t), "web", 2, true, where), 0o644)
	s.kubectl(t, "apply", "-f", file)
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout=10m")
	addresses := []string{"10.88.0.10"} // of the first master: whoever asks there is not to notice anything
	// unless its VM is recreated, or another one: a balancer before the nodes would see that
	if strategy != "" {
		for n := range 9 {
			addresses = append(addresses, fmt.Sprintf("10.88.0.%d", 11+n))
		}
	}
	ask := s.asking(t, addresses)
	work()
	asked, failures := ask()
	t.Logf("the service was asked %d times, %d answers were missing", asked, len(failures))
	if len(failures) > 0 || asked < 10 {
		t.Errorf("%d of %d requests failed:\n%s", len(failures), asked, strings.Join(failures, "\n"))
	}
	s.kubectl(t, "delete", "-f", file)
}

// asking asks for the service at the first of the nodes' addresses that answers, over and over and each time on a new
// connection, until the returned function is called, which tells how often, and when and how each request failed that
// did. It begins when the service answers for the first time: a deployment is rolled out before every kube-proxy knows
// of its service.
func (s *suite) asking(t *testing.T, addresses []string) func() (asked int, failures []string) {
	t.Helper()
	every := 100 * time.Millisecond
	if emulated() { // where an answer takes its time
		every = time.Second
	}
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request := func() (err error) {
		for range addresses {
			if err = get(ctx, client, "http://"+addresses[0]+":30080/"); err == nil || ctx.Err() != nil {
				return err
			}
			addresses = append(addresses[1:], addresses[0]) // the next requests begin with one that answers
		}
		return err
	}
	s.await(t, 2*time.Minute, "the service answers", func() bool { return request() == nil })
	var asked int
	var failures []string
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := request()
			if ctx.Err() != nil {
				return
			}
			asked++
			if err != nil {
				failures = append(
					failures, fmt.Sprintf("%s request %d: %v", time.Now().UTC().Format(time.TimeOnly), asked, err),
				)
			}
		}
	})
	return func() (int, []string) {
		cancel()
		wg.Wait()
		return asked, failures
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	vip       = "10.88.0.5"
	bridge    = "kaas-e2e"       // that e2e.sh makes
	noAnswers = 90 * time.Second // that a client may have to bear while the virtual address moves on emulated hosts
)

// TestHighlyAvailable is a cluster of three masters behind a virtual address on real VMs, on three libvirt hosts, made
// of the older minor: a master is powered off and on, an outer plan rolls over the hosts, all of it is upgraded under a
// running service over a kill -9 of the director, a dead master is replaced, and a host is lost (B1, B3-B6, B13, C2,
// D5).
func TestHighlyAvailable(t *testing.T) {
	s := begin(t, older, suite{masters: 3})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates three masters and a worker of the older minor", s.createsACluster},
		{"the API answers while a master is off", s.masterOffAndOn},
		{"takes the first master out and brings it back", s.firstMasterOutAndBackIn},
		{"an outer plan rolls over the hosts", s.rollsOverHosts},
		{"upgrades to the next minor under a running service, over a kill -9", s.upgrades},
		{"replaces a dead master", s.replacesADeadMaster},
		{"moves nodes off a lost host, and fences what comes back with it", s.losesAHost},
		{"deletes everything", s.deletesEverything},
	})
}

// holder returns the master that answers for the virtual address, by what its host's neighbour table says.
func (s *suite) holder(t *testing.T) string {
	t.Helper()
	s.ok(t, 10*time.Second, "ping", "-c", "1", "-W", "5", vip)
	fields := strings.Fields(s.ok(t, 10*time.Second, "ip", "neigh", "show", vip))
	for i, f := range fields {
		if f != "lladdr" || i+1 == len(fields) {
			continue
		}
		for _, name := range s.masterNames() {
			if strings.Contains(s.vm(t, "domiflist", name), fields[i+1]) {
				return name
			}
		}
	}
	t.Fatalf("no master has the address %s: %v", vip, fields)
	return ""
}

func (s *suite) masterOffAndOn(t *testing.T) {
	for _, h := range s.hosts {
		masters := slices.DeleteFunc(s.domains(
			t, h,
		), func(name string) bool { return !slices.Contains(s.masterNames(), name) })
		if len(masters) != 1 {
			t.Errorf("host %s has the masters %v, want one", h.name, masters)
		}
	}
	victim := s.holder(t)
	gap := s.watchGap(t, "https://"+vip+":6443/readyz")
	s.vm(t, "destroy", victim)
	off := time.Now()
	// The API has to carry on by itself: it is written to and read from, and the director says what is wrong.
	s.await(t, 5*time.Minute, "the API takes a change with a master off", func() bool {
		_, code := s.tryKubectl(t, "create", "configmap", "with-a-master-off", "--request-timeout=10s")
		return code == 0
	})
	t.Logf("a change was taken %.0f s after %s was powered off", time.Since(off).Seconds(), victim)
	if out := s.ctl(t, "node", "list", "demo"); !strings.Contains(out, "its VM is switched off") {
		t.Errorf("the list does not tell:\n%s", out)
	}
	if now := s.holder(t); now == victim {
		t.Errorf("%s is off and still has the virtual address", victim)
	}
	for _, other := range s.masterNames() {
		if other != victim {
			s.refused(t, []string{"quorum"}, "node", "delete", "demo", other, "--yes", "--wait")
		}
	}
	s.vm(t, "start", victim)
	on := time.Now()
	own := "https://" +
		s.kubectl(t, "get", "node", victim, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`) +
		":6443/readyz"
	client := s.apiClient(t)
	s.await(t, 15*time.Minute, "its own API server and all nodes are well again", func() bool {
		return get(t.Context(), client, own) == nil && s.well(t) == len(s.nodeNames())
	})
	t.Logf(
		"its own API server and all nodes were well %.0f s after %s was switched on", time.Since(on).Seconds(), victim,
	)
	longest := gap()
	t.Logf("the longest time without an answer at the virtual address was %.1f s", longest.Seconds())
	if longest > noAnswers {
		t.Errorf("the virtual address was without an answer for %s", longest)
	}
	s.kubectl(t, "delete", "configmap", "with-a-master-off")
	s.wantNodes(t, s.nodeNames()...)
}

// apiClient trusts the cluster's authority, and has two seconds of patience.
func (s *suite) apiClient(t *testing.T) *http.Client {
	t.Helper()
	ca, err := base64.StdEncoding.DecodeString(
		s.kubectl(t, "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"),
	)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatalf("no authority in the kubeconfig: %v", err)
	}
	return &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		},
	}
}

// watchGap asks the URL five times a second until the returned function is called, which returns the longest time
// between two answers.
func (s *suite) watchGap(t *testing.T, url string) func() time.Duration {
	t.Helper()
	client := s.apiClient(t)
	done, longest, last := make(chan struct{}), time.Duration(0), time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if get(t.Context(), client, url) == nil {
				now := time.Now()
				longest, last = max(longest, now.Sub(last)), now
			}
		}
	})
	return func() time.Duration {
		close(done)
		wg.Wait()
		return max(longest, time.Since(last))
	}
}

func (s *suite) firstMasterOutAndBackIn(t *testing.T) {
	const first = "demo-master-1"
	s.timed(t, "node", "drain", "demo", first, "--yes", "--wait")
	s.timed(t, "node", "delete", "demo", first, "--keep-vm", "--yes", "--wait")
	if out := s.kubectl(t, "get", "nodes", "-o", "name"); strings.Contains(out, first) {
		t.Errorf("%s is still a node:\n%s", first, out)
	}
	if n := s.etcdMembers(t); n != 2 {
		t.Errorf("etcd has %d members, want 2", n)
	}
	s.timed(t, "node", "rejoin", "demo", first, "--yes", "--wait")
	s.wantNodes(t, s.nodeNames()...)
	if n := s.etcdMembers(t); n != 3 {
		t.Errorf("etcd has %d members, want 3", n)
	}
}

// rollsOverHosts runs the documented driver over all hosts: the nodes of each leave, its VMs go through a power cut as
// at a restart of the host, and the nodes come back.
func (s *suite) rollsOverHosts(t *testing.T) {
	var hosts []string
	script := "#!/bin/sh\nset -e\ncase $1 in\n"
	for _, h := range s.hosts {
		hosts = append(hosts, h.name)
		script += fmt.Sprintf("%s) uri='%s' ;;\n", h.name, h.uri)
	}
	script += "esac\nfor vm in $(virsh -q -c \"$uri\" list --name); do virsh -q -c \"$uri\" destroy \"$vm\"; done\n"
	upgrade := s.write("power-cut", script, 0o755)
	began := time.Now()
	out := s.ok(t, 90*time.Minute, "env", append([]string{
		"PATH=" + s.root + "/bin:" + os.Getenv("PATH"), s.root + "/docs/examples/rolling-over-hosts/roll.sh", "--run",
		"roll", "--cluster", "demo", "--upgrade", upgrade,
	}, hosts...)...)
	t.Logf("rolling over the hosts %v took %.0f s\n%s", hosts, time.Since(began).Seconds(), out)
	s.wantNodes(t, s.nodeNames()...)
	if n := s.etcdMembers(t); n != 3 {
		t.Errorf("etcd has %d members, want 3", n)
	}
}

// etcdMembers asks etcd on the last master.
func (s *suite) etcdMembers(t *testing.T) int {
	t.Helper()
	out := s.kubectl(t, "-n", "kube-system", "exec", fmt.Sprintf(
		"etcd-demo-master-%d", s.masters,
	), "--", "etcdctl", "--command-timeout=60s", "--dial-timeout=60s",
		"--endpoints=https://127.0.0.1:2379", "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
		"--cert=/etc/kubernetes/pki/etcd/server.crt", "--key=/etc/kubernetes/pki/etcd/server.key", "member", "list")
	return strings.Count(out, "started")
}

func (s *suite) replacesADeadMaster(t *testing.T) {
	const dead = "demo-master-2"
	s.destroy(t, dead)
	if out := s.ctl(t, "node", "list", "demo"); !strings.Contains(out, "its VM is gone") {
		t.Errorf("the list does not tell:\n%s", out)
	}
	s.await(t, 10*time.Minute, "the cluster notices", func() bool {
		out, code := s.tryKubectl(t, "get", "node", dead, "--no-headers")
		return code == 0 && !strings.Contains(out, " Ready")
	})
	s.timed(t, "node", "replace", "demo", dead, "--yes", "--wait")
	s.wantNodes(t, s.nodeNames()...)
	if n := s.etcdMembers(t); n != 3 {
		t.Errorf("etcd has %d members, want 3", n)
	}
}

// losesAHost stops a host from answering. As long as its VMs run nobody may give them up; after a power cut its nodes
// are made on other hosts. Then the host is back and starts its VMs, which must not run for long.
func (s *suite) losesAHost(t *testing.T) {
	lost := s.hosts[len(s.hosts)-1]
	nodes := s.domains(t, lost)
	if len(nodes) == 0 {
		t.Fatalf("host %s has no VM", lost.name)
	}
	repair := []string{"node", "repair", "demo", "--lost-host", lost.name, "--yes", "--wait"}
	if out := s.ctl(t, repair...); !strings.Contains(out, "nothing to do") {
		t.Errorf("a host that answers was given up:\n%s", out)
	}
	s.signalHost(t, lost, syscall.SIGSTOP)
	s.refused(t, []string{nodes[0]}, repair...)
	s.signalHost(t, lost, syscall.SIGCONT)
	for _, n := range nodes {
		s.ok(t, time.Minute, "virsh", "-q", "-c", lost.uri, "destroy", n)
	}
	s.signalHost(t, lost, syscall.SIGSTOP)
	for _, n := range nodes {
		s.await(t, 10*time.Minute, "the cluster notices that "+n+" is gone", func() bool {
			out, code := s.tryKubectl(t, "get", "node", n, "--no-headers")
			return code == 0 && !strings.Contains(out, " Ready")
		})
	}
	s.timed(t, repair...)
	s.wantNodes(t, s.nodeNames()...)
	if n := s.etcdMembers(t); n != 3 {
		t.Errorf("etcd has %d members, want 3", n)
	}

	s.signalHost(t, lost, syscall.SIGCONT)
	for _, n := range nodes {
		s.ok(t, time.Minute, "virsh", "-q", "-c", lost.uri, "start", n)
	}
	s.await(t, 2*time.Minute, "the VMs that were given up are powered off", func() bool {
		return len(s.domains(t, lost)) == 0
	})
	var audit struct {
		Findings []struct{ Kind, Provider, VM, Name string }
	}
	if err := json.Unmarshal([]byte(s.ctl(t, "vms", "audit", "-o", "json")), &audit); err != nil {
		t.Fatal(err)
	}
	var fenced []string
	for _, f := range audit.Findings {
		if f.Kind == "fenced" {
			fenced = append(fenced, f.Name)
			s.ctl(t, "vms", "reclaim", f.Provider, f.VM, "--data-disks", "--yes")
		}
	}
	if len(fenced) != len(nodes) {
		t.Errorf("the audit calls %v fenced, want %v", fenced, nodes)
	}
	s.wantNodes(t, s.nodeNames()...)
}

// signalHost sends a signal to the libvirtd of a further host of the lab. A stopped one is as silent as a host without
// a network; its guests run on.
func (s *suite) signalHost(t *testing.T, h host, sig syscall.Signal) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(need(t, "LAB_DIR"), "hosts", h.name, "run", "libvirtd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

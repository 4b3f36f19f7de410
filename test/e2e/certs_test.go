package e2e

import (
	"crypto/tls"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCertificates is a cluster of three masters and two workers whose certificates are good for minutes. They are
// renewed under a service and a writer; then they end, while the director is down, and the cluster is brought back.
func TestCertificates(t *testing.T) {
	life, err := strconv.Atoi(os.Getenv("KAAS_E2E_CERT_SECONDS"))
	if err != nil {
		life = 1200
	}
	s := begin(t, newer, suite{masters: 3, workers: 2, certs: life})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates three masters and two workers", s.createsACluster},
		{"signs tokens with another key under a service and a writer", s.signsWithAnotherKey},
		{"renews certificates under a service and a writer", s.renewsUnderService},
		{"comes back after its certificates have ended", s.comesBackCold},
		{"deletes everything", s.deletesEverything},
	})
}

func (s *suite) renewsUnderService(t *testing.T) {
	s.underService(t, func() {
		gap := s.watchGap(t, "https://"+vip+":6443/readyz")
		written := s.writing(t)
		s.timed(t, "certs", "rotate", "demo", "--all", "--wait", "--yes")
		writes, failed, longest := written()
		away := gap()
		t.Logf("the API took %d writes at the virtual address and %d failed; the longest time without one was %.1f s, "+
			"and without an answer %.1f s", writes, failed, longest.Seconds(), away.Seconds())
		if writes == 0 || max(longest, away) > 5*time.Second {
			t.Error("the API was away for more than 5 s")
		}
	})
	s.wantNodes(t, s.nodeNames()...)
}

// ends returns when the certificate that is served at the address ends.
func ends(t *testing.T, address string) time.Time {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // its end is all that counts
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
}

// within wants what began to have taken no longer than the goal.
func within(t *testing.T, what string, began time.Time, goal time.Duration) {
	t.Helper()
	if took := time.Since(began); took > goal {
		t.Errorf("%s after %s, and the goal is %s", what, took.Round(time.Second), goal)
	}
}

func (s *suite) comesBackCold(t *testing.T) {
	var last time.Time
	for n := range s.masters {
		if end := ends(t, "10.88.0."+strconv.Itoa(10+n)+":6443"); end.After(last) {
			last = end
		}
	}
	s.killDirector()
	t.Logf("the last API server's certificate ends at %s; the director is down until then", last.Format(time.TimeOnly))
	s.await(t, time.Until(last)+time.Minute, "the certificates end", func() bool { return time.Now().After(last) })
	if out, code := s.tryKubectl(t, "get", "nodes", "--request-timeout=10s"); code == 0 {
		t.Errorf("the API still answers:\n%s", out)
	}
	s.startDirector(t)
	if out, code := s.run(t, time.Minute, s.root+"/bin/directorctl", "certs", "verify", "demo"); code == 0 ||
		!strings.Contains(out, "ended on") || !strings.Contains(out, "certs rotate demo --cold") {
		t.Errorf("certs verify: %d\n%s", code, out)
	}
	s.refused(t, []string{"--cold"}, "certs", "rotate", "demo", "--yes", "--wait")
	began := time.Now()
	s.timed(t, "certs", "rotate", "demo", "--cold", "--wait", "--yes")
	s.await(t, 10*time.Minute, "all nodes are well", func() bool { return s.well(t) == len(s.nodeNames()) })
	within(t, "all nodes are well", began, 10*time.Minute)
	s.kubectl(t, "get", "--raw", "/readyz")
	s.wantNodes(t, s.nodeNames()...)
}

// overKills follows a plan that has been started to its good end, and kills the director while each of the steps plays.
func (s *suite) overKills(t *testing.T, id string, steps ...string) {
	t.Helper()
	for _, step := range steps {
		s.reaches(t, id, step)
		s.await(t, time.Minute, step+" plays", func() bool {
			return s.plan(t, id).Status != "running" || len(processes("ansible-playbook")) > 0
		})
		s.killDirector()
		s.startDirector(t)
	}
	s.ctl(t, "follow", id)
	if v := s.plan(t, id); v.Status != "done" {
		s.logSteps(t, v)
		t.Fatalf("the plan is %s", v.Status)
	}
}

// serials returns the serial numbers of certificates of the first master and of the first worker.
func (s *suite) serials(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for node, files := range map[string][]string{
		s.masterNames()[0]: {
			"/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/etcd/server.crt",
			"/var/lib/kubelet/pki/kubelet-client-current.pem",
		},
		"demo-worker-1": {
			"/var/lib/kubelet/pki/kubelet-client-current.pem", "/var/lib/kubelet/pki/kubelet-server-current.pem",
		},
	} {
		for _, file := range files {
			seen[node+":"+file] = strings.TrimSpace(s.onNode(t, node, "openssl x509 -noout -serial -in "+file))
		}
	}
	return seen
}

// rotatesByHand runs rotate_certs.yml with plain ansible-playbook: check mode says that it would change something and
// changes nothing, the run renews every certificate, and a second one has nothing to do.
func (s *suite) rotatesByHand(t *testing.T) {
	before := s.serials(t)
	s.exports(t)
	all := "certs_before=" + strconv.FormatInt(time.Now().Add(365*24*time.Hour).Unix(), 10) // what was made until now
	if !s.playsByHand(t, "rotate_certs.yml", "-e", all, "--check") {
		t.Error("check mode would change nothing")
	}
	if diff := cmp.Diff(before, s.serials(t)); diff != "" {
		t.Errorf("check mode has changed something (-before +after)\n%s", diff)
	}
	s.exports(t) // a look at a node removes it
	if !s.playsByHand(t, "rotate_certs.yml", "-e", all) {
		t.Error("nothing was renewed")
	}
	for file, serial := range s.serials(t) {
		if serial == before[file] {
			t.Errorf("%s was not renewed", file)
		}
	}
	s.exports(t)
	if s.playsByHand(t, "rotate_certs.yml", "-e", all) {
		t.Error("a second run changes something")
	}
	if err := os.RemoveAll(s.path("inventory")); err != nil {
		t.Error(err)
	}
	s.kubectl(t, "get", "--raw", "/readyz")
}

// certificatesAreRenewed rotates every certificate of the cluster over a kill -9 on each node, sees other ones in the
// files and on the wire, and sees that a second rotation has nothing to do.
func (s *suite) certificatesAreRenewed(t *testing.T) {
	before := s.serials(t)
	s.ctl(t, "certs", "verify", "demo") // looks at once
	list := s.ctl(t, "certs", "list", "demo")
	for _, want := range []string{"apiserver", "kubelet-server", "front-proxy", "etcd"} {
		if !strings.Contains(list, want) {
			t.Errorf("certs list does not show %s:\n%s", want, list)
		}
	}
	s.ctl(t, "certs", "rotate", "demo", "--all", "--yes")
	s.overKills(t, s.newestPlan(t), "rotate_certs/"+s.masterNames()[0], "rotate_certs/demo-worker-1")
	for file, serial := range s.serials(t) {
		if serial == before[file] || !strings.HasPrefix(serial, "serial=") {
			t.Errorf("%s: %s before, %s after the rotation", file, before[file], serial)
		}
	}
	s.rotationIsBackedUp(t)
	s.kubectl(t, "get", "--raw", "/readyz")
	for _, node := range s.nodeNames() {
		s.kubectl(t, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/healthz") // the API server to the kubelet
	}
	s.ctl(t, "certs", "verify", "demo")
	if out := s.ctl(t, "certs", "rotate", "demo", "--ending-within", "30d", "--yes"); !strings.Contains(out,
		"Nothing to do") {
		t.Errorf("a second rotation:\n%s", out)
	}
}

package e2e

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAuthorities is a cluster of three masters and a worker whose certificate authorities are changed under a service
// and a writer, with a director that is killed in each stage.
func TestAuthorities(t *testing.T) {
	s := begin(t, newer, suite{masters: 3})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates three masters and a worker", s.createsACluster},
		{"changes nothing while the clock of a master is off", s.stopsAtAWrongClock},
		{"changes the front proxy's authority", s.changes("front-proxy-ca", "front-proxy-ca.crt")},
		{"changes etcd's authority", s.changes("etcd-ca", "etcd/ca.crt")},
		{"changes the cluster's authority", s.changes("cluster-ca", "ca.crt")},
		{"changes it again while a worker is away, which joins again", s.changesWithoutAWorker},
		{"deletes everything", s.deletesEverything},
	})
}

func (s *suite) changes(which, file string) func(*testing.T) {
	return func(t *testing.T) { s.changesAuthority(t, which, file) }
}

// changesAuthority rotates an authority, kills the director in each stage, and sees that the former one is on no node.
func (s *suite) changesAuthority(t *testing.T, which, file string) {
	nodes := s.masterNames()
	if file == "ca.crt" {
		nodes = s.nodeNames()
	}
	authorities := func(node string) string { return s.onNode(t, node, "cat /etc/kubernetes/pki/"+file) }
	former := authorities(nodes[0])
	s.underService(t, func() {
		written := s.writing(t)
		began := time.Now()
		s.ctl(t, "rotate", which, "demo", "--yes")
		id := s.newestPlan(t)
		s.stages(t, id, which, func() {
			s.killDirector()
			s.startDirector(t)
		})
		v := s.plan(t, id)
		s.logSteps(t, v)
		taken, failed, longest := written()
		t.Logf("%s: %.0f s; %d writes, %d failed; the longest time without one was %.1f s", which,
			time.Since(began).Seconds(), taken, failed, longest.Seconds())
		if v.Status != "done" || taken == 0 || longest > 5*time.Second {
			t.Errorf("the plan is %s; the API was away for %s", v.Status, longest)
		}
	})
	s.wantAuthority(t, file, former, nodes)
}

// stages follows the change of an authority to its end, and calls in in the middle of each stage. It agrees where the
// plan asks, and has another kubeconfig where the former one is of no use.
func (s *suite) stages(t *testing.T, id, which string, in func()) {
	t.Helper()
	asks := map[string]string{}
	if which == "cluster-ca" {
		asks = map[string]string{"sign": "use", "refuse": "drop"}
	}
	for _, stage := range []string{"trust", "sign", "refuse"} {
		if do := asks[stage]; do != "" {
			s.agrees(t, id, do)
		}
		s.reaches(t, id, "rotate_ca_"+stage+"/demo-master-2")
		in()
		if stage != "refuse" { // what was given out before does not trust the authority, and then is not trusted
			s.ctl(t, "kubeconfig", "demo", "--admin", "-o", s.path("kubeconfig"), "--ttl", "4h")
		}
	}
	s.ctl(t, "follow", id)
}

// wantAuthority wants the nodes to trust one authority, the same on all, which is not the former one.
func (s *suite) wantAuthority(t *testing.T, file, former string, nodes []string) {
	t.Helper()
	var first string
	for _, node := range nodes {
		now := s.onNode(t, node, "cat /etc/kubernetes/pki/"+file)
		if first == "" {
			first = now
		}
		if strings.Count(now, "BEGIN CERTIFICATE") != 1 || now == former || now != first {
			t.Errorf("%s trusts\n%s\nbefore it was\n%s", node, now, former)
		}
	}
	s.kubectl(t, "get", "--raw", "/readyz")
	s.ctl(t, "certs", "verify", "demo")
	s.wantNodes(t, s.nodeNames()...)
}

// stopsAtAWrongClock asks for the change of an authority while the clock of a master is off by a day. The clock is the
// machine's, and so only what the director runs on that master sees it so. The plan names the master, and changes
// nothing on any node.
func (s *suite) stopsAtAWrongClock(t *testing.T) {
	const wrong = "/usr/lib/python3/dist-packages/zz-clock.pth"
	master := s.masterNames()[1]
	files := func() string {
		var all string
		for _, node := range s.masterNames() {
			all += s.onNode(t, node, "find /etc/kubernetes/pki /etc/kubernetes/*.conf -type f | sort | xargs sha256sum")
		}
		return all
	}
	before := files()
	s.onNode(t, master, "echo 'import time; time.time = (lambda right: lambda: right() - 86400)(time.time)' > "+wrong)
	said := []string{master, "the clock of the node is off by -86"} // 86,400 s, less what the questions take
	s.refused(t, said, "rotate", "front-proxy-ca", "demo", "--yes", "--wait")
	s.onNode(t, master, "rm "+wrong)
	if files() != before {
		t.Error("something has changed on a master")
	}
	s.ctl(t, "discard", s.newestPlan(t))
}

// changesWithoutAWorker changes the cluster's authority while the worker is off, in all stages. The worker comes back
// with the former authority: it is not ready, the director says why, and it joins again.
func (s *suite) changesWithoutAWorker(t *testing.T) {
	const worker = "demo-worker-1"
	former := s.onNode(t, worker, "cat /etc/kubernetes/pki/ca.crt")
	ready := func() bool {
		said := s.kubectl(t, "get", "node", worker, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return said == "True"
	}
	file := s.write("kept.yaml", service(s.toolbox(t), "kept", 1, false, "nodeName: demo-master-1"), 0o644)
	s.kubectl(t, "apply", "-f", file) // the plan asks for the sake of its pod
	s.kubectl(t, "rollout", "status", "deployment/kept", "--timeout=5m")
	s.vm(t, "destroy", worker)
	s.await(t, 5*time.Minute, "the cluster notices that the worker is away", func() bool { return !ready() })
	out := s.ctl(t, "rotate", "cluster-ca", "demo", "--yes")
	if !strings.Contains(out, worker+" is not ready and is left out") {
		t.Errorf("the plan does not say who is left out:\n%s", out)
	}
	id := s.newestPlan(t)
	s.stages(t, id, "cluster-ca", func() {})
	if v := s.plan(t, id); v.Status != "done" {
		s.logSteps(t, v)
		t.Fatalf("the plan is %s", v.Status)
	}
	s.vm(t, "start", worker)
	s.await(t, 5*time.Minute, "the director sees a certificate of the former authority", func() bool {
		said, code := s.run(t, time.Minute, s.root+"/bin/directorctl", "certs", "verify", "demo")
		return code != 0 && strings.Contains(said, "directorctl node rejoin demo "+worker)
	})
	if ready() {
		t.Error("a worker with the former authority is ready")
	}
	s.timed(t, "node", "rejoin", "demo", worker, "--yes", "--wait")
	s.kubectl(t, "delete", "-f", file)
	s.wantAuthority(t, "ca.crt", former, s.nodeNames())
}

// agrees waits until the change of the cluster's authority asks a person, and has it go on.
func (s *suite) agrees(t *testing.T, id, do string) {
	t.Helper()
	step := "authority.agree/" + do
	s.reaches(t, id, step)
	s.await(t, 5*time.Minute, step+" asks", func() bool { return s.plan(t, id).Status != "running" })
	v := s.plan(t, id)
	for _, st := range v.Steps {
		if st.ID == step && st.Status != "parked" {
			t.Fatalf("%s is %s: %s", step, st.Status, st.Message)
		}
		if st.ID == step {
			t.Logf("%s: %s", step, st.Message)
		}
	}
	s.ctl(t, "retry", id)
}

// reaches waits until the step of the plan has begun.
func (s *suite) reaches(t *testing.T, id, step string) {
	t.Helper()
	s.await(t, 30*time.Minute, "the plan comes to "+step, func() bool {
		v := s.plan(t, id)
		return v.Status != "running" || slices.ContainsFunc(v.Steps, func(st stepView) bool {
			return st.ID == step && st.Status != "pending"
		})
	})
}

// credentials reads the kubeconfig as it is now, and returns a client with what is in it.
func (s *suite) credentials(text []byte) *http.Client {
	part := func(key string) []byte {
		found := regexp.MustCompile(key + `: *"?([A-Za-z0-9+/=]+)`).FindSubmatch(text)
		if found == nil {
			return nil
		}
		out, _ := base64.StdEncoding.DecodeString(string(found[1]))
		return out
	}
	pool := x509.NewCertPool()
	cert, err := tls.X509KeyPair(part("client-certificate-data"), part("client-key-data"))
	if err != nil || !pool.AppendCertsFromPEM(part("certificate-authority-data")) {
		return nil // it is being written
	}
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: pool, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert},
		},
	}}
}

// writing changes an object through the virtual address five times a second, with the kubeconfig as it is at each
// write, until the returned function is called: how many changes were taken, how many failed, and the longest time
// between two that were taken.
func (s *suite) writing(t *testing.T) func() (taken, failed int, longest time.Duration) {
	t.Helper()
	s.kubectl(t, "create", "configmap", "written")
	ctx, cancel := context.WithCancel(t.Context())
	var client *http.Client
	var sum [sha256.Size]byte
	write := func(n int) error {
		text, err := os.ReadFile(s.path("kubeconfig"))
		if now := sha256.Sum256(text); err == nil && now != sum {
			if c := s.credentials(text); c != nil {
				client, sum = c, now
			}
		}
		req, err := http.NewRequestWithContext(
			ctx, http.MethodPatch, "https://"+vip+":6443/api/v1/namespaces/default/configmaps/written",
			strings.NewReader(`{"data":{"n":"`+strconv.Itoa(n)+`"}}`),
		)
		if err != nil || client == nil {
			return cmp.Or(err, errors.New("the kubeconfig cannot be read"))
		}
		req.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			said, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
			return fmt.Errorf("%s: %s", resp.Status, said)
		}
		return nil
	}
	var taken, failed int
	var longest time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			switch err := write(taken); {
			case err == nil:
				taken++
				longest, last = max(longest, time.Since(last)), time.Now()
			case ctx.Err() == nil:
				failed++
				t.Logf("%s: a write failed: %v", time.Now().UTC().Format(time.TimeOnly), err)
			}
		}
	})
	return func() (int, int, time.Duration) {
		cancel()
		wg.Wait()
		s.kubectl(t, "delete", "configmap", "written")
		return taken, failed, longest
	}
}

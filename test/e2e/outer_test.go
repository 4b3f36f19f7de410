package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/authorities/stepcatest"
	"github.com/director-kaas/kaas/director/pki"
)

// outerLife is how long the first outer authority lives, and so all that the cluster is made of: long enough to make
// the cluster.
const outerLife = 9 * time.Minute

// belowCorp has all authorities of the cluster issued by the outer one.
const belowCorp = "authority: corp, etcd: true, frontProxy: true"

// TestOuterAuthority is a cluster whose authorities an outer one has issued. That one ends, and all of the cluster with
// it; a renewed one brings the cluster back. Then the cluster's authority moves to a step-ca.
func TestOuterAuthority(t *testing.T) {
	s := begin(t, newer, suite{brief: true, spec: "  certificates: {" + belowCorp + "}\n"})
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates a cluster below an outer authority", s.createsBelowAnAuthority},
		{"comes back after the authority has ended", s.comesBackUnderAnother},
		{"moves to a step-ca", s.movesToStepCA},
		{"deletes everything", s.deletesEverything},
	})
}

// corpEnd returns when the outer authority of the documents ends, and with it all that it has issued.
func (s *suite) corpEnd(t *testing.T) time.Time {
	t.Helper()
	text, err := os.ReadFile(s.path("corp.crt"))
	if err != nil {
		t.Fatal(err)
	}
	end, err := pki.Expiry(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// outerPair makes an authority that signs those of clusters, and writes its document and its key.
func (s *suite) outerPair(t *testing.T, life time.Duration) {
	t.Helper()
	pair, err := pki.NewSelfSigned("corp", life)
	if err != nil {
		t.Fatal(err)
	}
	s.write("corp.key", pair.Key.Reveal(), 0o600)
	s.write("corp.crt", pair.Cert, 0o644)
	certificate := "    " + strings.ReplaceAll(strings.TrimSpace(pair.Cert), "\n", "\n    ")
	s.write("models/corp.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: CertificateAuthority
metadata: {name: corp}
spec:
  type: uploaded
  credentials: corp-key
  leastLife: 1m
  certificate: |
%s
`, certificate), 0o644)
}

// bringsKey gives the director the key of the outer authority, which is bound to the certificate of the document.
func (s *suite) bringsKey(t *testing.T) {
	t.Helper()
	s.ctl(t, "provider", "credentials", "set", "corp-key", "--user", "corp", "--password-file", s.path("corp.key"))
}

// issuers returns who has issued each authority that the first master has.
func (s *suite) issuers(t *testing.T) string {
	t.Helper()
	const look = "for f in ca.crt etcd/ca.crt front-proxy-ca.crt; do openssl x509 -noout -issuer -in $f; done"
	return s.onNode(t, s.masterNames()[0], "cd /etc/kubernetes/pki && "+look)
}

func (s *suite) createsBelowAnAuthority(t *testing.T) {
	s.outerPair(t, outerLife)
	s.bringsKey(t)
	s.createsACluster(t)
	s.kubectl(t, "get", "--raw", "/readyz")
	if found := s.issuers(t); strings.Count(found, "CN = corp") != 3 {
		t.Errorf("the authorities of the cluster are from\n%s", found)
	}
	if out := s.ctl(t, "ca", "list"); !strings.Contains(out, "corp") {
		t.Errorf("ca list:\n%s", out)
	}
}

func (s *suite) comesBackUnderAnother(t *testing.T) {
	last := s.corpEnd(t)
	t.Logf("everything ends at %s", last.Format(time.TimeOnly))
	s.await(t, time.Until(last)+time.Minute, "the authority ends", func() bool { return time.Now().After(last) })
	if out, code := s.tryKubectl(t, "get", "nodes", "--request-timeout=10s"); code == 0 {
		t.Errorf("the API still answers:\n%s", out)
	}
	if out, code := s.run(t, time.Minute, s.root+"/bin/directorctl", "certs", "verify", "demo"); code == 0 ||
		!strings.Contains(out, "certs rotate demo --cold") {
		t.Errorf("certs verify: %d\n%s", code, out)
	}
	s.refused(
		t, []string{"CertificateAuthority/corp", "ended at", "ca test corp"},
		"certs", "rotate", "demo", "--cold", "--yes", "--wait",
	)
	id := s.newestPlan(t)
	s.outerPair(t, 10*365*24*time.Hour)
	s.ctl(t, "apply", "-f", s.path("models/corp.yaml"))
	s.bringsKey(t)
	s.ctl(t, "retry", id)
	s.reaches(t, id, "rotate_certs/"+s.masterNames()[0])
	s.killDirector()
	s.startDirector(t)
	s.ctl(t, "follow", id)
	v := s.plan(t, id)
	s.logSteps(t, v)
	if v.Status != "done" {
		t.Fatalf("the plan is %s", v.Status)
	}
	s.answersUnder(t, "CN = corp", 3)
}

// answersUnder wants the cluster well, and that many of its authorities issued by the outer one.
func (s *suite) answersUnder(t *testing.T, issuer string, of int) {
	t.Helper()
	s.ctl(t, "kubeconfig", "demo", "--admin", "-o", s.path("kubeconfig"), "--ttl", "4h")
	s.await(t, 10*time.Minute, "all nodes are well", func() bool { return s.well(t) == len(s.nodeNames()) })
	s.kubectl(t, "get", "--raw", "/readyz")
	s.wantNodes(t, s.nodeNames()...)
	if found := s.issuers(t); strings.Count(found, issuer) != of {
		t.Errorf("the authorities of the cluster are from\n%s", found)
	}
	for _, file := range []string{"ca.crt", "etcd/ca.crt", "front-proxy-ca.crt"} {
		text := s.onNode(t, s.masterNames()[0], "cat /etc/kubernetes/pki/"+file)
		if n := strings.Count(text, "BEGIN CERTIFICATE"); n != 1 {
			t.Errorf("%s has %d authorities", file, n)
		}
	}
	for _, node := range s.nodeNames() {
		s.kubectl(t, "get", "--raw", "/api/v1/nodes/"+node+"/proxy/healthz") // the API server to the kubelet
	}
	s.ctl(t, "certs", "verify", "demo")
}

func (s *suite) movesToStepCA(t *testing.T) {
	server := stepcatest.Start(t, stepcatest.Options{PathLength: 1, Provisioners: []stepcatest.Provisioner{
		{Name: "kaas", Template: stepcatest.Template, Longest: "87600h"},
	}})
	secret := s.write("step.password", stepcatest.Password, 0o600)
	doc := s.write("step.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: CertificateAuthority
metadata: {name: step}
spec:
  type: stepCA
  life: 26280h
  stepCA: {url: %q, rootFingerprint: %s, provisioner: kaas, credentials: step-kaas}
`, server.URL, server.Fingerprint), 0o644)
	s.ctl(t, "apply", "-f", doc)
	s.ctl(t, "provider", "credentials", "set", "step-kaas", "--user", "kaas", "--password-file", secret)
	s.ctl(t, "ca", "test", "step")
	s.ctl(t, "apply", "-f", s.variant("step", belowCorp, "authority: step"))
	s.ctl(t, "rotate", "cluster-ca", "demo", "--yes")
	id := s.newestPlan(t)
	s.agrees(t, id, "use")
	s.agrees(t, id, "drop")
	s.timed(t, "follow", id)
	s.answersUnder(t, "CN = test intermediate", 1)
}

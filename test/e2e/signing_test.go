package e2e

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// tokenKey returns the id of the key that the token is signed with.
func tokenKey(t *testing.T, token string) string {
	t.Helper()
	head, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		t.Fatalf("%q is no token: %v", token, err)
	}
	var v struct {
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(text, &v); err != nil || v.Kid == "" {
		t.Fatalf("the token's header is %s: %v", text, err)
	}
	return v.Kid
}

// publishedKeys returns the ids of the keys that the cluster tells others to trust.
func (s *suite) publishedKeys(t *testing.T) (ids []string) {
	t.Helper()
	var v struct {
		Keys []struct {
			Kid string `json:"kid"`
		} `json:"keys"`
	}
	if err := json.Unmarshal([]byte(s.kubectl(t, "get", "--raw", "/openid/v1/jwks")), &v); err != nil {
		t.Fatal(err)
	}
	for _, k := range v.Keys {
		ids = append(ids, k.Kid)
	}
	return ids
}

// signsWithAnotherKey rotates the service account key. Pods that started before are started again, so that the plan
// does not wait for their kubelets to renew what they have. What runs does not notice.
func (s *suite) signsWithAnotherKey(t *testing.T) {
	token := func() string { return strings.TrimSpace(s.kubectl(t, "create", "token", "default", "--duration=24h")) }
	accepted := func(token string) bool {
		_, code := s.tryKubectl(
			t, "--kubeconfig=/dev/null", "--server=https://"+vip+":6443", "--insecure-skip-tls-verify",
			"--token="+token, "get", "--raw", "/api",
		)
		return code == 0
	}
	former := token()
	if !accepted(former) {
		t.Fatal("the token is not accepted before the rotation")
	}
	s.underService(t, func() {
		gap := s.watchGap(t, "https://"+vip+":6443/readyz")
		written := s.writing(t)
		began := time.Now()
		s.ctl(t, "rotate", "service-account-key", "demo", "--yes")
		id := s.newestPlan(t)
		s.reaches(t, id, "service_account_tokens/demo")
		if next := token(); tokenKey(t, next) == tokenKey(t, former) || !accepted(former) || !accepted(next) {
			t.Error("between the keys, the former token or one of the other key is refused, or there is no other key")
		}
		s.restartsPods(t)
		s.ctl(t, "follow", id)
		v := s.plan(t, id)
		s.logSteps(t, v)
		writes, failed, longest := written()
		t.Logf("the rotation took %.0f s; the API took %d writes at the virtual address and %d failed; the "+
			"longest time "+
			"without one was %.1f s, and without an answer %.1f s", time.Since(began).Seconds(), writes, failed,
			longest.Seconds(), gap().Seconds())
		if v.Status != "done" || writes == 0 {
			t.Errorf("the plan is %s, and the API took %d writes", v.Status, writes)
		}
	})
	next := token()
	if accepted(former) || !accepted(next) {
		t.Error("the former token is still accepted, or a new one is not")
	}
	if ids := s.publishedKeys(t); len(ids) != 1 || ids[0] != tokenKey(t, next) {
		t.Errorf("the cluster publishes %v, and signs with %s", ids, tokenKey(t, next))
	}
	s.await(t, 5*time.Minute, "all nodes are well", func() bool { return s.well(t) == len(s.nodeNames()) })
	s.wantNodes(t, s.nodeNames()...)
}

// restartsPods has every pod of a deployment or a daemon set replaced by one that starts now.
func (s *suite) restartsPods(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"daemonset", "deployment"} {
		list := s.kubectl(
			t, "get", kind, "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}`,
		)
		for _, line := range strings.Split(strings.TrimSpace(list), "\n") {
			namespace, name, _ := strings.Cut(line, " ")
			s.kubectl(t, "rollout", "restart", "-n", namespace, kind+"/"+name)
			s.kubectl(t, "rollout", "status", "-n", namespace, kind+"/"+name, "--timeout=10m")
		}
	}
}

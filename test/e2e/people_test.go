package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ann runs a program as a person with a login of their own, and with directorctl where kubectl finds it.
func (s *suite) ann(t *testing.T, name string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DIRECTOR_CONFIG="+s.path("ann.yaml"), "XDG_CACHE_HOME="+s.path("ann.cache"),
		"PATH="+s.root+"/bin:"+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// peopleLogIn has a person with a grant use the cluster, also while the director is down and the API server restarts.
func (s *suite) peopleLogIn(t *testing.T) {
	must := func(out string, code int) string {
		t.Helper()
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, out)
		}
		return out
	}
	ctl, kubectl := s.root+"/bin/directorctl", filepath.Join(s.bundle, "bin/kubectl")
	said := strings.Split(strings.TrimSpace(s.ctl(t, "users", "create", "ann", "--role", "none")), "\n")
	once := s.write("ann.once", said[len(said)-1]+"\n", 0o600) // behind the sentence that goes to people
	chosen := s.write("ann.password", "a horse that is correct\n", 0o600)
	must(s.ann(
		t, ctl, "login", "--server", s.server, "--ca-file", s.path("state/tls/ca.crt"), "--user", "ann",
		"--password-file", once,
	))
	must(s.ann(t, ctl, "password", "--password-file", once, "--new-password-file", chosen))
	grant := s.write("grant.yaml", "apiVersion: kaas/v1\nkind: Grant\nmetadata: {name: ann}\n"+
		"spec: {users: [ann], role: user, cluster: demo}\n", 0o600)
	s.ctl(t, "apply", "-f", grant)

	config := s.path("ann.kubeconfig")
	must(s.ann(t, ctl, "kubeconfig", "demo", "-o", config))
	who := must(s.ann(t, kubectl, "--kubeconfig", config, "auth", "whoami"))
	if !strings.Contains(who, "director:ann") || !strings.Contains(who, "director:role:user") {
		t.Errorf("the cluster sees\n%s", who)
	}
	must(s.ann(t, kubectl, "--kubeconfig", config, "get", "pods", "-A"))
	for _, args := range [][]string{{"get", "secrets", "-A"}, {"create", "namespace", "mine"}} {
		if out, code := s.ann(t, kubectl, append([]string{"--kubeconfig", config}, args...)...); code == 0 ||
			!strings.Contains(out, "director:ann") {
			t.Errorf("kubectl %v: %d\n%s", args, code, out)
		}
	}
	master := s.masterNames()[0]
	if n := s.onNode(t, master,
		"grep -c '\"username\":\"director:ann\"' /var/log/kubernetes/audit/audit.log"); n == "0" {
		t.Error("director:ann is not in the cluster's audit trail")
	}

	s.restartsAPIServer(t, master, func() bool {
		_, code := s.ann(t, kubectl, "--kubeconfig", config, "--request-timeout=5s", "get", "pods", "-A")
		return code == 0
	})

	s.ctl(t, "delete", "grant", "ann", "--yes")
	if out, code := s.ann(t, ctl, "kubeconfig", "demo"); code == 0 {
		t.Errorf("without a grant there is a kubeconfig:\n%s", out)
	}
	s.ctl(t, "users", "delete", "ann", "--yes")

	s.ctl(t, "access", "revoke-kubeconfigs", "demo")
	if out, code := s.tryKubectl(t, "get", "nodes"); code == 0 || !strings.Contains(out, "forbidden") {
		t.Errorf("a revoked kubeconfig: %d\n%s", code, out)
	}
	s.ctl(t, "kubeconfig", "demo", "--admin", "-o", s.path("kubeconfig"), "--ttl", "4h")
	s.kubectl(t, "get", "nodes")
}

// restartsAPIServer ends the API server of the master while the director is down, and waits until the person is in
// again. The director comes back afterwards.
func (s *suite) restartsAPIServer(t *testing.T, master string, in func() bool) {
	t.Helper()
	const pid = "pgrep -o -x kube-apiserver"
	before := s.onNode(t, master, pid)
	s.onNode(t, master, "systemd-run --quiet --on-active=10 --timer-property=AccuracySec=1s /bin/kill -9 "+before)
	s.killDirector()
	s.await(t, 2*time.Minute, "the API server ends", func() bool { return !in() })
	s.await(t, 5*time.Minute, "the API server accepts the person", in)
	s.startDirector(t)
	if after := s.onNode(t, master, pid); after == before {
		t.Errorf("the API server is still process %s", before)
	}
}

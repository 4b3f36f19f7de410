package playbooks_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
)

// issuerURL is where nothing answers: the API server must never need the director.
const issuerURL = "https://127.0.0.1:1/oidc"

// people is an API server whose tokens are those of an issuer, as the roles set it up.
type people struct {
	*testing.T
	dir        string
	port       int
	kubeconfig string
	server     *kubetest.Server
	client     *http.Client
	cert       pki.Pair
	haproxy    *exec.Cmd
	stage      string // the tasks that are left out come later
	last       string // answer of the API server, for a test that fails
}

// TestPeopleLogIn has the roles point a real API server to what serves the token keys on the same machine.
func TestPeopleLogIn(t *testing.T) {
	t.Parallel()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		haproxy, err = exec.LookPath("/usr/sbin/haproxy")
	}
	if err != nil {
		if os.Getenv(kubetest.EnvRequire) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	one, two := newKey(t, "one"), newKey(t, "two")
	p := startPeople(t, haproxy, one)
	who := func(change func(*jwt.Claims)) string { return sign(t, one, "ann", []string{"role:user"}, change) }

	p.eventually("a token", func() bool { return p.status(who(nil), "/api/v1/namespaces") == http.StatusOK })
	if got := p.whoami(who(nil)); got.Username != "director:ann" || !slices.Contains(got.Groups, "director:role:user") {
		t.Errorf("the cluster sees %+v", got)
	}
	stranger := newKey(t, "one") // of the same name
	for name, token := range map[string]string{
		"another cluster's token": who(func(c *jwt.Claims) { c.Audience = jwt.Audience{"kaas:other"} }),
		"a token for directorctl": who(func(c *jwt.Claims) { c.Audience = jwt.Audience{"directorctl"} }),
		"a token that has ended": who(
			func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Second)) }),
		"another issuer's token": who(func(c *jwt.Claims) { c.Issuer = "https://127.0.0.1:2/oidc" }),
		"another key's token":    sign(t, stranger, "ann", []string{"role:admin"}, nil),
		"a key to come":          sign(t, two, "ann", []string{"role:admin"}, nil),
		"no token at all":        "nothing",
	} {
		if got := p.status(token, "/api/v1/namespaces"); got != http.StatusUnauthorized {
			t.Errorf("%s: status %d", name, got)
		}
	}
	t.Run("without credentials", p.anonymous)
	t.Run("rights", p.rights)

	// The issuer has never been up: what a restart needs is on this machine.
	p.server.Restart()
	p.eventually("a token after a restart", func() bool {
		return p.status(who(nil), "/api/v1/namespaces") == http.StatusOK
	})
	p.rotation(one, two)
	p.trail(sign(t, two, "ann", []string{"role:admin"}, nil))
}

// rotation has a second key published, and then the first one withdrawn. The API server runs on.
func (p *people) rotation(one, two jose.JSONWebKey) {
	p.Helper()
	ann := func(k jose.JSONWebKey) string { return sign(p.T, k, "ann", []string{"role:admin"}, nil) }
	p.refresh("1", one, two)
	p.refresh("0", one, two)
	p.eventually("a token of the next key", func() bool { return p.status(ann(two), "/version") == http.StatusOK })
	if got := p.status(ann(one), "/version"); got != http.StatusOK {
		p.Errorf("a token of the present key: status %d", got)
	}
	p.refresh("1", two)
	p.eventually("that a withdrawn key is forgotten", func() bool {
		return p.status(ann(one), "/version") == http.StatusUnauthorized
	})
	if got := p.status(ann(two), "/version"); got != http.StatusOK {
		p.Errorf("a token of the key that is left: status %d", got)
	}
}

// anonymous looks at what is answered without credentials: what a node that joins asks for, and probes.
func (p *people) anonymous(t *testing.T) {
	const info = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	p.apply(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"}}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "info", "namespace": "kube-public"},
 "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
 "metadata": {"name": "info", "namespace": "kube-public"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "info"},
 "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous"}]}
`)
	for path, want := range map[string]int{
		info: http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusOK, "/healthz": http.StatusOK,
		"/version": http.StatusUnauthorized, "/api": http.StatusUnauthorized,
		"/openid/v1/jwks": http.StatusUnauthorized,
		"/api/v1/namespaces/kube-public/configmaps/other": http.StatusUnauthorized,
		"/api/v1/namespaces/kube-public/configmaps":       http.StatusUnauthorized, "/metrics": http.StatusUnauthorized,
	} {
		if got := p.status("", path); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
}

// rights compares what the director's roles may do with what the page of docs says.
func (p *people) rights(t *testing.T) {
	for _, c := range []struct{ verb, object, who string }{
		{"get", "pods", "admin operator user auditor"},
		{"get", "pods/log", "admin operator user auditor"},
		{"get", "secrets", "admin operator"},
		{"create", "deployments.apps", "admin operator"},
		{"create", "pods/exec", "admin operator"},
		{"list", "nodes", "admin operator auditor"},
		{"patch", "nodes", "admin operator"},
		{"delete", "nodes", "admin"},
		{"create", "pods/eviction", "admin operator"},
		{"create", "namespaces", "admin operator"},
		{"delete", "namespaces", "admin"},
		{"list", "clusterrolebindings.rbac.authorization.k8s.io", "admin operator auditor"},
		{"create", "clusterrolebindings.rbac.authorization.k8s.io", "admin"},
		{"impersonate", "users", "admin"},
		{"list", "customresourcedefinitions.apiextensions.k8s.io", "admin operator auditor"},
	} {
		for _, role := range []string{"admin", "operator", "user", "auditor", "none"} {
			out, _ := p.kubectl(t.Context(), "", "auth", "can-i", c.verb, c.object, "--as=director:ann",
				"--as-group=director:role:"+role, "--all-namespaces")
			answer := strings.Fields(string(out) + " ?")
			may := slices.Contains(answer, "yes")
			if may != slices.Contains(strings.Fields(c.who), role) || !may && !slices.Contains(answer, "no") {
				t.Errorf("%s %s as %s: %s", c.verb, c.object, role, out)
			}
		}
	}
}

// trail wants the person's name in the audit trail of the API server.
func (p *people) trail(token string) {
	p.Helper()
	if code, text := p.ask(http.MethodPost, token, "/api/v1/namespaces/default/configmaps",
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}}`); code != http.StatusCreated {
		p.Fatalf("status %d\n%s", code, text)
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, "audit.log"))
	if err != nil {
		p.Fatal(err)
	}
	if !regexp.MustCompile(`"verb":"create","user":\{"username":"director:ann"[^\n]*"resource":"configmaps"`).Match(
		raw) {
		p.Errorf("director:ann is not in the audit trail:\n%.2000s", raw)
	}
}

func newKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
}

func sign(t *testing.T, key jose.JSONWebKey, user string, groups []string, change func(*jwt.Claims)) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := jwt.Claims{
		Issuer: issuerURL, Subject: "uid of " + user, Audience: jwt.Audience{"kaas:4f1c"},
		IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(10 * time.Minute)),
	}
	if change != nil {
		change(&c)
	}
	text, err := jwt.Signed(signer).Claims(c).Claims(map[string]any{
		"preferred_username": user, "groups": groups,
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func startPeople(t *testing.T, haproxy string, keys ...jose.JSONWebKey) *people {
	t.Helper()
	p := &people{T: t, dir: t.TempDir()}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	p.must(err)
	p.port = ln.Addr().(*net.TCPAddr).Port
	p.must(ln.Close())
	ca, err := pki.NewCA("kaas issuer")
	p.must(err)
	p.cert, err = pki.ServerCert(ca, nil, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, time.Hour)
	p.must(err)
	p.cert.Cert += ca.Cert

	p.play("1", keys...) // what serves the keys is there before the API server, as on a master
	p.haproxy = exec.CommandContext(context.WithoutCancel(t.Context()), haproxy, "-W", "-db", "-f",
		filepath.Join(p.dir, "etc/kaas-issuer/haproxy.cfg"))
	p.haproxy.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.must(p.haproxy.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-p.haproxy.Process.Pid, syscall.SIGKILL)
		_ = p.haproxy.Wait()
	})

	cluster, err := pki.NewCluster("people")
	p.must(err)
	p.must(os.WriteFile(filepath.Join(p.dir, "audit.yaml"), template(t, "audit-policy.yaml.j2"), 0o600))
	p.server = kubetest.StartWith(t, cluster,
		"--authentication-config="+filepath.Join(p.dir, "kubernetes/apiserver/authentication.yaml"),
		"--audit-policy-file="+filepath.Join(p.dir, "audit.yaml"),
		"--audit-log-path="+filepath.Join(p.dir, "audit.log"),
	)
	p.server.StartControllers("clusterrole-aggregation-controller") // fills view and edit
	p.kubeconfig = filepath.Join(p.dir, "kubeconfig")
	p.must(os.WriteFile(p.kubeconfig, []byte(p.server.Admin().Reveal()), 0o600))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(cluster.CA.Cert))
	p.client = &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	t.Cleanup(p.client.CloseIdleConnections)
	p.play("1", keys...) // and now the rights too
	p.play("0", keys...)
	return p
}

// template returns a template of the role that has no variables.
func template(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("roles/control_plane/templates", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// refresh brings other keys, as the director does when they change.
func (p *people) refresh(changed string, keys ...jose.JSONWebKey) {
	p.Helper()
	p.stage = "serve"
	p.play(changed, keys...)
	p.stage = ""
	p.must(p.haproxy.Process.Signal(syscall.SIGUSR2)) // what systemctl reload does
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(p.cert.Cert))
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}, //nolint:gosec // 1.2
	}}
	p.eventually("the keys are served", func() bool { // what the role waits for
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/keys", p.port))
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		var set jose.JSONWebKeySet
		return json.NewDecoder(resp.Body).Decode(&set) == nil && len(set.Keys) == len(keys) &&
			set.Keys[0].KeyID == keys[0].KeyID
	})
	p.play(changed, keys...)
}

// play runs the tasks of cluster_users.yml, and wants that something changes, or that nothing does.
func (p *people) play(changed string, keys ...jose.JSONWebKey) {
	p.Helper()
	set := jose.JSONWebKeySet{}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.Public())
	}
	vars, err := json.Marshal(map[string]any{
		"cluster_users_root": p.dir, "cluster_users_live": false, "cluster_users_user": "",
		"cluster_users_port": p.port,
		"cluster_users_discovery": map[string]any{
			"issuer": issuerURL, "jwks_uri": issuerURL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		},
		"cluster_users_keys": set, "cluster_users_certificate": p.cert.Cert,
		"cluster_users_certificate_key": p.cert.Key.Reveal(), "cluster_users_kubeconfig": p.kubeconfig,
		"control_plane_kubernetes_dir": filepath.Join(p.dir, "kubernetes"), "control_plane_issuer_url": issuerURL,
		"control_plane_issuer_audience": "kaas:4f1c", "control_plane_issuer_ca": p.cert.Cert,
		"control_plane_issuer_keys": set, "control_plane_issuer_port": p.port,
		"ansible_python_interpreter": "/usr/bin/python3", "stage": p.stage,
	})
	p.must(err)
	p.must(os.WriteFile(filepath.Join(p.dir, "vars.json"), vars, 0o600))
	p.must(os.WriteFile(filepath.Join(p.dir, "play.yml"), []byte(`---
- name: Let people log in
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Serve
      ansible.builtin.import_role: {name: cluster_users}
    - name: Accept
      ansible.builtin.import_role: {name: control_plane, tasks_from: authentication}
      when: stage != "serve"
    - name: Bind
      ansible.builtin.import_role: {name: cluster_users, tasks_from: rights}
      when: cluster_users_kubeconfig | length > 0 and stage != "serve"
`), 0o600))
	cmd := exec.CommandContext(p.Context(), "ansible-playbook", "-i", "localhost,", "-e", "@"+p.dir+"/vars.json",
		p.dir+"/play.yml")
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+p.dir)
	if p.server != nil {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(p.server.Kubectl)+":"+os.Getenv("PATH"))
	}
	out, err := cmd.CombinedOutput()
	counts := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(out)
	if err != nil || counts == nil {
		p.Fatalf("ansible-playbook: %v\n%s", err, out)
	}
	if n, _ := strconv.Atoi(string(counts[1])); n > 0 != (changed != "0") {
		p.Errorf("%d tasks changed something, want %s\n%s", n, changed, out)
	}
}

func (p *people) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *people) kubectl(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.server.Kubectl, append([]string{"--kubeconfig", p.kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return cmd.CombinedOutput()
}

func (p *people) apply(manifest string) {
	p.Helper()
	if out, err := p.kubectl(p.Context(), manifest, "apply", "-f", "-"); err != nil {
		p.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// ask returns status and body of an answer.
func (p *people) ask(method, token, path, body string) (int, []byte) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), method, p.server.URL+path, strings.NewReader(body))
	p.must(err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp.StatusCode, text
}

func (p *people) status(token, path string) int {
	p.Helper()
	code, text := p.ask(http.MethodGet, token, path, "")
	p.last = fmt.Sprintf("%s: status %d: %.300s", path, code, text)
	return code
}

type identity struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// whoami asks the API server who the token is.
func (p *people) whoami(token string) identity {
	p.Helper()
	_, text := p.ask(http.MethodPost, token, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`)
	var review struct {
		Status struct {
			UserInfo identity `json:"userInfo"`
		} `json:"status"`
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&review); err != nil {
		p.Fatalf("%v\n%s", err, text)
	}
	return review.Status.UserInfo
}

// eventually waits: the API server asks for keys every ten seconds until it has them, and reads its file once a minute.
func (p *people) eventually(what string, is func() bool) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for !is() {
		select {
		case <-ctx.Done():
			p.Fatalf("%s: not within %s; %s", what, time.Since(begun), p.last)
		case <-tick.C:
		}
	}
	p.Logf("%s: after %s", what, time.Since(begun).Round(100*time.Millisecond))
}

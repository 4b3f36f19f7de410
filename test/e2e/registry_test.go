package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/bcrypt"

	"github.com/director-kaas/kaas/director/bundle"
)

const (
	outerHost     = "images.example.org" // as the names of images have it; no such host is there
	outerUser     = "puller"
	outerPassword = "canary-of-the-outer-registry"
)

// outerRegistry is a registry of the site, with an account and an authority of its own.
type outerRegistry struct {
	address, ca string

	mu   sync.Mutex
	read []string // images whose manifests were read with the account
}

// startOuterRegistry starts one, which has the toolbox of the bundle in dir as team/tools:1.
func startOuterRegistry(t *testing.T, dir string) *outerRegistry {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(outerPassword), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	accounts := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(accounts, append([]byte(outerUser+":"), hash...), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &configuration.Configuration{
		Version: configuration.CurrentVersion,
		Storage: configuration.Storage{"inmemory": configuration.Parameters{}},
		Auth:    configuration.Auth{"htpasswd": configuration.Parameters{"realm": "outer", "path": accounts}},
	}
	c.HTTP.Secret = "signs uploads, which end with the test"
	app := handlers.NewApp(context.WithoutCancel(t.Context()), c)
	secured, ca := secure(t)
	o := &outerRegistry{ca: ca}
	o.address = serve(t, &http.Server{
		ReadHeaderTimeout: time.Minute, TLSConfig: secured,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.note(r)
			app.ServeHTTP(w, r)
		}),
	}, true)
	o.push(t, dir)
	return o
}

func (o *outerRegistry) note(r *http.Request) {
	image, reference, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	user, password, _ := r.BasicAuth()
	if !ok || r.Method == http.MethodPut || user != outerUser || password != outerPassword {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.read = append(o.read, image+":"+reference)
}

func (o *outerRegistry) push(t *testing.T, dir string) {
	t.Helper()
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	toolbox, err := b.Image("toolbox")
	if err != nil {
		t.Fatal(err)
	}
	path, err := layout.FromPath(filepath.Join(dir, bundle.ImagesDir))
	if err != nil {
		t.Fatal(err)
	}
	image, err := path.Image(toolbox.Digest)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(o.address + "/team/tools:1")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(o.ca))
	web := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	err = remote.Write(
		ref, image, remote.WithContext(t.Context()), remote.WithTransport(web),
		remote.WithAuth(&authn.Basic{Username: outerUser, Password: outerPassword}),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// pullsFromAnOuterRegistry has nodes pull an image of a host that does not exist from a registry of the site, with its
// account and authority, and then forget it.
func (s *suite) pullsFromAnOuterRegistry(t *testing.T) {
	outer := startOuterRegistry(t, s.bundle)
	document := s.write("outer.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: Registry
metadata: {name: outer}
spec:
  host: %s
  mode: replace
  endpoints: [https://%s]
  credentials: outer
  ca: |
    %s
`, outerHost, outer.address, indented(outer.ca, 4)), 0o644)
	secret := s.write("outer.password", outerPassword, 0o600)
	s.ctl(t, "provider", "credentials", "set", "outer", "--user", outerUser, "--password-file", secret)
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	s.ctl(t, "apply", "-f", document)
	uses := s.variant("outer", "  release: k8s", "  registries: [outer]\n  release: k8s")
	s.timed(t, "apply", "-f", uses, "--start", "--yes", "--wait")
	s.kubectl(t, "run", "outer", "--image="+outerHost+"/team/tools:1", "--command", "--", "toolbox", "serve", ":8080")
	s.kubectl(t, "wait", "--for=condition=Ready", "pod/outer", "--timeout=5m")
	s.kubectl(t, "delete", "pod", "outer", "--now")
	outer.mu.Lock()
	if !slices.Contains(outer.read, "team/tools:1") {
		t.Errorf("nodes have read %v with the account", outer.read)
	}
	outer.mu.Unlock()
	const file = "/etc/containerd/certs.d/" + outerHost + "/hosts.toml"
	for _, node := range s.nodeNames() {
		if mode := s.onNode(t, node, "stat -c %U:%a "+file); !strings.Contains(mode, "root:600") {
			t.Errorf("the account on %s: %s", node, mode)
		}
	}
	s.refused(t, []string{"outer", "demo"}, "delete", "registry", "outer", "--yes")
	s.ctl(t, "apply", "-f", s.path("models"), "--start", "--yes", "--wait")
	for _, node := range s.nodeNames() {
		if left := s.onNode(t, node, "ls -A "+filepath.Dir(filepath.Dir(file))); strings.Contains(left, outerHost) {
			t.Errorf("%s still has %s", node, left)
		}
	}
	s.ctl(t, "delete", "registry", "outer", "--yes")
}

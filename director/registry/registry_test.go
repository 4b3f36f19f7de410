package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"go.uber.org/goleak"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// The one goroutine that may stay is named at Registry.Stop.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.short", "true"); err != nil { // distribution's tests of drivers write 5 GiB otherwise
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/docker/go-events.(*Broadcaster).run"))
}

const (
	testUser     = "director"
	testPassword = "correct horse" // of a registry that lives as long as a test
)

type bundle struct {
	root   string
	tls    *pki.Server
	reg    *Registry
	client *http.Transport
	ahead  atomic.Int64 // how far the registry's clock is ahead
}

// testReader admits a cluster, and whoever shows nothing.
func testReader(_ context.Context, user string, password director.Secret, _ string) bool {
	return user == "" || user == "u1" && password == "of u1"
}

// setup serves a registry on root with real TLS and gives a client that trusts its authority alone.
func setup(t *testing.T, root string, identity *pki.Server) *bundle {
	t.Helper()
	return setupWith(t, root, identity, func(*Config) {})
}

// setupWith is setup with a changed configuration.
func setupWith(t *testing.T, root string, identity *pki.Server, change func(*Config)) *bundle {
	t.Helper()
	if identity == nil {
		var err error
		identity, err = pki.EnsureServer(t.TempDir(), []string{
			"localhost",
		}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Root: root, Artifacts: filepath.Join(root, "artifacts"), Listener: ln, TLS: identity.TLSConfig(),
		User: testUser, Password: testPassword,
		Reader: testReader,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	change(&cfg)
	reg, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if reg.bucket != nil {
		reg.bucket.every = 50 * time.Millisecond
	}
	b := &bundle{root: root, tls: identity, reg: reg}
	reg.now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	if err := reg.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(identity.CA()))
	b.client = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute,
	}
	t.Cleanup(func() {
		b.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := reg.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bundle) ref(t *testing.T, s string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(b.reg.Addr().String() + "/" + s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func (b *bundle) as(t *testing.T, a authn.Authenticator) []remote.Option {
	t.Helper()
	return []remote.Option{remote.WithTransport(b.client), remote.WithAuth(a), remote.WithContext(t.Context())}
}

func (b *bundle) pushTest(t *testing.T, ref name.Reference) v1.Image {
	t.Helper()
	img, err := random.Image(1<<20, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...); err != nil {
		t.Fatal(err)
	}
	return img
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*transport.Error](err); ok {
		return e.StatusCode
	}
	return 0
}

func TestPushAndPull(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir(), nil)
	ref := b.ref(t, "kaas/pause:3.10.2")
	img := b.pushTest(t, ref)

	got, err := remote.Image(ref, b.as(t, authn.Anonymous)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(got); err != nil { // pulls everything and checks every digest
		t.Error(err)
	}
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if d, err := got.Digest(); err != nil || d != want {
		t.Errorf("digest %s, %v; pushed %s", d, err, want)
	}
	if _, err := remote.Image(
		b.ref(t, "kaas/pause:absent"), b.as(t, authn.Anonymous)...,
	); statusOf(err) != http.StatusNotFound {
		t.Errorf("an absent tag: %v", err)
	}

	t.Run("an index of several images", func(t *testing.T) {
		t.Parallel()
		idx, err := random.Index(4096, 2, 2)
		if err != nil {
			t.Fatal(err)
		}
		ref := b.ref(t, "kaas/many:1")
		if err := remote.WriteIndex(
			ref, idx, b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...,
		); err != nil {
			t.Fatal(err)
		}
		got, err := remote.Index(ref, b.as(t, authn.Anonymous)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(got); err != nil {
			t.Error(err)
		}
	})
}

// containerd asks for the manifest at once, without the version check, and shows no credentials.
func TestNodesPullWithoutCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir(), nil)
	b.pushTest(t, b.ref(t, "kaas/pause:1"))
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		req, err := http.NewRequestWithContext(
			t.Context(), method, "https://"+b.reg.Addr().String()+"/v2/kaas/pause/manifests/1", nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(
			"Accept",
			"application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json, */*",
		)
		resp, err := b.client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Docker-Content-Digest") == "" {
			t.Errorf("%s: %s, %v", method, resp.Status, resp.Header)
		}
	}
}

// Nodes fetch the programs of a release from where they fetch its images.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := setup(t, root, nil)
	dir := filepath.Join(root, "artifacts", "d1", "bin")
	outside := filepath.Join(root, "outside")
	if err := errors.Join(
		os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "kubelet"), []byte("a kubelet"), 0o644),
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "way-out")),
	); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: b.client}
	for path, want := range map[string]struct {
		method, headers string
		status          int
		body            string
	}{
		"d1/bin/kubelet":         {status: 200, body: "a kubelet"},
		"d1/bin/kubelet?resumed": {status: 206, headers: "bytes=2-", body: "kubelet"},
		"d1/bin/kubectl":         {status: 404},
		"d1/bin/":                {status: 404},
		"":                       {status: 404},
		"d1/bin/way-out":         {status: 404},
		"..%2f..%2foutside":      {status: 404},
		"d1/bin/kubelet?written": {method: http.MethodPut, status: 401},
	} {
		req, err := http.NewRequestWithContext(
			t.Context(), cmp.Or(want.method, http.MethodGet), "https://"+b.reg.Addr().String()+ArtifactsPath+path,
			nil,
		)
		if err != nil {
			t.Fatal(err)
		}
		if want.headers != "" {
			req.Header.Set("Range", want.headers)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want.status || (want.body != "" && string(body) != want.body) ||
			strings.Contains(string(body), "secret") {
			t.Errorf("%q: %d %q, want %d %q", path, resp.StatusCode, body, want.status, want.body)
		}
	}
}

func TestWritingNeedsTheDirector(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir(), nil)
	img := b.pushTest(t, b.ref(t, "kaas/pause:1"))
	for who, a := range map[string]authn.Authenticator{
		"nobody":                 authn.Anonymous,
		"wrong password":         &authn.Basic{Username: testUser, Password: "wrong"},
		"wrong user":             &authn.Basic{Username: "else", Password: testPassword},
		"empty password":         &authn.Basic{Username: testUser},
		"password as the user":   &authn.Basic{Username: testPassword, Password: testUser},
		"password with a suffix": &authn.Basic{Username: testUser, Password: testPassword + "x"},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			if err := remote.Write(
				b.ref(t, "kaas/evil:1"), img, b.as(t, a)...,
			); statusOf(err) != http.StatusUnauthorized {
				t.Errorf("push: %v", err)
			}
			if err := remote.Delete(b.ref(t, "kaas/pause:1"), b.as(t, a)...); statusOf(err) != http.StatusUnauthorized {
				t.Errorf("delete: %v", err)
			}
		})
	}
	// Not only what clients do by themselves: each changing method, straight at its address.
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "PROPFIND"} {
		req, err := http.NewRequestWithContext(t.Context(), method,
			"https://"+b.reg.Addr().String()+"/v2/kaas/pause/blobs/uploads/", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := b.client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized ||
			!strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s: %s, %v", method, resp.Status, resp.Header)
		}
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir(), nil)
	img := b.pushTest(t, b.ref(t, "kaas/pause:1"))
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := b.ref(t, "kaas/pause@"+digest.String())
	if err := remote.Delete(ref, b.as(t, &authn.Basic{Username: testUser, Password: testPassword})...); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Head(ref, b.as(t, authn.Anonymous)...); statusOf(err) != http.StatusNotFound {
		t.Errorf("still there: %v", err)
	}
}

func TestRestartKeepsContent(t *testing.T) {
	t.Parallel()
	first := setup(t, t.TempDir(), nil)
	first.pushTest(t, first.ref(t, "kaas/etcd:v3"))
	if err := first.reg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.reg.Stop(t.Context()); err != nil {
		t.Errorf("the second stop: %v", err)
	}
	second := setup(t, first.root, first.tls)
	got, err := remote.Image(second.ref(t, "kaas/etcd:v3"), second.as(t, authn.Anonymous)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
	if err := first.reg.Start(t.Context()); director.KindOf(err) != director.KindConflict {
		t.Errorf("start after stop: %v", err)
	}
}

func TestClientsMustTrustTheAuthority(t *testing.T) {
	t.Parallel()
	b := setup(t, t.TempDir(), nil)
	stranger := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
	defer stranger.CloseIdleConnections()
	_, err := remote.Head(b.ref(t, "kaas/pause:1"), remote.WithTransport(stranger), remote.WithContext(t.Context()))
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("got %v", err)
	}
}

// An upload that its client gave up must not stay for ever.
func TestInterruptedUploadsAreRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	upload := filepath.Join(root, "docker/registry/v2/repositories/kaas/pause/_uploads")
	put := func(id string, age time.Duration) string {
		dir := filepath.Join(upload, id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"startedat": time.Now().Add(-age).UTC().Format(time.RFC3339), "data": "half a layer",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	stale := put("11111111-1111-4111-8111-111111111111", 25*time.Hour)
	fresh := put("22222222-2222-4222-8222-222222222222", time.Hour)
	b := setup(t, root, nil)
	if err := b.reg.Stop(t.Context()); err != nil { // waits for the purge
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale upload is still there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("the fresh upload: %v", err)
	}
}

// Stop finishes a transfer that is under way, and cuts it off when its time is over.
func TestStopWithATransferUnderWay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		finish bool
	}{{"finished in time", true}, {"cut off", false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, t.TempDir(), nil)
			body, feed := io.Pipe()
			defer func() { _ = feed.Close() }()
			base := "https://" + b.reg.Addr().String()
			open, err := http.NewRequestWithContext(
				t.Context(), http.MethodPost, base+"/v2/kaas/slow/blobs/uploads/", nil,
			)
			if err != nil {
				t.Fatal(err)
			}
			open.SetBasicAuth(testUser, testPassword)
			resp, err := b.client.RoundTrip(open)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, resp.Header.Get("Location"), body)
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth(testUser, testPassword)
			req.Header.Set("Expect", "100-continue") // the body is taken only when the registry is reading it

			var wg sync.WaitGroup
			status := 0
			wg.Go(func() {
				if resp, err := b.client.RoundTrip(req); err == nil {
					status = resp.StatusCode
					_ = resp.Body.Close()
				}
			})
			if _, err := feed.Write([]byte("the first half")); err != nil { // the server has it
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- b.reg.Stop(ctx) }()
			if tc.finish {
				_, _ = feed.Write([]byte(", the second half"))
				_ = feed.Close()
			} else {
				cancel()
			}
			err = <-stopped
			_ = feed.Close()
			wg.Wait()
			if tc.finish && (err != nil || status != http.StatusAccepted) {
				t.Errorf("stop: %v, upload answered %d", err, status)
			}
			if !tc.finish && director.KindOf(err) != director.KindUnavailable {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	if e, ok := errors.AsType[*director.Error](err); !ok || e.Kind != director.KindInvalid || len(e.Fields) != 6 {
		t.Errorf("empty config: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := Config{
		Root: filepath.Join(file, "sub"), Addr: "127.0.0.1:0", TLS: &tls.Config{MinVersion: tls.VersionTLS12},
		User: "u", Password: "p", Logger: slog.New(slog.DiscardHandler),
	}
	if _, err := New(good); director.KindOf(err) != director.KindInternal || director.HintOf(err) == "" {
		t.Errorf("root below a file: %v", err)
	}

	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	good.Root, good.Addr = t.TempDir(), ln.Addr().String()
	reg, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := reg.Start(t.Context()); director.KindOf(err) != director.KindConflict {
		t.Errorf("address in use: %v", err)
	}
	if err := reg.Stop(t.Context()); err != nil {
		t.Errorf("stop of what never started: %v", err)
	}
}

// skopeo is a client with another code base than ours: it copies an OCI layout in and back out.
func TestSkopeo(t *testing.T) {
	t.Parallel()
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	b := setup(t, t.TempDir(), nil)
	dir := t.TempDir()
	img, err := random.Image(4096, 2)
	if err != nil {
		t.Fatal(err)
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	src, err := layout.Write(filepath.Join(dir, "src"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.AppendImage(
		img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "x"}),
	); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"certs/ca.crt": b.tls.CA(),
		"auth.json":    `{"auths":{"` + b.reg.Addr().String() + `":{"auth":"ZGlyZWN0b3I6Y29ycmVjdCBob3JzZQ=="}}}`,
		"policy.json":  `{"default":[{"type":"insecureAcceptAnything"}]}`,
		"none.json":    `{"auths":{}}`,
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(
			t.Context(), skopeo, append([]string{"--policy", filepath.Join(dir, "policy.json")}, args...)...,
		)
		cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	certs, remoteRef := filepath.Join(dir, "certs"), "docker://"+b.reg.Addr().String()+"/kaas/sk:1"
	if out, err := run("copy", "--dest-cert-dir", certs, "--dest-authfile", filepath.Join(dir, "none.json"),
		"oci:"+filepath.Join(dir, "src")+":x", remoteRef); err == nil {
		t.Errorf("an anonymous push passes:\n%s", out)
	}
	if out, err := run("copy", "--dest-cert-dir", certs, "--dest-authfile", filepath.Join(dir, "auth.json"),
		"oci:"+filepath.Join(dir, "src")+":x", remoteRef); err != nil {
		t.Fatalf("push: %v\n%s", err, out)
	}
	if out, err := run("copy", "--src-cert-dir", certs, "--src-authfile", filepath.Join(dir, "none.json"),
		remoteRef, "oci:"+filepath.Join(dir, "dst")+":x"); err != nil {
		t.Errorf("anonymous pull: %v\n%s", err, out)
	}
}

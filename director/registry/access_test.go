package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pace"
)

// closed is setup with a registry that only the cluster u1 may read.
func closed(t *testing.T) *bundle {
	t.Helper()
	b := setup(t, t.TempDir(), nil)
	b.reg.cfg.Reader = func(_ context.Context, user string, password director.Secret, _ string) bool {
		return user == "u1" && password == "of u1"
	}
	return b
}

// Images, the version check and artifacts are for clusters with their password, and writing is not for them.
func TestReadingNeedsCredentials(t *testing.T) {
	t.Parallel()
	b := closed(t)
	img := b.pushTest(t, b.ref(t, "kaas/pause:1"))
	dir := filepath.Join(b.root, "artifacts", "d1")
	if err := errors.Join(
		os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "kubelet"), []byte("a kubelet"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	get := func(path, user, password string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+b.reg.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		resp, err := (&http.Client{Transport: b.client}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		return resp.StatusCode
	}
	for _, path := range []string{
		"/v2/", "/v2/kaas/pause/manifests/1", "/v2/kaas/pause/tags/list", "/v2/_catalog", ArtifactsPath + "d1/kubelet",
		"/", "//livez",
	} {
		for who, code := range map[[2]string]int{
			{}: http.StatusUnauthorized, {"u1", "of u2"}: http.StatusUnauthorized,
			{"u2", "of u1"}: http.StatusUnauthorized, {"u1", ""}: http.StatusUnauthorized,
		} {
			if got := get(path, who[0], who[1]); got != code {
				t.Errorf("%s as %q: %d, want %d", path, who, got, code)
			}
		}
	}
	for _, path := range []string{
		"/v2/", "/v2/kaas/pause/manifests/1", "/v2/kaas/pause/tags/list", ArtifactsPath + "d1/kubelet",
	} {
		if got := get(path, "u1", "of u1"); got != http.StatusOK {
			t.Errorf("%s as the cluster: %d", path, got)
		}
	}
	if got := get(LivePath, "", ""); got != http.StatusOK {
		t.Errorf("%s: %d, want 200 for anyone", LivePath, got)
	}
	cluster := b.as(t, &authn.Basic{Username: "u1", Password: "of u1"})
	if _, err := remote.Image(b.ref(t, "kaas/pause:1"), cluster...); err != nil {
		t.Errorf("pull as the cluster: %v", err)
	}
	if err := remote.Write(b.ref(t, "kaas/evil:1"), img, cluster...); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("push as the cluster: %v", err)
	}
}

// A client that people have pulls with the cluster's credentials, and not without.
func TestSkopeoPullsWithCredentials(t *testing.T) {
	t.Parallel()
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	b := closed(t)
	b.pushTest(t, b.ref(t, "kaas/pause:1"))
	certs := t.TempDir()
	if err := os.WriteFile(filepath.Join(certs, "ca.crt"), []byte(b.tls.CA()), 0o600); err != nil {
		t.Fatal(err)
	}
	pull := func(args ...string) error {
		args = append([]string{"--tmpdir", t.TempDir(), "copy", "--src-cert-dir", certs}, args...)
		args = append(
			args, "docker://"+b.reg.Addr().String()+"/kaas/pause:1", "dir:"+filepath.Join(t.TempDir(), "image"),
		)
		cmd := exec.CommandContext(t.Context(), skopeo, args...)
		cmd.Env = append(os.Environ(), "REGISTRY_AUTH_FILE="+filepath.Join(certs, "none.json"))
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	if pull("--src-no-creds") == nil || pull("--src-creds", "u1:wrong") == nil {
		t.Error("it was pulled without the right credentials")
	}
	if err := pull("--src-creds", "u1:of u1"); err != nil {
		t.Errorf("with the right credentials: %v", err)
	}
}

// One address cannot take all connections, and what ends makes room.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	b := closed(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(b.tls.CA()))
	dial := func() (net.Conn, error) {
		return (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(
			t.Context(), "tcp", b.reg.Addr().String(),
		)
	}
	var open []net.Conn
	for range maxPerAddress {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if c, err := dial(); err == nil {
		_ = c.Close()
		t.Errorf("connection %d of one address was served", maxPerAddress+1)
	}
	for _, c := range open {
		_ = c.Close()
	}
	for {
		c, err := dial()
		if err == nil {
			_ = c.Close()
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("no room after all connections ended")
		}
	}
}

// A body that comes too slowly ends its connection, whoever sends it.
func TestSlowBodiesEndTheirConnection(t *testing.T) {
	t.Parallel()
	b := closed(t)
	b.reg.pace = pace.Limits{Quiet: 200 * time.Millisecond, Rate: 10000}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(b.tls.CA()))
	for who, header := range map[string]string{
		"nobody": "",
		"the director": "Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(b.reg.cfg.User+":"+b.reg.cfg.Password.Reveal())) + "\r\n",
	} {
		c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(
			t.Context(), "tcp", b.reg.Addr().String(),
		)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, "POST /v2/kaas/x/blobs/uploads/?digest=sha256:"+strings.Repeat("0", 64)+
			" HTTP/1.1\r\nHost: x\r\n"+header+
			"Content-Type: application/octet-stream\r\nContent-Length: 100000\r\n\r\nsome")
		if err == nil {
			err = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection of %s stays open", who)
		}
		_ = c.Close()
	}
}

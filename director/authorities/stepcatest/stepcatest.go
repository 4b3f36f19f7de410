// Package stepcatest starts a real step-ca for tests.
package stepcatest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/director-kaas/kaas/test/loopback"
	"github.com/director-kaas/kaas/test/tree"
)

const (
	// Password opens the keys of all provisioners.
	Password = "a-password-of-the-test"
	// Template is what makes authorities of clusters, as docs/use/outer-ca.md gives it to the CA's administrator.
	Template = `{
	"subject": {{ toJson .Subject }},
	"keyUsage": ["digitalSignature", "certSign", "crlSign"],
	"basicConstraints": {"isCA": true, "maxPathLen": 0}
}`

	patience   = time.Minute
	iterations = 1000 // of the password: few, because the tests have no secrets
)

// Provisioner is one that the server has.
type Provisioner struct {
	Name     string
	Template string // none for certificates of servers
	Longest  string // that a certificate may live, such as 87600h; empty for step-ca's own, a day
	Type     string // JWK if empty
	KeyAway  bool   // whether the server does not keep the key
	Life     string // of certificates of a provisioner of the type ACME, such as 10m; empty for step-ca's own, a day
}

// Server is a running step-ca.
type Server struct {
	URL         string // https://127.0.0.1:PORT
	Fingerprint string // of the root certificate
	Root        string // PEM

	cmd    *exec.Cmd
	said   *output
	flags  []string
	binary string
	config string
}

// Options are what a test changes about the server.
type Options struct {
	PathLength   int                     // of the intermediate that signs
	Change       func(*x509.Certificate) // of the intermediate
	Provisioners []Provisioner
	Flags        []string // of the program
	Away         bool     // the server does not run yet
}

// output is what a server has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the output.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns all of it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Start starts a server, and ends it with the test. The first one builds the binary, which takes minutes.
func Start(t *testing.T, o Options) *Server {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tree.Path(t, "test/stepca/build.sh")).Output()
	if err != nil {
		t.Fatalf("step-ca cannot be built: %v", err)
	}
	s := &Server{binary: strings.TrimSpace(string(out)), said: &output{}, flags: o.Flags}
	s.configure(t, o)
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			said := s.said.String()
			t.Logf("step-ca said:\n%s", said[max(0, len(said)-4000):])
		}
	})
	if !o.Away {
		s.Run(t)
	}
	return s
}

// Said counts how often the text is in what the server has written: a line for each request, with its path.
func (s *Server) Said(text string) int { return strings.Count(s.said.String(), text) }

// Run starts the server again after Stop, and waits until it answers.
func (s *Server) Run(t *testing.T) {
	t.Helper()
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), s.binary, append(s.flags, s.config)...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = []string{"HOME=" + filepath.Dir(s.config)}, s.said, s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(s.URL, "https://"))
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("step-ca does not start: %v\n%s", err, s.said.String())
		case <-tick.C:
		}
	}
}

// Stop ends the server.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

func (s *Server) configure(t *testing.T, o Options) {
	t.Helper()
	dir := t.TempDir()
	root, rootKey := certificate(t, "root", nil, nil, func(c *x509.Certificate) { c.MaxPathLen = -1 })
	inter, interKey := certificate(t, "intermediate", root, rootKey, func(c *x509.Certificate) {
		c.MaxPathLen, c.MaxPathLenZero = o.PathLength, o.PathLength == 0
		if o.Change != nil {
			o.Change(c)
		}
	})
	sum := sha256.Sum256(root.Raw)
	s.Fingerprint, s.Root = hex.EncodeToString(sum[:]), string(block("CERTIFICATE", root.Raw))
	keyDER, err := x509.MarshalECPrivateKey(interKey)
	if err != nil {
		t.Fatal(err)
	}
	address := loopback.FreeFor(t).String()
	s.URL, s.config = "https://"+address, filepath.Join(dir, "ca.json")
	var provisioners []any
	for _, p := range o.Provisioners {
		provisioners = append(provisioners, provisioner(t, p))
	}
	text, err := json.Marshal(map[string]any{
		"db":   map[string]string{"type": "bbolt", "dataSource": filepath.Join(dir, "db")},
		"root": filepath.Join(dir, "root.crt"), "crt": filepath.Join(dir, "ca.crt"),
		"key":     filepath.Join(dir, "ca.key"),
		"address": address, "dnsNames": []string{"127.0.0.1"}, "logger": map[string]string{"format": "text"},
		"authority": map[string]any{"provisioners": provisioners},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"root.crt": block("CERTIFICATE", root.Raw), "ca.crt": block("CERTIFICATE", inter.Raw),
		"ca.key": block("EC PRIVATE KEY", keyDER), "ca.json": text,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func provisioner(t *testing.T, p Provisioner) map[string]any {
	t.Helper()
	if p.Type != "" {
		out := map[string]any{"type": p.Type, "name": p.Name}
		if p.Life != "" {
			out["claims"] = map[string]string{"minTLSCertDuration": p.Life, "defaultTLSCertDuration": p.Life}
		}
		return out
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private := jose.JSONWebKey{Key: key, KeyID: p.Name, Algorithm: string(jose.ES256), Use: "sig"}
	plain, err := private.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	encrypter, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{
		Algorithm: jose.PBES2_HS256_A128KW, Key: []byte(Password), PBES2Count: iterations,
		PBES2Salt: []byte("salt-of-tests"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := encrypter.Encrypt(plain)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := sealed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{"type": "JWK", "name": p.Name, "key": private.Public()}
	if !p.KeyAway {
		out["encryptedKey"] = encrypted
	}
	if p.Longest != "" {
		out["claims"] = map[string]string{"maxTLSCertDuration": p.Longest}
	}
	if p.Template != "" {
		out["options"] = map[string]any{"x509": map[string]string{"template": p.Template}}
	}
	return out
}

// certificate is that of an authority, signed by the parent or by itself.
func certificate(
	t *testing.T, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, change func(*x509.Certificate),
) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test " + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, IsCA: true, BasicConstraintsValid: true,
	}
	change(c)
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

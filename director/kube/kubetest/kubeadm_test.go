package kubetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/pki"
)

// kubeadm must take what director/pki makes: it signs every certificate of a master with the authorities that it finds,
// and makes none of its own.
func TestKubeadmTakesThePKI(t *testing.T) {
	t.Parallel()
	bin, err := find("kubeadm")
	if err != nil {
		if os.Getenv(EnvRequire) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	p, err := pki.NewCluster("kubetest")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	place := map[string]string{
		"ca.crt": "pki_ca_crt", "ca.key": "pki_ca_key",
		"front-proxy-ca.crt": "pki_front_proxy_ca_crt", "front-proxy-ca.key": "pki_front_proxy_ca_key",
		"etcd/ca.crt": "pki_etcd_ca_crt", "etcd/ca.key": "pki_etcd_ca_key",
		"sa.key": "pki_sa_key", "sa.pub": "pki_sa_pub",
	}
	if err := os.Mkdir(filepath.Join(dir, "etcd"), 0o700); err != nil {
		t.Fatal(err)
	}
	vars := p.Vars()
	for file, name := range place {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(vars[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version, err := exec.CommandContext(t.Context(), bin["kubeadm"], "version", "--output=short").Output()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kubeadm.yaml")
	text := `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.88.0.10}
nodeRegistration: {name: m1}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + strings.TrimSpace(string(version)) + `
certificatesDir: ` + dir + `
encryptionAlgorithm: ECDSA-P256
apiServer: {certSANs: [api.green.example]}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), bin["kubeadm"], append(args, "--config="+config)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubeadm %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	out := run("init", "phase", "certs", "all")
	for _, ca := range []string{"ca", "front-proxy-ca", "etcd/ca"} {
		if !strings.Contains(out, "Using existing "+ca+" certificate authority") {
			t.Errorf("%s is not used:\n%s", ca, out)
		}
	}
	if !strings.Contains(out, `Using the existing "sa" key`) {
		t.Errorf("sa is not used:\n%s", out)
	}
	run("init", "phase", "certs", "apiserver") // a second time over its own: checks the chain
	for file, name := range place {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !bytes.Equal(b, []byte(vars[name])) {
			t.Errorf("kubeadm changed %s (%v)", file, err)
		}
	}
}

// A join configuration with our token and pin is valid, and one with a token of another form is not. Whether the pin is
// the right one, director/pki compares with openssl.
func TestKubeadmTakesTokenAndPin(t *testing.T) {
	t.Parallel()
	bin, err := find("kubeadm")
	if err != nil {
		if os.Getenv(EnvRequire) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ca, err := pki.NewCA("kubetest")
	if err != nil {
		t.Fatal(err)
	}
	pin, err := pki.PublicKeyPin(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	token, err := pki.NewBootstrapToken()
	if err != nil {
		t.Fatal(err)
	}
	validate := func(token, pin string) error {
		config := filepath.Join(t.TempDir(), "join.yaml")
		text := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {name: " +
			"w1}\ndiscovery:\n  bootstrapToken: " +
			"{apiServerEndpoint: '10.88.0.10:6443', token: " + token + ", caCertHashes: ['" + pin + "']}\n"
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), bin["kubeadm"], "config", "validate", "--config="+config)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
		return cmd.Run()
	}
	if err := validate(token.Reveal(), pin); err != nil {
		t.Errorf("kubeadm refuses them: %v", err)
	}
	if err := validate("ABCDEF.0123456789abcdef", pin); err == nil {
		t.Error("kubeadm takes any token, so this test proves nothing")
	}
}

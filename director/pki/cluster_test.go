package pki

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"

	"github.com/director-kaas/kaas/director"
)

// xorSealer is enough of a seal to see that nothing is stored plainly.
type xorSealer struct{}

func (xorSealer) Seal(_, _ string, p []byte) ([]byte, error) {
	out := slices.Clone(p)
	for i := range out {
		out[i] ^= 0x5a
	}
	return out, nil
}

func (s xorSealer) Unseal(owner, name string, p []byte) ([]byte, error) {
	return s.Seal(owner, name, p)
}

func TestClusterPKI(t *testing.T) {
	t.Parallel()
	p, err := NewCluster("green")
	if err != nil {
		t.Fatal(err)
	}
	for name, ca := range map[string]Pair{"ca": p.CA, "front-proxy": p.FrontProxyCA, "etcd": p.EtcdCA} {
		if err := ValidateCA(ca, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if key, err := base64.StdEncoding.DecodeString(p.EncryptionKey.Reveal()); err != nil || len(key) != 32 {
		t.Errorf("encryption key of %d bytes, %v", len(key), err)
	}

	vars := p.Vars()
	for name, v := range vars {
		if v == "" {
			t.Errorf("variable %s is empty", name)
		}
		// These are the functions that kubeadm and the API server read the files with.
		switch {
		case strings.HasSuffix(name, "_key") && strings.HasPrefix(name, "pki_"):
			if _, err := keyutil.ParsePrivateKeyPEM([]byte(v)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case name == "pki_sa_pub":
			if _, err := keyutil.ParsePublicKeysPEM([]byte(v)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	t.Run("sealed and back", func(t *testing.T) {
		t.Parallel()
		sealed, err := p.Seal(xorSealer{}, "u1", "pki")
		if err != nil {
			t.Fatal(err)
		}
		back, err := UnsealCluster(xorSealer{}, "u1", "pki", sealed)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(vars, back.Vars()); diff != "" {
			t.Error(diff)
		}
		if _, err := UnsealCluster(
			xorSealer{}, "u1", "pki", []byte("no cluster"),
		); director.KindOf(err) != director.KindInternal {
			t.Errorf("damaged: %v", err)
		}
	})
	t.Run("does not print", func(t *testing.T) {
		t.Parallel()
		j, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		text := string(j) + fmt.Sprintf("%v %+v %#v", p, p, p)
		if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, p.EncryptionKey.Reveal()) {
			t.Error("a key is printed")
		}
	})
}

func TestClusterWithGivenCA(t *testing.T) {
	t.Parallel()
	ca := mustCA(t, "company")
	p, err := NewClusterWithCA("green", ca)
	if err != nil {
		t.Fatal(err)
	}
	if p.CA != ca {
		t.Error("the given authority is not used")
	}
	_, err = NewClusterWithCA("green", Pair{Cert: ca.Cert})
	if e, ok := errors.AsType[*director.Error](err); !ok || len(e.Fields) != 1 || e.Fields[0].Path != "key" {
		t.Errorf("no key: %v", err)
	}
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	ca := mustCA(t, "authority")
	client, err := ClientCert(ca, "kaas-admin", []string{"system:masters"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	y, err := Kubeconfig("green", "https://10.88.0.10:6443", ca.Cert, client)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.Load([]byte(y.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.CurrentContext != "kaas-admin@green" {
		t.Errorf("context %q", cfg.CurrentContext)
	}
	rest, err := clientcmd.RESTConfigFromKubeConfig([]byte(y.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if rest.Host != "https://10.88.0.10:6443" || string(rest.CAData) != ca.Cert ||
		string(rest.CertData) != client.Cert || string(rest.KeyData) != client.Key.Reveal() {
		t.Error("the kubeconfig does not hold what it was given")
	}
	if _, err := Kubeconfig("green", "", ca.Cert, client); director.KindOf(err) != director.KindInvalid {
		t.Errorf("no server: %v", err)
	}
}

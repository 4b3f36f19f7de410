package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

// outer is an authority of the outside with what a test changes about it.
func outer(t *testing.T, change func(*x509.Certificate)) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "corp"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLen: 1,
	}
	if change != nil {
		change(c)
	}
	pair, err := sign("test", c, c, key, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestCheckIssuer(t *testing.T) {
	t.Parallel()
	good := outer(t, nil)
	small, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // too short is what is refused
	if err != nil {
		t.Fatal(err)
	}
	_, odd, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := func(change func(*x509.Certificate)) Pair { return outer(t, change) }
	for name, tt := range map[string]struct {
		ca          Pair
		field, says string
	}{
		"good":           {ca: good},
		"no path length": {ca: made(func(c *x509.Certificate) { c.MaxPathLen = -1 })},
		"both usages": {ca: made(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		})},
		"names that clusters fit into": {ca: made(func(c *x509.Certificate) {
			c.PermittedDNSDomainsCritical, c.ExcludedDNSDomains = true, []string{"example.org"}
		})},
		"no authority": {
			made(func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = false, -1 }),
			FieldCertificate, "not the certificate of an authority",
		},
		"no certSign": {
			made(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }),
			FieldCertificate, "may not sign certificates",
		},
		"path length 0": {
			made(func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }),
			FieldCertificate, "path length 0",
		},
		"too short a life": {
			made(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(24 * time.Hour) }),
			FieldCertificate, "at least 8760h0m0s are wanted",
		},
		"ended": {
			made(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
			FieldCertificate, "ended at",
		},
		"not begun": {
			made(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }),
			FieldCertificate, "is valid only from",
		},
		"permitted names": {
			made(func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.org"} }),
			FieldCertificate, "name constraints",
		},
		"excluded names": {
			made(func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"local"} }),
			FieldCertificate, "name constraints",
		},
		"servers alone": {made(func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), FieldCertificate, "extended key usage"},
		"critical": {made(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{
				Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true,
				Value: []byte{5, 0},
			}}
		}), FieldCertificate, "critical extension"},
		"short RSA key":  {signedFor(t, &small.PublicKey), FieldCertificate, "too short"},
		"Ed25519":        {signedFor(t, odd.Public()), FieldCertificate, "neither RSA nor ECDSA"},
		"another's key":  {Pair{Cert: good.Cert, Key: outer(t, nil).Key}, FieldKey, "does not belong"},
		"no key":         {Pair{Cert: good.Cert, Key: "nothing"}, FieldKey, "not an unencrypted private key"},
		"no certificate": {Pair{Cert: "nothing"}, FieldCertificate, "something else than certificates"},
		"a key there":    {Pair{Cert: good.Cert + good.Key.Reveal()}, FieldCertificate, "something else than"},
		"strangers":      {Pair{Cert: good.Cert + outer(t, nil).Cert}, FieldCertificate, "not signed by the next"},
	} {
		fields := CheckIssuer(tt.ca, UsualNeed(365*24*time.Hour), time.Now())
		switch {
		case tt.says == "" && len(fields) > 0:
			t.Errorf("%s: %v", name, fields)
		case tt.says != "" && (len(fields) != 1 || fields[0].Path != tt.field || fields[0].Hint == "" ||
			!strings.Contains(fields[0].Msg, tt.says)):
			t.Errorf("%s: %+v", name, fields)
		}
	}
}

// signedFor is an authority with the public key, and without its private one.
func signedFor(t *testing.T, public any) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: encode(pemCertificate, der)}
}

func TestIssueCA(t *testing.T) {
	t.Parallel()
	root := outer(t, nil)
	pair, err := IssueCA(root, "demo kubernetes", 100*365*24*time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCert(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	above, err := ParseCert(root.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if !c.IsCA || !c.MaxPathLenZero || c.MaxPathLen != 0 || !c.NotAfter.Equal(above.NotAfter) ||
		c.Subject.CommonName != "demo kubernetes" || c.CheckSignatureFrom(above) != nil {
		t.Errorf("issued %+v", c)
	}
	chain := Pair{Cert: pair.Cert + root.Cert, Key: pair.Key}
	need := UsualNeed(time.Hour)
	if fields := CheckCluster(chain, need, time.Now()); len(fields) > 0 {
		t.Errorf("what was issued is refused: %v", fields)
	}
	if alone, err := Alone(chain); err != nil || alone.Cert != pair.Cert {
		t.Errorf("alone it is %q: %v", alone.Cert, err)
	}

	// An authority below one whose path length is 0 is too deep, even if that one has signed it.
	flat := outer(t, func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true })
	deep, err := IssueCA(flat, "deep", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	deep.Cert += flat.Cert
	need.Left = time.Minute
	fields := CheckCluster(deep, need, time.Now())
	if len(fields) != 1 || !strings.Contains(fields[0].Msg, "path length") {
		t.Errorf("too deep: %v", fields)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	text, key, err := Request("corp intermediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pem.Decode([]byte(text))
	r, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil || r.CheckSignature() != nil || r.Subject.CommonName != "corp intermediate" {
		t.Fatalf("requested %+v: %v", r, err)
	}
	signer, err := parseKey(key)
	if err != nil || !samePublic(signer.Public(), r.PublicKey) {
		t.Errorf("the key is not that of the request: %v", err)
	}
	if strings.Contains(text, key.Reveal()) {
		t.Error("the request holds the key")
	}

	// What is asked for is what a certificate with these extensions says.
	root := outer(t, nil)
	parent, _ := ParseCert(root.Cert)
	parentKey, _ := parseKey(root.Key)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), ExtraExtensions: r.Extensions,
	}, parent, r.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil || !c.IsCA || c.MaxPathLen != 1 || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("issued %+v: %v", c, err)
	}
	var none director.Secret
	if fields := keyProblems(c, none); len(fields) != 1 {
		t.Errorf("without a key: %v", fields)
	}
}

// TestTrusted has OpenSSL, whose form it is, accept a certificate below an authority that another one signed.
func TestTrusted(t *testing.T) {
	t.Parallel()
	root := outer(t, nil)
	own, err := NewCA("own")
	if err != nil {
		t.Fatal(err)
	}
	if text := trusted(own.Cert); text != own.Cert {
		t.Errorf("an authority that signs itself becomes %s", text)
	}
	issued, err := IssueCA(root, "demo", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ServerCert(issued, []string{"api"}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		authorities string
		ok          bool
	}{
		"plain": {issued.Cert, false}, "trusted": {trusted(issued.Cert), true},
		"both, while one follows the other": {trusted(own.Cert + issued.Cert), true},
		"another":                           {trusted(own.Cert), false},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"ca": tt.authorities, "leaf": leaf.Cert} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-purpose", "sslserver", "-no-CApath",
			"-no-CAstore", "-CAfile", filepath.Join(dir, "ca"), filepath.Join(dir, "leaf")).CombinedOutput()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func mustCA(t *testing.T, name string) Pair {
	t.Helper()
	ca, err := NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// rawCA signs whatever template it is given, for authorities that NewCA would not make.
func rawCA(t *testing.T, bits int, edit func(*x509.Certificate)) Pair {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "given"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	edit(c)
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: encode(pemCertificate, der),
		Key:  director.Secret(encode(pemRSAKey, x509.MarshalPKCS1PrivateKey(key))),
	}
}

func TestValidateCA(t *testing.T) {
	t.Parallel()
	good, other := mustCA(t, "good"), mustCA(t, "other")
	leaf, err := ClientCert(good, "someone", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, tc := range []struct {
		name string
		ca   Pair
		now  time.Time
		want []string // path: message
	}{
		{"own", good, now, nil},
		{"given with an RSA key", rawCA(t, 2048, func(*x509.Certificate) {}), now, nil},
		{
			"empty",
			Pair{},
			now,
			[]string{"cert: is not a PEM certificate", "key: is not an unencrypted PEM private key"},
		},
		{
			"key of another",
			Pair{Cert: good.Cert, Key: other.Key},
			now,
			[]string{"key: does not belong to the certificate"},
		},
		{"a client certificate", leaf, now, []string{
			"cert: is not the certificate of an authority", "cert: may not sign certificates",
		}},
		{"expired", good, now.Add(AuthorityLife + time.Minute), []string{"cert: expired at "}},
		{"not yet valid", good, now.Add(-2 * time.Hour), []string{"cert: is valid only from "}},
		{"weak and without the right to sign", rawCA(t, 1024, func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageCRLSign
		}), now, []string{
			"cert: may not sign certificates", "cert: has an RSA key that is too short",
		}},
		{"damaged key", Pair{
			Cert: good.Cert, Key: "-----BEGIN EC PRIVATE KEY-----\nYWJj\n-----END EC PRIVATE KEY-----\n",
		}, now, []string{
			"key: is not an unencrypted PEM private key",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := ValidateCA(tc.ca, tc.now)
			var got []string
			if e, ok := errors.AsType[*director.Error](err); ok {
				if e.Kind != director.KindInvalid {
					t.Errorf("kind %s, want invalid", e.Kind)
				}
				for _, f := range e.Fields {
					got = append(got, f.Path+": "+f.Msg)
				}
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b string) bool {
				return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) // messages that end in a time
			})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestIssuedCertificatesVerify(t *testing.T) {
	t.Parallel()
	ca := mustCA(t, "authority")
	root, err := ParseCert(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)

	client, err := ClientCert(ca, "kaas-admin", []string{"system:masters"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCert(client.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{
		Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Error(err)
	}
	if c.Subject.CommonName != "kaas-admin" || !cmp.Equal(c.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("subject %s", c.Subject)
	}

	server, err := ServerCert(
		ca, []string{"director.example"}, []netip.Addr{netip.MustParseAddr("::ffff:10.1.2.3")}, 2*AuthorityLife,
	)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseCert(server.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"director.example", "10.1.2.3"} {
		if _, err := s.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if !s.NotAfter.Equal(root.NotAfter) {
		t.Errorf("lives until %s, longer than its authority (%s)", s.NotAfter, root.NotAfter)
	}
	if _, err := s.Verify(x509.VerifyOptions{
		Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err == nil {
		t.Error("a server certificate passes for a client's")
	}
	if _, err := ServerCert(ca, nil, nil, time.Hour); director.KindOf(err) != director.KindInvalid {
		t.Errorf("no name: %v", err)
	}
	if _, err := ClientCert(
		Pair{Cert: ca.Cert, Key: client.Key}, "x", nil, time.Hour,
	); director.KindOf(err) != director.KindInvalid {
		t.Errorf("wrong key of the authority: %v", err)
	}
}

func TestExpiryIsTheEarliest(t *testing.T) {
	t.Parallel()
	ca := mustCA(t, "authority")
	leaf, err := ClientCert(ca, "x", nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCert(leaf.Cert)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Expiry(ca.Cert + ca.Key.Reveal() + leaf.Cert)
	if err != nil || !got.Equal(c.NotAfter) {
		t.Errorf("got %s, %v; want %s", got, err, c.NotAfter)
	}
	if _, err := Expiry(ca.Key.Reveal()); director.KindOf(err) != director.KindInvalid {
		t.Errorf("no certificate: %v", err)
	}
}

// The pin is the one that kubeadm's documentation computes with openssl.
func TestPublicKeyPinIsOpenSSLs(t *testing.T) {
	t.Parallel()
	ca := mustCA(t, "authority")
	pin, err := PublicKeyPin(ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(pin) {
		t.Errorf("pin %q", pin)
	}
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		"openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -hex -r")
	cmd.Stdin = strings.NewReader(ca.Cert)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "sha256:" + strings.Fields(string(out))[0]; pin != want {
		t.Errorf("pin %s, openssl says %s", pin, want)
	}
}

func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`) // of kubeadm's own validation
	seen := map[director.Secret]bool{}
	for range 100 {
		tok, err := NewBootstrapToken()
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(tok.Reveal()) || seen[tok] {
			t.Fatal("a token has the wrong form or came twice")
		}
		seen[tok] = true
	}
}

package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

// The certificate of the configuration is shown under its names. Programs that come by the address, as nodes do, still
// get the director's own.
func TestCertificateOfTheConfiguration(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	dir := t.TempDir()
	c.CertificateFile, c.CertificateKeyFile = filepath.Join(dir, "c.pem"), filepath.Join(dir, "c.key")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "given"}, DNSNames: []string{"console.example.org"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		c.CertificateFile:    {Type: "CERTIFICATE", Bytes: der},
		c.CertificateKeyFile: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"console.example.org": "given", "": "director",
		"other.example.org": "director",
	} {
		conn, err := tls.Dial("tcp", d.Addr().String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; (got == "given") != (want == "given") {
			t.Errorf("under the name %q the certificate of %q is shown", name, got)
		}
		_ = conn.Close()
	}
	own, err := d.services.inventory.Own(t.Context())
	if err != nil || len(own) != 3 || own[2].Place != c.CertificateFile ||
		!strings.Contains(own[2].PEM, "CERTIFICATE") ||
		strings.Contains(own[2].PEM, "PRIVATE") {
		t.Errorf("the inventory has %+v of the director: %v", own, err)
	}
	if err := os.WriteFile(c.CertificateKeyFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = loadCertificate(c.CertificateFile, c.CertificateKeyFile)
	if director.KindOf(err) != director.KindInvalid ||
		strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a key that is none: %v", err)
	}
	c.CertificateKeyFile = ""
	if fields := director.FieldsOf(c.Validate()); len(fields) != 1 || fields[0].Path != "certificateFile" {
		t.Errorf("without a key: %v", fields)
	}
}

package authorities

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

// root signs requests, as the authority of a company does.
type root struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newRoot(t *testing.T) root {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := root{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corp root"}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(30 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign,
	}, key: key}
	der, err := x509.CreateCertificate(rand.Reader, r.cert, r.cert, key.Public(), key)
	if err == nil {
		r.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r root) text() string { return certificateText(r.cert.Raw) }

func certificateText(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// sign issues what the request asks for, with what a test changes about it.
func (r root) sign(t *testing.T, request string, change func(*x509.Certificate)) string {
	t.Helper()
	b, _ := pem.Decode([]byte(request))
	asked, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil || asked.CheckSignature() != nil {
		t.Fatalf("the request cannot be read: %v", err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: asked.Subject,
		NotAfter: time.Now().Add(20 * 365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true, MaxPathLen: 1,
		KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, r.cert, asked.PublicKey, r.key)
	if err != nil {
		t.Fatal(err)
	}
	return certificateText(der)
}

func TestRequestAndImport(t *testing.T) {
	t.Parallel()
	s, w := newService(t, map[string]model.CertificateAuthority{"corp": {Type: model.AuthorityCSR, Subject: "KaaS"}},
		nil)
	if _, err := s.Import(t.Context(), "corp", "x"); director.KindOf(err) != director.KindConflict {
		t.Errorf("an import before a request: %v", err)
	}
	if _, err := s.Issue(t.Context(), "corp", "demo", want()); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "directorctl ca csr corp") {
		t.Errorf("before its certificate it says %v (%s)", err, director.HintOf(err))
	}
	request, err := s.Request(t.Context(), "corp", false)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Request(t.Context(), "corp", true); err != nil || again != request {
		t.Errorf("a second request is another one: %v", err)
	}
	for owner, sealed := range w.secrets {
		if strings.Contains(string(sealed), "PRIVATE") {
			t.Errorf("%s holds a key in the clear", owner)
		}
	}
	corp := newRoot(t)
	stranger, _, err := pki.Request("stranger", 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ certificate, says string }{
		"for another key": {corp.sign(t, stranger, nil), "another key"},
		"nothing":         {"nothing", "something else than certificates"},
		"no authority": {
			corp.sign(t, request, func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = false, -1 }),
			"not the certificate of an authority",
		},
		"path length 0": {corp.sign(t, request,
			func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }), "path length 0"},
		"no certSign": {
			corp.sign(t, request, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }),
			"may not sign",
		},
		"too short": {corp.sign(t, request,
			func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) }), "are wanted"},
		"name constraints": {corp.sign(t, request,
			func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"corp.org"} }), "name constraints"},
		"another's chain": {corp.sign(t, request, nil) + newRoot(t).text(), "not signed by the next"},
	} {
		_, err := s.Import(t.Context(), "corp", tt.certificate)
		fields := director.FieldsOf(err)
		if len(fields) != 1 || !strings.Contains(fields[0].Msg, tt.says) || fields[0].Path != "certificate" ||
			fields[0].Hint == "" {
			t.Errorf("%s: %v %+v", name, err, fields)
		}
	}
	v, err := s.Import(t.Context(), "corp", "for you\n"+corp.sign(t, request, nil)+corp.text())
	if err != nil || v.Waiting || v.Problem != "" || v.Subject != "CN=KaaS" || v.Ends.IsZero() {
		t.Fatalf("imported %+v: %v", v, err)
	}
	issued(t, s, corp)
	chains, err := s.Chains(t.Context())
	if err != nil || len(chains) != 1 || chains[0].Name != "corp" || chains[0].Err != nil ||
		strings.Count(chains[0].PEM, "BEGIN CERTIFICATE") != 2 || strings.Contains(chains[0].PEM, "PRIVATE") {
		t.Errorf("the chains are %+v: %v", chains, err)
	}
	renew(t, s, corp, request)
}

// issued has an authority issued, and looks whether the root of the company accepts it.
func issued(t *testing.T, s *Service, corp root) *x509.Certificate {
	t.Helper()
	pair, err := s.Issue(t.Context(), "corp", "demo", want())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.ParseCert(pair.Cert)
	if err != nil || strings.Count(pair.Cert, "BEGIN") != 1 || pki.ValidateCA(pair, time.Now()) != nil {
		t.Fatalf("issued %s: %v", pair.Cert, err)
	}
	if c.Issuer.CommonName == corp.cert.Subject.CommonName {
		t.Error("the root itself has signed it")
	}
	return c
}

// renew brings a longer certificate of the same key, and then one of another key.
func renew(t *testing.T, s *Service, corp root, request string) {
	t.Helper()
	longer := corp.sign(t, request,
		func(c *x509.Certificate) { c.NotAfter = time.Now().Add(25 * 365 * 24 * time.Hour) })
	v, err := s.Import(t.Context(), "corp", longer)
	if err != nil || time.Until(v.Ends) < 24*365*24*time.Hour {
		t.Fatalf("renewed %+v: %v", v, err)
	}
	before := issued(t, s, corp)
	if again, err := s.Request(t.Context(), "corp", false); err != nil || again != request {
		t.Errorf("the request of the key in use is another one: %v", err)
	}
	fresh, err := s.Request(t.Context(), "corp", true)
	if err != nil || fresh == request {
		t.Fatalf("there is no other key: %v", err)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || !list[0].Waiting || list[0].Problem != "" {
		t.Errorf("while another certificate is waited for: %+v, %v", list, err)
	}
	if c := issued(t, s, corp); string(c.AuthorityKeyId) != string(before.AuthorityKeyId) {
		t.Error("the new key signs before its certificate came")
	}
	if _, err := s.Import(t.Context(), "corp", corp.sign(t, fresh, nil)); err != nil {
		t.Fatal(err)
	}
	if c := issued(t, s, corp); string(c.AuthorityKeyId) == string(before.AuthorityKeyId) {
		t.Error("the former key signs after the other certificate came")
	}
}

func TestUploaded(t *testing.T) {
	t.Parallel()
	corp := newRoot(t)
	request, key, err := pki.Request("intermediate", 1)
	if err != nil {
		t.Fatal(err)
	}
	good := corp.sign(t, request, nil)
	_, other, err := pki.Request("other", 1)
	if err != nil {
		t.Fatal(err)
	}
	s, w := newService(t, map[string]model.CertificateAuthority{
		"corp": {Type: model.AuthorityUploaded, Certificate: good + corp.text(), Credentials: "key"},
	}, map[string]director.Secret{"key": key})
	issued(t, s, corp)
	if found, err := s.Test(t.Context(), "corp"); err != nil || len(found) != 2 || found[1].Err != nil {
		t.Errorf("a test finds %+v: %v", found, err)
	}
	if fields := s.Check(w.docs["corp"]); len(fields) > 0 {
		t.Errorf("the document is refused: %v", fields)
	}
	short := w.docs["corp"]
	short.Certificate = corp.sign(t, request, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Hour) })
	if fields := s.Check(short); len(fields) != 1 || fields[0].Path != "spec.certificate" {
		t.Errorf("a certificate that ends soon: %v", fields)
	}
	renewed := w.docs["corp"]
	renewed.Certificate = corp.sign(t, request, nil)
	if fields := s.Try(t.Context(), "corp", renewed); len(fields) > 0 {
		t.Errorf("a trial of a renewed certificate finds %v", fields)
	}
	w.accounts["key"] = other
	for name, fields := range map[string][]director.Field{
		"corp": s.Try(t.Context(), "corp", renewed), "new": s.Try(t.Context(), "new", w.docs["corp"]),
	} {
		if len(fields) != 1 || fields[0].Path != "spec.credentials" ||
			!strings.Contains(fields[0].Msg, "does not belong") {
			t.Errorf("a trial of %s with another key finds %+v", name, fields)
		}
	}
	if fields := s.Try(t.Context(), "later", model.CertificateAuthority{
		Type: model.AuthorityUploaded, Certificate: good, Credentials: "later",
	}); len(fields) > 0 {
		t.Errorf("a trial without credentials finds %v", fields)
	}
	_, err = s.Issue(t.Context(), "corp", "demo", want())
	fields := director.FieldsOf(err)
	if len(fields) != 1 || !strings.HasSuffix(fields[0].Path, "spec.credentials") ||
		!strings.Contains(fields[0].Msg, "does not belong") || strings.Contains(err.Error(), other.Reveal()) {
		t.Errorf("another key: %v %+v", err, fields)
	}
	delete(w.accounts, "key")
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].Problem == "" || list[0].Hint == "" {
		t.Errorf("without a key: %+v, %v", list, err)
	}
}

func TestSelf(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, map[string]model.CertificateAuthority{"own": {
		Type: model.AuthoritySelf, Life: model.Duration(3 * 365 * 24 * time.Hour),
	}}, nil)
	pair, err := s.Issue(t.Context(), "own", "demo", want())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.ParseCert(pair.Cert)
	if err != nil || c.CheckSignatureFrom(c) != nil || time.Until(c.NotAfter) > 3*365*24*time.Hour {
		t.Errorf("issued %+v: %v", c, err)
	}
	if _, err := s.Request(t.Context(), "own", false); director.KindOf(err) != director.KindConflict {
		t.Errorf("a request of one that signs itself: %v", err)
	}
	if _, err := s.Issue(t.Context(), "none", "demo", want()); director.KindOf(err) != director.KindNotFound {
		t.Errorf("an authority that there is not: %v", err)
	}
}

package authorities

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/authorities/stepcatest"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

func stepDocument(s *stepcatest.Server, provisioner string) model.CertificateAuthority {
	return model.CertificateAuthority{Type: model.AuthorityStepCA, StepCA: &model.StepCA{
		URL: s.URL, RootFingerprint: s.Fingerprint, Provisioner: provisioner, Credentials: "step",
	}}
}

// want is what a cluster needs.
func want() pki.Need {
	n := pki.UsualNeed(0)
	n.Names = append(n.Names, "demo-master-1")
	n.IPs = append(n.IPs, netip.MustParseAddr("10.88.0.10"))
	return n
}

func TestStepCAIssues(t *testing.T) {
	t.Parallel()
	server := stepcatest.Start(t, stepcatest.Options{PathLength: 1, Provisioners: []stepcatest.Provisioner{
		{Name: "kaas@example.org", Template: stepcatest.Template, Longest: "90000h"},
	}})
	s, _ := newService(t, map[string]model.CertificateAuthority{"corp": stepDocument(server, "kaas@example.org")},
		map[string]director.Secret{"step": stepcatest.Password})
	pair, err := s.Issue(t.Context(), "corp", "demo cluster", want())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.ParseCert(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero || c.Subject.CommonName != "demo cluster" ||
		strings.Count(pair.Cert, "BEGIN") != 1 || time.Until(c.NotAfter) < 9*365*24*time.Hour {
		t.Errorf("issued %+v in %s", c, pair.Cert)
	}
	if err := pki.ValidateCA(pair, time.Now()); err != nil {
		t.Errorf("what was issued is not accepted for a cluster: %v", err)
	}
	second, err := s.Issue(t.Context(), "corp", "demo cluster", want())
	if err != nil || second.Cert == pair.Cert {
		t.Errorf("another one for the same subject: %v", err)
	}
	found, err := s.Test(t.Context(), "corp")
	if err != nil || len(found) != 5 {
		t.Fatalf("a test finds %v: %v", found, err)
	}
	for _, f := range found {
		if f.Err != nil || f.Found == "" {
			t.Errorf("%s: %q, %v", f.What, f.Found, f.Err)
		}
	}

	// A document is tried when it is applied.
	spec := stepDocument(server, "kaas@example.org")
	spec.Life = model.Duration(9 * 365 * 24 * time.Hour)
	spec.LeastLife = model.Duration(2 * 365 * 24 * time.Hour)
	if fields := s.Try(t.Context(), "corp", spec); len(fields) > 0 {
		t.Errorf("a trial finds %v", fields)
	}
	wrong := spec
	wrong.StepCA = &model.StepCA{
		URL: server.URL, RootFingerprint: server.Fingerprint, Provisioner: "nope", Credentials: "step",
	}
	if fields := s.Try(t.Context(), "corp", wrong); len(fields) != 1 || fields[0].Path != "spec.stepCA.provisioner" {
		t.Errorf("a trial of another provisioner finds %+v", fields)
	}

	// A server that is away is said to be, and one that is back issues again. It refuses no document.
	server.Stop()
	if fields := s.Try(t.Context(), "corp", spec); len(fields) > 0 {
		t.Errorf("a trial without the server finds %v", fields)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 ||
		!strings.Contains(list[0].Problem, "does not answer") || list[0].Hint == "" {
		t.Errorf("after a trial without the server: %+v, %v", list, err)
	}
	if _, err := s.Issue(t.Context(), "corp", "demo", want()); director.KindOf(err) != director.KindUnavailable ||
		director.HintOf(err) == "" {
		t.Errorf("a server that is away: %v (%s)", err, director.HintOf(err))
	}
	server.Run(t)
	if err := s.Ready(t.Context(), "corp"); err != nil {
		t.Errorf("a server that is back: %v", err)
	}
	if fields := s.Try(t.Context(), "corp", spec); len(fields) > 0 {
		t.Errorf("a trial with the server finds %v", fields)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].Problem != "" {
		t.Errorf("after a trial with the server: %+v, %v", list, err)
	}
}

func TestStepCASaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := stepcatest.Provisioner{Name: "good", Template: stepcatest.Template, Longest: "90000h"}
	server := stepcatest.Start(t, stepcatest.Options{PathLength: 1, Provisioners: []stepcatest.Provisioner{
		good,
		{Name: "short", Template: stepcatest.Template},
		{Name: "leaves", Longest: "90000h"},
		{Name: "nosign", Longest: "90000h", Template: strings.Replace(stepcatest.Template, `, "certSign"`, "", 1)},
		{Name: "away", Template: stepcatest.Template, Longest: "90000h", KeyAway: true},
		{Name: "acme", Type: "ACME"},
	}})
	flat := stepcatest.Start(t, stepcatest.Options{PathLength: 0, Provisioners: []stepcatest.Provisioner{good}})
	names := stepcatest.Start(t, stepcatest.Options{
		PathLength: 1, Provisioners: []stepcatest.Provisioner{good},
		Change: func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"local"} },
	})
	for name, tt := range map[string]struct {
		server      *stepcatest.Server
		provisioner string
		change      func(*model.CertificateAuthority)
		password    director.Secret
		field, says string
	}{
		"no template": {
			server, "leaves", nil, "", "spec.stepCA.provisioner",
			"not the certificate of an authority",
		},
		"no certSign":         {server, "nosign", nil, "", "spec.stepCA.provisioner", "may not sign certificates"},
		"too short a life":    {server, "short", nil, "", "spec.stepCA.provisioner", "does not let the server sign"},
		"no such provisioner": {server, "nothing", nil, "", "spec.stepCA.provisioner", "is no provisioner"},
		"another type":        {server, "acme", nil, "", "spec.stepCA.provisioner", "of the type ACME"},
		"no key there":        {server, "away", nil, "", "spec.stepCA.provisioner", "no encrypted key"},
		"wrong password":      {server, "good", nil, "wrong", "spec.stepCA.credentials", "does not open the key"},
		"another root": {server, "good", func(a *model.CertificateAuthority) {
			a.StepCA.RootFingerprint = strings.Repeat("ab", 32)
		}, "", "spec.stepCA.rootFingerprint", "not that of a root certificate"},
		"an intermediate of path length 0": {flat, "good", nil, "", "spec.stepCA.provisioner", "path length"},
		"name constraints":                 {names, "good", nil, "", "spec.stepCA.provisioner", "name constraints"},
	} {
		a := stepDocument(tt.server, tt.provisioner)
		if tt.change != nil {
			tt.change(&a)
		}
		if tt.password == "" {
			tt.password = stepcatest.Password
		}
		s, _ := newService(t, map[string]model.CertificateAuthority{"corp": a},
			map[string]director.Secret{"step": tt.password})
		_, err := s.Issue(t.Context(), "corp", "demo cluster", want())
		fields := director.FieldsOf(err)
		if len(fields) != 1 || !strings.HasSuffix(fields[0].Path, tt.field) ||
			!strings.Contains(fields[0].Msg, tt.says) || fields[0].Hint == "" {
			t.Errorf("%s: %v %+v", name, err, fields)
		}
		if err != nil && strings.Contains(err.Error(), string(tt.password)) {
			t.Errorf("%s: the error tells the password", name)
		}
	}
}

// behind answers before a real server, which the requests that it passes on reach.
func behind(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestServersThatAreNotStepCA(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 2*mostAnswer)
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		kind    director.Kind
		says    string
	}{
		"answers late": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, director.KindUnavailable,
			"did not answer within",
		},
		"another server": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			director.KindUnavailable, "not step-ca",
		},
		"redirects": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
			director.KindInvalid, "not that of a root certificate",
		},
		"too much": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(big)) },
			director.KindUnavailable, "not step-ca",
		},
		"a root of its own": {func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"ca": selfSigned(t)})
		}, director.KindInvalid, "not that of the certificate with which the server answered"},
	} {
		server := behind(t, tt.handler)
		a := model.CertificateAuthority{Type: model.AuthorityStepCA, StepCA: &model.StepCA{
			URL: server.URL, RootFingerprint: strings.Repeat("ab", 32), Provisioner: "p", Credentials: "step",
		}}
		s, _ := newService(t, map[string]model.CertificateAuthority{"corp": a}, map[string]director.Secret{"step": "x"})
		if name == "answers late" {
			s.Patience = 200 * time.Millisecond
		}
		err := s.Ready(t.Context(), "corp")
		text := err.Error()
		for _, f := range director.FieldsOf(err) {
			text += f.Msg
		}
		if director.KindOf(err) != tt.kind || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %v: %s", name, director.KindOf(err), text)
		}
	}
	s, w := newService(t, map[string]model.CertificateAuthority{"corp": {
		Type: model.AuthorityStepCA, StepCA: &model.StepCA{
			URL: "https://127.0.0.1:1", RootFingerprint: strings.Repeat("ab", 32), Provisioner: "p",
			Credentials: "step",
		},
	}}, map[string]director.Secret{"step": "x"})
	s.Networks = confine.Private()
	if err := s.Ready(t.Context(), "corp"); !strings.Contains(err.Error(), "not allowed") ||
		!strings.Contains(director.HintOf(err), "providerNetworks") {
		t.Errorf("an address that is not allowed: %v (%s)", err, director.HintOf(err))
	}
	delete(w.accounts, "step")
	if err := s.Ready(t.Context(), "corp"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without credentials: %v", err)
	}
}

func selfSigned(t *testing.T) string {
	t.Helper()
	ca, err := pki.NewCA("stranger")
	if err != nil {
		t.Fatal(err)
	}
	return ca.Cert
}

// TestAnotherKey has a server that is step-ca in all but what it signs: the key of someone else.
func TestAnotherKey(t *testing.T) {
	t.Parallel()
	real := stepcatest.Start(t, stepcatest.Options{PathLength: 1, Provisioners: []stepcatest.Provisioner{
		{Name: "good", Template: stepcatest.Template, Longest: "90000h"},
	}})
	root, err := pki.NewCA("root of the server between")
	if err != nil {
		t.Fatal(err)
	}
	served, err := pki.ServerCert(root, nil, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.IssueCA(root, "demo", 20*365*24*time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	between := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/root/"):
			_ = json.NewEncoder(w).Encode(map[string]string{"ca": root.Cert})
		case r.URL.Path == "/1.0/sign":
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"certChain": []string{other.Cert, root.Cert}})
		default:
			proxy(t, real, w, r)
		}
	}))
	pair, err := tls.X509KeyPair([]byte(served.Cert), []byte(served.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	between.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	between.StartTLS()
	t.Cleanup(between.Close)
	a := stepDocument(real, "good")
	a.StepCA.URL, a.StepCA.RootFingerprint = between.URL, fingerprint(t, root.Cert)
	s, _ := newService(t, map[string]model.CertificateAuthority{"corp": a},
		map[string]director.Secret{"step": stepcatest.Password})
	_, err = s.Issue(t.Context(), "corp", "demo", want())
	fields := director.FieldsOf(err)
	if len(fields) != 1 || !strings.HasSuffix(fields[0].Path, "spec.stepCA.url") ||
		!strings.Contains(fields[0].Msg, "of another key") {
		t.Errorf("another key: %v %+v", err, fields)
	}
}

// proxy passes a request on to the server.
func proxy(t *testing.T, to *stepcatest.Server, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(to.Root))
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
	}}}
	ask, err := http.NewRequestWithContext(r.Context(), r.Method, to.URL+r.URL.RequestURI(), r.Body)
	if err != nil {
		t.Error(err)
		return
	}
	a, err := c.Do(ask)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = a.Body.Close() }()
	w.WriteHeader(a.StatusCode)
	if _, err := io.Copy(w, a.Body); err != nil {
		t.Error(err)
	}
}

func fingerprint(t *testing.T, certificate string) string {
	t.Helper()
	c, err := pki.ParseCert(certificate)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

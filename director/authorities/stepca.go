package authorities

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

const (
	mostAnswer       = 1 << 20 // bytes
	mostWords        = 300     // of what a server says
	mostProvisioners = 20      // pages of them
	dialLimit        = 5 * time.Second
	tokenLife        = 5 * time.Minute
	tokenLeeway      = time.Minute // between the clocks
	typeJWK          = "JWK"
)

// stepCA speaks to a server of step-ca that has proved to be the one with the root of the document.
type stepCA struct {
	doc  model.Stored
	spec model.StepCA
	base string
	http *http.Client
	root *x509.Certificate
}

// provisioner is what lets the director ask for certificates.
type provisioner struct {
	name string
	key  jose.JSONWebKey
}

// bad is an invalid error about a field of the document.
func (c *stepCA) bad(field, hint, format string, args ...any) error {
	return director.Invalid("authorities.step_ca", c.doc.Ref().String()+" cannot issue authorities for clusters",
		[]director.Field{{
			Path: c.doc.Ref().String() + ": spec.stepCA." + field, Msg: fmt.Sprintf(format, args...), Hint: hint,
		}})
}

// away is an unavailable error: the server does not answer, or answers with something else.
func (c *stepCA) away(err error, patience time.Duration) error {
	e := director.Errorf(
		director.KindUnavailable, "authorities.step_ca", "the server of %s, %s, does not answer: %w", c.doc.Ref(),
		c.spec.URL, reason(err),
	)
	timeout := net.Error(nil)
	switch {
	case errors.Is(err, confine.ErrAddress):
		return e.WithHint("%s", "correct spec.stepCA.url, or name its range in providerNetworks of the director's "+
			"configuration")
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return director.Errorf(
			director.KindUnavailable, "authorities.step_ca", "the server of %s, %s, did not answer within %s",
			c.doc.Ref(), c.spec.URL, patience,
		).WithHint("check that step-ca runs and is not overloaded: step ca health; then try again")
	}
	return e.WithHint("check that step-ca runs and that spec.stepCA.url is its address: step ca health; then try again")
}

// reason leaves out the address that http's errors repeat.
func reason(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// connect returns a client of the server once it has shown the root certificate of the document's fingerprint, and has
// proved itself by it.
func (s *Service) connect(ctx context.Context, d model.Stored) (*stepCA, error) {
	c := &stepCA{doc: d, spec: *d.CertificateAuthority.StepCA}
	c.base = strings.TrimRight(c.spec.URL, "/")
	// The root is the one with the fingerprint, no matter who sends it; nothing else is taken from this connection.
	first := s.client(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}) //nolint:gosec // see above
	defer first.CloseIdleConnections()
	var answer struct {
		CA string `json:"ca"`
	}
	c.http = first
	status, said, err := c.call(ctx, http.MethodGet, "/root/"+c.spec.RootFingerprint, nil, &answer)
	if err != nil {
		return nil, c.away(err, s.Patience)
	}
	if status != http.StatusOK {
		return nil, c.bad("rootFingerprint", "step certificate fingerprint root_ca.crt prints it",
			"is not that of a root certificate of the server (status %d: %s)", status, said)
	}
	b, _ := pem.Decode([]byte(answer.CA))
	if b == nil {
		return nil, c.bad("url", "name the address of step-ca itself", "leads to a server that is not step-ca")
	}
	sum := sha256.Sum256(b.Bytes)
	c.root, err = x509.ParseCertificate(b.Bytes)
	if err != nil || hex.EncodeToString(sum[:]) != c.spec.RootFingerprint {
		return nil, c.bad("rootFingerprint",
			"compare it on the server itself: step certificate fingerprint root_ca.crt",
			"is not that of the certificate with which the server answered")
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.root)
	c.http = s.client(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	return c, nil
}

// client follows no redirects, has no proxy, and reaches allowed networks alone.
func (s *Service) client(conf *tls.Config) *http.Client {
	dialer := s.Networks.Dialer()
	return &http.Client{
		Timeout: s.Patience,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, min(dialLimit, s.Patience))
				defer cancel()
				return dialer.DialContext(ctx, network, addr)
			},
			TLSClientConfig: conf, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: mostAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call sends a request. What the server says about one that it refuses is bounded, and printable.
func (c *stepCA) call(ctx context.Context, method, path string, in, out any) (status int, said string, err error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, "", err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := c.http.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(a.Body, mostAnswer))
	if err != nil {
		return 0, "", err
	}
	if a.StatusCode >= http.StatusOK && a.StatusCode < http.StatusMultipleChoices {
		if json.Unmarshal(text, out) != nil {
			return 0, "", errors.New("what answers there is not step-ca")
		}
		return http.StatusOK, "", nil
	}
	var problem struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &problem) // what is no JSON says nothing
	return a.StatusCode, words(problem.Message), nil
}

// words makes what a server says fit for people to read.
func words(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	if len(text) > mostWords {
		text = text[:mostWords] + "..."
	}
	return text
}

// find returns the provisioner of the document with its encrypted key.
func (c *stepCA) find(ctx context.Context, patience time.Duration) (encrypted string, err error) {
	var others []string
	cursor := ""
	for range mostProvisioners {
		var page struct {
			Provisioners []struct {
				Type         string `json:"type"`
				Name         string `json:"name"`
				EncryptedKey string `json:"encryptedKey"`
			} `json:"provisioners"`
			Next string `json:"nextCursor"`
		}
		status, said, err := c.call(
			ctx, http.MethodGet, "/provisioners?limit=100&cursor="+url.QueryEscape(cursor), nil, &page,
		)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", status, said)
		}
		if err != nil {
			return "", c.away(err, patience)
		}
		for _, p := range page.Provisioners {
			switch {
			case p.Name != c.spec.Provisioner:
				others = append(others, words(p.Name))
			case p.Type != typeJWK:
				return "", c.bad("provisioner", "name one of the type JWK: step ca provisioner add NAME --create",
					"is of the type %s, which the director cannot use", words(p.Type))
			case p.EncryptedKey == "":
				return "", c.bad("provisioner",
					"add one whose key the server keeps: step ca provisioner add NAME --create",
					"has no encrypted key on the server")
			default:
				return p.EncryptedKey, nil
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	known := strings.Join(others[:min(len(others), 10)], ", ")
	return "", c.bad("provisioner", "the server has: "+known, "%q is no provisioner of the server", c.spec.Provisioner)
}

// open decrypts the key of the provisioner with its password.
func (c *stepCA) open(encrypted string, password director.Secret) (provisioner, error) {
	odd := func(msg string) (provisioner, error) {
		return provisioner{}, c.bad("provisioner", "add another one: step ca provisioner add NAME --create", "%s", msg)
	}
	sealed, err := jose.ParseEncrypted(
		encrypted, []jose.KeyAlgorithm{jose.PBES2_HS256_A128KW, jose.PBES2_HS384_A192KW, jose.PBES2_HS512_A256KW},
		[]jose.ContentEncryption{jose.A128GCM, jose.A192GCM, jose.A256GCM, jose.A128CBC_HS256, jose.A256CBC_HS512},
	)
	if err != nil {
		return odd("has a key that is encrypted in a way that the director does not know")
	}
	plain, err := sealed.Decrypt([]byte(password.Reveal()))
	if err != nil {
		return provisioner{}, c.bad("credentials",
			"set its password: directorctl provider credentials set "+c.spec.Credentials+
				" --user "+c.spec.Provisioner+" --password-file FILE",
			"%s: the password does not open the key of provisioner %s", c.spec.Credentials, c.spec.Provisioner)
	}
	p := provisioner{name: c.spec.Provisioner}
	if p.key.UnmarshalJSON(plain) != nil || !p.key.Valid() || p.key.IsPublic() {
		return odd("has a key that cannot be read")
	}
	return p, nil
}

// token lets the director ask for one certificate.
func (c *stepCA) token(p provisioner, subject string, now time.Time) (string, error) {
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.SignatureAlgorithm(p.key.Algorithm), Key: p.key.Key},
		(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", p.key.KeyID),
	)
	if err != nil {
		return "", c.bad("provisioner", "add one with an EC key: step ca provisioner add NAME --create",
			"has a key that cannot sign")
	}
	return jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: p.name, Subject: subject, Audience: jwt.Audience{c.base + "/1.0/sign"}, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-tokenLeeway)),
		Expiry: jwt.NewNumericDate(now.Add(tokenLife)),
	}).Claims(map[string]any{"sha": c.spec.RootFingerprint}).Serialize()
}

// ready returns the server and the provisioner once both are there and the password opens the key.
func (s *Service) ready(ctx context.Context, d model.Stored) (*stepCA, provisioner, error) {
	account, err := s.Accounts.OpenAuthority(ctx, d.Metadata.Name, *d.CertificateAuthority)
	if err != nil {
		return nil, provisioner{}, err
	}
	c, err := s.connect(ctx, d)
	if err != nil {
		return nil, provisioner{}, err
	}
	encrypted, err := c.find(ctx, s.Patience)
	if err != nil {
		return nil, provisioner{}, err
	}
	p, err := c.open(encrypted, account.Password)
	return c, p, err
}

// ask has the server sign an authority. Those that signed it follow its certificate.
func (s *Service) ask(ctx context.Context, d model.Stored, subject string) (pki.Pair, error) {
	c, p, err := s.ready(ctx, d)
	if err != nil {
		return pki.Pair{}, err
	}
	csr, key, err := pki.Request(subject, 0)
	if err != nil {
		return pki.Pair{}, err
	}
	now := s.Now()
	token, err := c.token(p, subject, now)
	if err != nil {
		return pki.Pair{}, err
	}
	var answer struct {
		Certificates []string `json:"certChain"`
	}
	status, said, err := c.call(ctx, http.MethodPost, "/1.0/sign", map[string]string{
		"csr": csr, "ott": token,
		"notAfter": now.Add(time.Duration(d.CertificateAuthority.Life)).UTC().Format(time.RFC3339),
	}, &answer)
	if err != nil {
		return pki.Pair{}, c.away(err, s.Patience)
	}
	if status != http.StatusOK {
		return pki.Pair{}, c.refused(status, said)
	}
	if len(answer.Certificates) == 0 {
		return pki.Pair{}, c.bad("url", "name the address of step-ca itself", "leads to a server that is not step-ca")
	}
	pair := pki.Pair{Key: key}
	for _, one := range answer.Certificates {
		pair.Cert += strings.TrimSpace(one) + "\n"
	}
	if !bytes.Contains([]byte(pair.Cert), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.root.Raw})) {
		pair.Cert += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.root.Raw}))
	}
	return pair, nil
}

// refused says why the server did not sign.
func (c *stepCA) refused(status int, said string) error {
	switch {
	case status == http.StatusUnauthorized:
		return c.bad("provisioner",
			"compare the clocks of the director and of the server, and see that spec.stepCA.url has a name of "+
				"dnsNames in ca.json", "is not accepted by the server: %s", said)
	case status >= http.StatusInternalServerError:
		return director.Errorf(
			director.KindUnavailable, "authorities.step_ca", "the server of %s failed (status %d): %s", c.doc.Ref(),
			status, said,
		).WithHint("check the log of step-ca, then try again")
	}
	return c.bad("provisioner",
		"allow it on the server: maxTLSCertDuration of the provisioner must be at least spec.life, and no policy may "+
			"refuse the name; or make spec.life shorter", "does not let the server sign (status %d): %s", status, said)
}

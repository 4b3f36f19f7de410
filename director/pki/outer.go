package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// The paths of the fields in which problems of authorities are reported.
const (
	FieldCertificate = "certificate"
	FieldKey         = "key"
)

const (
	mostIssuers   = 8 // certificates that follow the one of an authority
	leastCurve    = 256
	trialLife     = time.Hour
	trialName     = "trial"
	clusterLength = 0 // path length of the authorities of clusters: they sign no further ones
)

// Need is what an authority of a cluster is needed for.
type Need struct {
	Names []string     // of servers
	IPs   []netip.Addr // of servers
	Left  time.Duration
}

// UsualNeed is the part of a Need that all clusters have alike.
func UsualNeed(left time.Duration) Need {
	return Need{
		Names: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost",
		},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.AddrFrom4([4]byte{10, 96, 0, 1})}, Left: left,
	}
}

// CheckIssuer returns what is wrong with the certificate of an outer authority that is to sign the authorities of
// clusters. The certificates of those that signed it may follow. Without a key only the certificate is looked at; with
// one, an authority and a server's certificate are signed on trial.
func CheckIssuer(ca Pair, n Need, now time.Time) []director.Field {
	chain, fields := chainOf(ca.Cert)
	if len(fields) > 0 {
		return fields
	}
	if fields = authorityProblems(chain[0], clusterLength+1, n.Left, now); len(fields) > 0 || ca.Key == "" {
		return fields
	}
	if fields = keyProblems(chain[0], ca.Key); len(fields) > 0 {
		return fields
	}
	sub, err := IssueCA(ca, trialName, trialLife, now)
	if err != nil {
		return []director.Field{{Path: FieldKey, Msg: "cannot sign: " + err.Error()}}
	}
	return trial(sub, chain, n, now)
}

// CheckCluster returns what is wrong with an authority of a cluster that an outer one has signed. The certificates of
// those that signed it follow its own. A server's certificate is signed on trial.
func CheckCluster(ca Pair, n Need, now time.Time) []director.Field {
	chain, fields := chainOf(ca.Cert)
	if len(fields) == 0 {
		fields = authorityProblems(chain[0], clusterLength, n.Left, now)
	}
	if len(fields) == 0 {
		fields = keyProblems(chain[0], ca.Key)
	}
	if len(fields) > 0 {
		return fields
	}
	return trial(ca, chain[1:], n, now)
}

// Chain returns the certificates of a PEM text and nothing else of it.
func Chain(text string) string {
	chain, _ := chainOf(text)
	var b strings.Builder
	for _, c := range chain {
		b.WriteString(encode(pemCertificate, c.Raw))
	}
	return b.String()
}

// serverTrust is what OpenSSL keeps behind a certificate that is trusted for servers: X509_CERT_AUX with serverAuth.
var serverTrust = []byte{0x30, 0x0c, 0x30, 0x0a, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01}

// trusted returns the authorities of a bundle in OpenSSL's own form. OpenSSL trusts an authority by itself if its
// certificate says so, and otherwise only below one that signs itself. A bundle of such ones is returned as it is.
func trusted(bundle string) string {
	chain, outer := []*pem.Block{}, false
	for rest := []byte(bundle); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil || c.CheckSignatureFrom(c) == nil {
			chain = append(chain, &pem.Block{Type: pemCertificate, Bytes: b.Bytes})
			continue
		}
		outer = true
		chain = append(chain, &pem.Block{
			Type: "TRUSTED CERTIFICATE", Bytes: slices.Concat(b.Bytes, serverTrust),
		})
	}
	if !outer {
		return bundle
	}
	var out strings.Builder
	for _, b := range chain {
		out.Write(pem.EncodeToMemory(b))
	}
	return out.String()
}

// Alone returns the authority without the certificates that follow its own: kubeadm takes one, and what another
// authority signed is not for the cluster.
func Alone(ca Pair) (Pair, error) {
	c, err := ParseCert(ca.Cert)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: encode(pemCertificate, c.Raw), Key: ca.Key}, nil
}

// IssueCA returns an authority of a cluster that the outer one has signed. It signs no further authorities, and lives
// for life, or as long as the outer one when that is shorter.
func IssueCA(outer Pair, commonName string, life time.Duration, now time.Time) (Pair, error) {
	t := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            clusterLength,
		MaxPathLenZero:        true,
	}
	parent, err := ParseCert(outer.Cert)
	if err != nil {
		return Pair{}, err
	}
	if t.NotBefore.Before(parent.NotBefore) {
		t.NotBefore = parent.NotBefore
	}
	return issue("pki.issue_ca", outer, t, now)
}

// NewSelfSigned is NewCA with a life.
func NewSelfSigned(commonName string, life time.Duration) (Pair, error) {
	return newCA(commonName, time.Now(), life)
}

// Request returns a key, and a request in PEM for the certificate of an authority below which there may be pathLen
// further ones.
func Request(commonName string, pathLen int) (request string, key director.Secret, err error) {
	const op = "pki.request"
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "cannot make a key: %w", err)
	}
	constraints, err := asn1.Marshal(struct {
		CA  bool
		Len int
	}{true, pathLen})
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "cannot encode a request: %w", err)
	}
	usage, err := asn1.Marshal(asn1.BitString{Bytes: []byte{0x86}, BitLength: 7}) // digitalSignature, certSign, cRLSign
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "cannot encode a request: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: commonName},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: constraints},
			{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: usage},
		},
	}, signer)
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "cannot sign a request: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(signer)
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "cannot encode a key: %w", err)
	}
	return encode("CERTIFICATE REQUEST", der), director.Secret(encode(pemECKey, keyDER)), nil
}

// chainOf returns the certificate of an authority and those that follow it, each of which has signed the one before.
func chainOf(text string) ([]*x509.Certificate, []director.Field) {
	bad := func(msg, hint string) ([]*x509.Certificate, []director.Field) {
		return nil, []director.Field{{Path: FieldCertificate, Msg: msg, Hint: hint}}
	}
	var chain []*x509.Certificate
	for rest := []byte(strings.TrimSpace(text)); len(rest) > 0; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil || b.Type != pemCertificate {
			return bad("holds something else than certificates in PEM form",
				"each begins with -----BEGIN CERTIFICATE-----; keys do not belong there")
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return bad("holds a certificate that cannot be read", "look at it: openssl x509 -text -in FILE")
		}
		chain = append(chain, c)
	}
	switch {
	case len(chain) == 0:
		return bad("is not a certificate in PEM form", "it begins with -----BEGIN CERTIFICATE-----")
	case len(chain) > mostIssuers+1:
		return bad("is followed by too many others", fmt.Sprintf("at most %d, those that signed it", mostIssuers))
	}
	for i := range chain[1:] {
		if err := chain[i].CheckSignatureFrom(chain[i+1]); err != nil {
			return bad(
				fmt.Sprintf("number %d of the certificates was not signed by the next one", i+1),
				"write the authority first, and then the one that signed it, and so on",
			)
		}
	}
	return chain, nil
}

// authorityProblems looks at the certificate of an authority by itself.
func authorityProblems(c *x509.Certificate, length int, left time.Duration, now time.Time) (fields []director.Field) {
	bad := func(hint, msg string, args ...any) {
		fields = append(fields, director.Field{Path: FieldCertificate, Msg: fmt.Sprintf(msg, args...), Hint: hint})
	}
	if !c.BasicConstraintsValid || !c.IsCA {
		bad("have an authority's certificate issued: its basic constraints say CA:TRUE",
			"is not the certificate of an authority")
		return fields
	}
	if c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0 {
		bad("have it issued with keyCertSign in its key usage", "may not sign certificates")
	}
	if most := c.MaxPathLen; (most > 0 || c.MaxPathLenZero) && most < length {
		bad("have it issued with a path length of 1 or more, or without one: each cluster gets an authority of its "+
			"own below it", "has the path length %d: it may sign certificates, and no authorities of clusters", most)
	}
	end := c.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.Before(c.NotBefore):
		bad("wait until then, or check the clock of the director", "is valid only from %s",
			c.NotBefore.UTC().Format(time.RFC3339))
	case now.After(c.NotAfter):
		bad("have it renewed, or name another authority", "ended at %s", end)
	case c.NotAfter.Sub(now) < left:
		bad("have it issued for longer, or lower spec.leastLife",
			"ends at %s, in %s, and at least %s are wanted", end, c.NotAfter.Sub(now).Truncate(time.Minute), left)
	}
	return append(fields, algorithmProblems(c)...)
}

// algorithmProblems looks at what the certificate of an authority was made with, and what it is limited to.
func algorithmProblems(c *x509.Certificate) (fields []director.Field) {
	bad := func(hint, msg string) {
		fields = append(fields, director.Field{Path: FieldCertificate, Msg: msg, Hint: hint})
	}
	switch pub := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if pub.N.BitLen() < minRSABits {
			bad("use an RSA key of 2048 bits or more, or an ECDSA key", "has an RSA key that is too short")
		}
	case *ecdsa.PublicKey:
		if pub.Curve.Params().BitSize < leastCurve {
			bad("use P-256 or a larger curve", "has an ECDSA key on a curve that is too small")
		}
	default:
		bad("use an RSA or ECDSA key: kubeadm takes these two", "has a key that is neither RSA nor ECDSA")
	}
	switch c.SignatureAlgorithm {
	case x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1:
		bad("have it signed with SHA-256 or better", "is signed with "+c.SignatureAlgorithm.String()+
			", which no one accepts any more")
	}
	if len(c.UnhandledCriticalExtensions) > 0 {
		bad("have it issued without it, or not critical", fmt.Sprintf(
			"has a critical extension that Kubernetes does not know: %s", c.UnhandledCriticalExtensions[0]))
	}
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 {
		return fields
	}
	may := map[x509.ExtKeyUsage]bool{}
	for _, u := range c.ExtKeyUsage {
		may[u] = true
	}
	if !may[x509.ExtKeyUsageAny] && (!may[x509.ExtKeyUsageServerAuth] || !may[x509.ExtKeyUsageClientAuth]) {
		bad("have it issued without an extended key usage, or with serverAuth and clientAuth",
			"is limited by its extended key usage, and clusters need certificates of servers and clients")
	}
	return fields
}

func keyProblems(c *x509.Certificate, key director.Secret) []director.Field {
	k, err := parseKey(key)
	if err != nil {
		return []director.Field{{
			Path: FieldKey, Msg: "is not an unencrypted private key in PEM form",
			Hint: "set it as RSA or ECDSA key, in PKCS#8, PKCS#1 or SEC 1 form",
		}}
	}
	if !samePublic(k.Public(), c.PublicKey) {
		return []director.Field{{
			Path: FieldKey, Msg: "does not belong to the certificate",
			Hint: "set the key that the certificate was issued for, or write the certificate of this key",
		}}
	}
	return nil
}

// Belongs tells whether the pair's key is that of its certificate.
func Belongs(p Pair) bool {
	c, err := ParseCert(p.Cert)
	return err == nil && len(keyProblems(c, p.Key)) == 0
}

// trial signs a server's certificate with an authority of a cluster, and looks whether it is accepted by who trusts
// this authority alone, and by who trusts the last one above it.
func trial(ca Pair, above []*x509.Certificate, n Need, now time.Time) []director.Field {
	bad := func(path, msg, hint string) []director.Field {
		return []director.Field{{Path: path, Msg: msg, Hint: hint}}
	}
	own, err := ParseCert(ca.Cert)
	if err != nil {
		return bad(FieldCertificate, "cannot be read", "")
	}
	leaf, err := serverCert(ca, n.Names, n.IPs, trialLife, now)
	if err != nil {
		return bad(FieldKey, "cannot sign: "+director.MessageOf(err), director.HintOf(err))
	}
	c, err := ParseCert(leaf.Cert)
	if err != nil {
		return bad(FieldKey, "cannot sign: "+director.MessageOf(err), director.HintOf(err))
	}
	roots := []*x509.Certificate{own}
	if len(above) > 0 {
		roots = append(roots, above[len(above)-1])
	}
	for _, root := range roots {
		o := x509.VerifyOptions{
			Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		o.Roots.AddCert(root)
		o.Intermediates.AddCert(own)
		for _, i := range above {
			o.Intermediates.AddCert(i)
		}
		if _, err := c.Verify(o); err != nil {
			return bad(FieldCertificate, refusal(err, root), refusalHint(err))
		}
	}
	return nil
}

// refusal says why a certificate that was signed on trial is not accepted.
func refusal(err error, root *x509.Certificate) string {
	invalid := x509.CertificateInvalidError{}
	if !errors.As(err, &invalid) {
		return "signs what is not accepted: " + err.Error()
	}
	switch invalid.Reason {
	case x509.CANotAuthorizedForThisName:
		return "has name constraints that clusters do not fit into: " + invalid.Detail
	case x509.TooManyIntermediates:
		return fmt.Sprintf("would be too long a path below %q: the path length of an authority above is exceeded",
			root.Subject.CommonName)
	case x509.CANotAuthorizedForExtKeyUsage, x509.IncompatibleUsage:
		return "is below an authority whose extended key usage does not allow certificates of servers"
	}
	return "signs what is not accepted: " + err.Error()
}

func refusalHint(err error) string {
	invalid := x509.CertificateInvalidError{}
	if errors.As(err, &invalid) && invalid.Reason == x509.CANotAuthorizedForThisName {
		return "have it issued without name constraints, or with some that allow the names and addresses of nodes, " +
			"of services and of the API"
	}
	if errors.As(err, &invalid) && invalid.Reason == x509.TooManyIntermediates {
		return "have the authority above issued with a longer path length, or use another one"
	}
	return "have it issued so that it may sign certificates of servers and clients"
}

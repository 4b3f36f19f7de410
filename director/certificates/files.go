package certificates

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

// readScript prints the certificates of a node, each after a line with its file, and the node's clock. It changes
// nothing and prints no key: of files that hold one it prints the certificates alone.
const readScript = `echo "### clock $(date +%s)"
for f in /etc/kubernetes/pki/*.crt /etc/kubernetes/pki/etcd/*.crt /var/lib/kubelet/pki/kubelet-client-current.pem ` +
	`/var/lib/kubelet/pki/kubelet-server-current.pem; do
  [ -f "$f" ] || continue
  echo "### $f"
  sed -n '/^-----BEGIN CERTIFICATE-----$/,/^-----END CERTIFICATE-----$/p' "$f"
done
for f in /etc/kubernetes/*.conf; do
  [ -f "$f" ] || continue
  echo "### $f"
  sed -n 's/^ *client-certificate-data: *//p' "$f" | base64 -d |
    sed -n '/^-----BEGIN CERTIFICATE-----$/,/^-----END CERTIFICATE-----$/p'
done
`

// names are what certificates are called after their files; others are called as their file.
var names = map[string]string{
	"/etc/kubernetes/pki/etcd/ca.crt":                 "etcd-ca",
	"/etc/kubernetes/pki/etcd/server.crt":             "etcd-server",
	"/etc/kubernetes/pki/etcd/peer.crt":               "etcd-peer",
	"/etc/kubernetes/pki/etcd/healthcheck-client.crt": "etcd-healthcheck-client",
	"/var/lib/kubelet/pki/kubelet-client-current.pem": "kubelet-client",
	"/var/lib/kubelet/pki/kubelet-server-current.pem": "kubelet-server",
}

// clockSlack is how far the clock of a node may be off without a word.
const clockSlack = time.Minute

// files reads what readScript printed.
func files(out string, p pki.ClusterPKI, now time.Time) ([]director.Certificate, error) {
	var all []director.Certificate
	skew := ""
	for _, part := range strings.Split(out, "### ")[1:] {
		head, body, _ := strings.Cut(part, "\n")
		if at, ok := strings.CutPrefix(head, "clock "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("certificates: the clock of the node cannot be read: %q", at)
			}
			if off := time.Unix(seconds, 0).Sub(now).Round(time.Second); off.Abs() > clockSlack {
				skew = "the clock of the node is off by " + off.String()
			}
			continue
		}
		name := names[head]
		if name == "" {
			name = strings.TrimSuffix(path.Base(head), ".crt")
		}
		found := parsed(name, head, body)
		for i := range found {
			if found[i].CA || skew != "" {
				found[i].Problem = skew
				continue
			}
			if block, _ := pem.Decode([]byte(body)); block != nil {
				if c, err := x509.ParseCertificate(block.Bytes); err == nil {
					found[i].Problem = unsigned(c, authorityOf(name, p))
				}
			}
		}
		all = append(all, found...)
	}
	return all, nil
}

// authorityOf is which authority has to have signed the certificate.
func authorityOf(name string, p pki.ClusterPKI) pki.Pair {
	switch {
	case strings.HasPrefix(name, "etcd-"), name == "apiserver-etcd-client":
		return p.EtcdCA
	case name == "front-proxy-client":
		return p.FrontProxyCA
	}
	return p.CA
}

// unsigned says that another authority has signed the certificate, or "".
func unsigned(c *x509.Certificate, authority pki.Pair) string {
	if pki.Signed(authority.Cert, c) {
		return ""
	}
	return "the cluster's authority has not signed it"
}

// parsed returns every certificate in the text.
func parsed(name, place, text string) []director.Certificate {
	var out []director.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil || sameAsBefore(out, c) {
			continue
		}
		out = append(out, noted(name, place, c))
	}
}

func sameAsBefore(list []director.Certificate, c *x509.Certificate) bool {
	for _, o := range list {
		if o.Fingerprint == Fingerprint(c) {
			return true
		}
	}
	return false
}

// Fingerprint returns the SHA-256 of the certificate, in hexadecimal digits.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// noted is what is written down of a certificate.
func noted(name, place string, c *x509.Certificate) director.Certificate {
	return director.Certificate{
		Name: name, Place: place, CA: c.IsCA, Subject: line(c.Subject.String()),
		Issuer: line(c.Issuer.String()), Serial: c.SerialNumber.Text(16),
		Fingerprint: Fingerprint(c), Begins: c.NotBefore.UTC(), Ends: c.NotAfter.UTC(),
	}
}

// longest bounds what is written down of a text from elsewhere.
const longest = 500

// line is a text from elsewhere on one line.
func line(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + " ..."
	}
	return text
}

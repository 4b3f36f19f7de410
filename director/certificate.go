package director

import "time"

// Certificate is one that was seen somewhere. Its key is never known here.
type Certificate struct {
	ClusterUID, Cluster string // empty for the director's own
	Node                string // empty for what belongs to no node
	Source              CertificateSource
	Place               string // address, path or object where it was seen
	Name                string // what it is, such as apiserver or kubelet-client
	CA                  bool
	Subject, Issuer     string
	Serial              string // hexadecimal
	Fingerprint         string // SHA-256, hexadecimal
	Begins, Ends        time.Time
	Seen                time.Time // when it was seen last
	Asked               time.Time // when it was looked for last; later than Seen if it did not show itself
	Problem             string    // why it did not show itself, or what is wrong with it
}

// CertificateOwnCA is the name of the authority that signs the director's certificate.
const CertificateOwnCA = "director-ca"

// CertificateACME is the name of the director's certificate that an ACME server has issued.
const CertificateACME = "director-acme"

// EndsWithin reports whether the certificate ends so soon that people have to know. One that the director renews by
// ACME counts in the last quarter of its life at most: it is renewed before, and may live for hours alone.
func (c Certificate) EndsWithin(d time.Duration, now time.Time) bool {
	if c.ClusterUID == "" && c.Name == CertificateACME {
		d = min(d, c.Ends.Sub(c.Begins)/4)
	}
	return !c.Ends.After(now.Add(d))
}

// Stale reports whether the certificate was looked for after it was seen last.
func (c Certificate) Stale() bool { return c.Asked.After(c.Seen) }

// Rotation is what directorctl rotate calls the change of the certificate, such as cluster-ca; "" unless it is an
// authority of a cluster.
func (c Certificate) Rotation() string {
	if !c.CA || c.Cluster == "" || c.Source == CertificateAPI {
		return ""
	}
	return map[string]string{"ca": "cluster-ca", "etcd-ca": "etcd-ca", "front-proxy-ca": "front-proxy-ca"}[c.Name]
}

// CertificateSource is how a certificate was seen.
type CertificateSource string

// The sources of certificates.
const (
	CertificateTLS      CertificateSource = "tls"      // shown by a server
	CertificateFile     CertificateSource = "file"     // read on a node
	CertificateAPI      CertificateSource = "api"      // in an object of a cluster
	CertificateDatabase CertificateSource = "database" // what the director keeps
)

// CertificateSources returns every source in a fixed order.
func CertificateSources() []CertificateSource {
	return []CertificateSource{CertificateTLS, CertificateFile, CertificateAPI, CertificateDatabase}
}

// CertificateSight is what one look at one source brought: all certificates there, or why there was none to see.
type CertificateSight struct {
	ClusterUID, Cluster, Node string
	Source                    CertificateSource
	Place                     string // of the one certificate that is looked for there; empty for all of the source
	At                        time.Time
	Certificates              []Certificate
	Problem                   string // the source did not answer, and Certificates says nothing
}

// CertificateQuery narrows a list of certificates. What is empty does not narrow.
type CertificateQuery struct {
	Cluster    string
	Director   bool // only the director's own
	Node       string
	Source     CertificateSource
	Name       string
	EndsBefore time.Time
	Visible    *Visible // nil for all
}

// Key is a key that is no certificate, without the key itself.
type Key struct {
	Cluster string // empty for the director's own
	Owner   string // the document that it belongs to, such as Hook/audit; empty if none
	Purpose string // such as service-account-key
	Name    string // that it has for this purpose
	ID      string // that no other key has; empty for one of which nothing is left but the name
	State   KeyState
	Made    time.Time // zero if that is not known
	Ends    time.Time // when it is replaced or ends by itself; zero if it does not
}

// KeyState says what a key is used for now.
type KeyState string

// The states of keys.
const (
	KeyUsed     KeyState = "used"     // it signs or encrypts
	KeyAccepted KeyState = "accepted" // what it signed or encrypted is accepted
	KeyFormer   KeyState = "former"   // a cluster refuses it; older backups may need it
)

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

// Stale reports whether the certificate was looked for after it was seen last.
func (c Certificate) Stale() bool { return c.Asked.After(c.Seen) }

// CertificateSource is how a certificate was seen.
type CertificateSource string

// The sources of certificates.
const (
	CertificateTLS      CertificateSource = "tls"      // shown by a server
	CertificateFile     CertificateSource = "file"     // read on a node
	CertificateAPI      CertificateSource = "api"      // in an object of a cluster
	CertificateDatabase CertificateSource = "database" // what the director keeps
)

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

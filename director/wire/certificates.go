package wire

import "time"

// SeenCertificate is one that was seen somewhere.
type SeenCertificate struct {
	Cluster     string    `json:"cluster,omitempty" doc:"Absent for the director's own."`
	Node        string    `json:"node,omitempty" doc:"Absent for what belongs to no node."`
	Name        string    `json:"name" doc:"What it is, such as apiserver, etcd-peer or kubelet-client."`
	Source      string    `json:"source" doc:"How it was seen: tls (a server shows it), file (on a node), api (in an object of the cluster) or database (kept by the director)."`
	Place       string    `json:"place" doc:"The address, path or object where it was seen."`
	Authority   bool      `json:"authority,omitempty" doc:"It signs others."`
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Serial      string    `json:"serial" doc:"In hexadecimal."`
	Fingerprint string    `json:"fingerprint" doc:"SHA-256 in hexadecimal."`
	BeginsAt    time.Time `json:"begins_at"`
	EndsAt      time.Time `json:"ends_at"`
	SeenAt      time.Time `json:"seen_at" doc:"When it was seen last."`
	Stale       bool      `json:"stale,omitempty" doc:"It was looked for since then and did not show itself."`
	Problem     string    `json:"problem,omitempty" doc:"Why it did not show itself, or what is wrong with it."`
}

// SeenCertificates is a list of certificates.
type SeenCertificates struct {
	Items    []SeenCertificate `json:"items"`
	Continue string            `json:"continue,omitempty" doc:"Where the list continues; absent at its end."`
}

// CertificateFinding is something about a certificate that needs a person.
type CertificateFinding struct {
	SeenCertificate
	What string `json:"what" doc:"What is wrong."`
	Next string `json:"next" doc:"What to do about it."`
}

// CertificateVerification is what a look at certificates found.
type CertificateVerification struct {
	Looked   int                  `json:"looked" doc:"How many certificates are known, those that did not show themselves included."`
	Findings []CertificateFinding `json:"findings"`
}

// Key is a key that is no certificate, without the key itself.
type Key struct {
	Cluster string    `json:"cluster,omitempty" doc:"Absent for the director's own."`
	Owner   string    `json:"owner,omitempty" doc:"The document that it belongs to, such as Hook/audit."`
	Purpose string    `json:"purpose" enum:"service-account-key,encryption-key,ssh-authority,token-key,webhook-key"`
	Name    string    `json:"name" doc:"What it is called among those of its purpose."`
	ID      string    `json:"id,omitempty" doc:"Names the key as no other one; absent if nothing is left of it but its name."`
	State   string    `json:"state" enum:"used,accepted,former" doc:"used: it signs or encrypts; accepted: what it signed or encrypted is accepted; former: the cluster refuses it."`
	MadeAt  time.Time `json:"made_at,omitzero" doc:"Absent if that is not known."`
	EndsAt  time.Time `json:"ends_at,omitzero" doc:"When another one takes over, or it ends; absent if it does not by itself."`
}

// Keys is a list of keys.
type Keys struct {
	Items []Key `json:"items"`
}

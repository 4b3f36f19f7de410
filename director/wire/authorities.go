package wire

import "time"

// Authorities are all CertificateAuthorities, by name.
type Authorities struct {
	Items []Authority `json:"items"`
}

// Authority is a CertificateAuthority, with what the director knows of it without asking anyone.
type Authority struct {
	Name    string     `json:"name"`
	Type    string     `json:"type" enum:"self,uploaded,csr,stepCA"`
	Subject string     `json:"subject,omitempty" doc:"Of the certificate that signs; absent without one."`
	Ends    *time.Time `json:"ends,omitempty" doc:"When that certificate ends."`
	Waiting bool       `json:"waiting" doc:"Whether there is a request whose certificate was not imported yet."`
	Problem string     `json:"problem,omitempty" doc:"Why it cannot issue."`
	Hint    string     `json:"hint,omitempty" doc:"What to do about it."`
}

// AuthorityRequestQuery asks for a request.
type AuthorityRequestQuery struct {
	New bool `json:"new,omitempty" doc:"Whether a key is made for another certificate than the one in use. That one signs until the new certificate is imported."`
}

// AuthorityRequest is a request for the certificate of an authority.
type AuthorityRequest struct {
	Request string `json:"request" doc:"PKCS#10 in PEM form."`
}

// AuthorityImport brings the certificate of an authority.
type AuthorityImport struct {
	Certificate string `json:"certificate" doc:"The certificate in PEM form. Those that signed it may follow." minLength:"1" maxLength:"65536"`
}

// DirectorAuthority is the authority that signs the director's own certificate, and how far the change of it is.
type DirectorAuthority struct {
	Stage       string              `json:"stage" enum:"none,trust,use" doc:"none: one authority; trust: the next one is trusted, too; use: the next one signs, and the former one is still trusted."`
	Authorities []TrustedAuthority  `json:"authorities" doc:"Those that clients are to trust, the newest last."`
	Certificate string              `json:"certificate" doc:"Fingerprint of the certificate that they have signed for the director."`
	Trusted     string              `json:"trusted" doc:"Their certificates, in PEM form."`
	Behind      []NodeBehind        `json:"behind" doc:"Nodes that may not trust the next authority; empty if they were not asked."`
	Directors   []AuthorityFollower `json:"directors,omitempty" doc:"Directors on the same database, once one of them has begun a change."`
}

// TrustedAuthority is one that clients of the director are to trust.
type TrustedAuthority struct {
	Subject     string    `json:"subject"`
	Fingerprint string    `json:"fingerprint"`
	Ends        time.Time `json:"ends"`
	Signs       bool      `json:"signs" doc:"Whether it signs the director's certificate."`
}

// NodeBehind is a node that may not trust the director's next authority.
type NodeBehind struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Why     string `json:"why"`
}

// AuthorityFollower is a director on the same database.
type AuthorityFollower struct {
	Name    string `json:"name" doc:"The host and the id of the director."`
	Follows bool   `json:"follows" doc:"Whether it has taken the stage."`
}

// DirectorAuthorityChange brings the change of the director's authority to a stage.
type DirectorAuthorityChange struct {
	Stage string `json:"stage" enum:"trust,use,none" doc:"trust makes the next authority; use has it sign; none drops the former one."`
	Force bool   `json:"force,omitempty" doc:"Whether nodes that do not trust the next authority are left behind."`
}

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

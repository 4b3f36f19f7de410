package model

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

// The types of certificate authorities.
const (
	AuthoritySelf     = "self"
	AuthorityUploaded = "uploaded"
	AuthorityCSR      = "csr"
	AuthorityStepCA   = "stepCA"
)

// CertificateAuthority issues the certificate authorities of clusters.
type CertificateAuthority struct {
	Type        string   `json:"type" doc:"self: each authority of a cluster signs itself. uploaded: an authority whose certificate and key you give the director. csr: an authority whose key the director makes, and whose certificate you bring back. stepCA: a server of step-ca is asked for each authority of a cluster." enum:"self,uploaded,csr,stepCA" required:"true"`
	Certificate string   `json:"certificate,omitempty" doc:"With uploaded: certificate of the authority in PEM form. Those that signed it may follow." text:"lines" maxLength:"65536"`
	Credentials string   `json:"credentials,omitempty" doc:"With uploaded: name of the credentials whose password is the private key of the authority in PEM form."`
	Subject     string   `json:"subject,omitempty" doc:"With csr: common name that is asked for. Default: the name of the document." maxLength:"64"`
	StepCA      *StepCA  `json:"stepCA,omitempty" doc:"With stepCA: the server."`
	Life        Duration `json:"life,omitempty" doc:"How long authorities of clusters live. One that is signed by another ends with that one at the latest." default:"87600h" min:"1h" max:"219000h"`
	LeastLife   Duration `json:"leastLife,omitempty" doc:"An authority that would end sooner is refused." default:"17520h" min:"1m" max:"219000h"`
}

// StepCA is a server of step-ca.
type StepCA struct {
	URL             string `json:"url" doc:"https://HOST[:PORT] of the server." required:"true" maxLength:"255"`
	RootFingerprint string `json:"rootFingerprint" doc:"SHA-256 of the server's root certificate, 64 hexadecimal digits, as step certificate fingerprint prints it." required:"true"`
	Provisioner     string `json:"provisioner" doc:"Name of a provisioner of the type JWK whose template makes authorities." required:"true" maxLength:"128"`
	Credentials     string `json:"credentials" doc:"Name of the credentials whose password is the provisioner's." required:"true"`
}

// certificateAuthorityKind is what the model knows of the kind CertificateAuthority.
var certificateAuthorityKind = kind{
	name: KindCertificateAuthority,
	meaning: "Who issues the certificate authorities of clusters; see " +
		"[outer certificate authorities](../operate/outer-ca.md).",
	spec: func(d *Document) any { return ensure(&d.CertificateAuthority) },
	validate: func(v *validator, d *Document) {
		v.certificateAuthority(d.CertificateAuthority)
	},
	credentials: func(d *Document) []string { return []string{d.CertificateAuthority.Account()} },
	columns:     [][2]string{{"TYPE", "type"}, {"LIFE", "life"}},
	effects: of(Later, "authorities that are issued from then on are by it", "spec.type",
		"spec.certificate", "spec.credentials", "spec.subject", "spec.stepCA.url", "spec.stepCA.rootFingerprint",
		"spec.stepCA.provisioner", "spec.stepCA.credentials", "spec.life", "spec.leastLife"),
}

// Account returns the name of the credentials that the authority needs, or "".
func (a *CertificateAuthority) Account() string {
	if a.StepCA != nil {
		return a.StepCA.Credentials
	}
	return a.Credentials
}

// ClusterCertificates says who issues the authorities of a cluster.
type ClusterCertificates struct {
	Authority  string `json:"authority,omitempty" of:"CertificateAuthority" doc:"Name of the CertificateAuthority that issues the cluster's authority. Default: it signs itself."`
	Etcd       bool   `json:"etcd,omitempty" doc:"Whether it issues etcd's authority, too."`
	FrontProxy bool   `json:"frontProxy,omitempty" doc:"Whether it issues the front proxy's authority, too."`
}

// Issuer returns the name of the CertificateAuthority that issues the cluster's authority for the purpose (cluster,
// etcd or front-proxy), or "" for one that signs itself.
func (c ClusterCertificates) Issuer(purpose string) string {
	if purpose == "cluster" || purpose == "etcd" && c.Etcd || purpose == "front-proxy" && c.FrontProxy {
		return c.Authority
	}
	return ""
}

var commonNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9 ._-]*[A-Za-z0-9])?$`)

const credentialsHint = "the name of credentials: letters a-z, digits and dashes, beginning with a letter"

func (v *validator) certificateAuthority(a *CertificateAuthority) {
	only := func(path, of string, set bool) {
		if set && a.Type != of {
			v.fail(path, "leave it out, or use the type "+of, "is not for the type %s", a.Type)
		}
	}
	only("spec.certificate", AuthorityUploaded, a.Certificate != "")
	only("spec.credentials", AuthorityUploaded, a.Credentials != "")
	only("spec.subject", AuthorityCSR, a.Subject != "")
	only("spec.stepCA", AuthorityStepCA, a.StepCA != nil)
	switch a.Type {
	case AuthorityUploaded:
		if a.Certificate == "" {
			v.fail("spec.certificate", "write the certificate of the authority in PEM form", "is missing")
		}
		v.content().pem("spec.certificate", a.Certificate)
		v.match("spec.credentials", a.Credentials, labelPattern, credentialsHint, 40)
	case AuthorityCSR:
		if a.Subject != "" {
			v.match("spec.subject", a.Subject, commonNamePattern, "letters, digits, spaces, dots and dashes", 64)
		}
	case AuthorityStepCA:
		v.stepCA(a.StepCA)
	}
	if a.LeastLife > a.Life {
		v.fail("spec.leastLife", "at most spec.life", "%s is longer than spec.life, %s", a.LeastLife, a.Life)
	}
	if time.Duration(a.LeastLife) < 365*24*time.Hour {
		v.warn("spec.leastLife", "is less than a year: a cluster's authority may end before it is noticed")
	}
}

func (v *validator) stepCA(s *StepCA) {
	if s == nil {
		v.fail("spec.stepCA", "name the server: url, rootFingerprint, provisioner and credentials", "is missing")
		return
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		v.fail("spec.stepCA.url", "an address such as https://ca.example.org, without path and account",
			"is not the address of a server")
	}
	v.match("spec.stepCA.rootFingerprint", s.RootFingerprint, sha256Pattern,
		"64 hexadecimal digits: step certificate fingerprint root_ca.crt", 64)
	v.match("spec.stepCA.credentials", s.Credentials, labelPattern, credentialsHint, 40)
	if s.Provisioner == "" {
		v.fail("spec.stepCA.provisioner", "step ca provisioner list shows them", "is missing")
	}
}

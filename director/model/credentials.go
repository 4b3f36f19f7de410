package model

import "regexp"

var credentialsPattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)

// ValidCredentialsName tells whether credentials may have the name.
func ValidCredentialsName(name string) bool { return credentialsPattern.MatchString(name) }

// CredentialsName returns the name of the credentials that the provider logs in with, or "" if it needs none.
//
// libvirt needs none: what gets the director into a host is libvirt's own business, which its URI names. A key for
// qemu+ssh lies in a file on the director (?keyfile=), where libvirt reads it itself; a certificate for qemu+tls
// likewise (?pkipath=).
func (p *Provider) CredentialsName() string {
	if p.Type == ProviderVSphere && p.VSphere != nil {
		return p.VSphere.Credentials
	}
	return ""
}

package pki

import (
	"bytes"
	"crypto/rand"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// VouchForHost signs that the machine with the id has the host key, which is as in authorized_keys. The result is an
// SSH certificate of a host; it can be kept where others may change it.
func (a SSHAuthority) VouchForHost(machine, hostKey string) (string, error) {
	const op = "pki.ssh_vouch"
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		return "", director.Errorf(director.KindInternal, op, "the host key cannot be read: %w", err)
	}
	authority, err := ssh.ParsePrivateKey([]byte(a.Private.Reveal()))
	if err != nil {
		// the cause may quote it
		return "", director.Errorf(director.KindInternal, op, "the key of the SSH authority cannot be read")
	}
	cert := &ssh.Certificate{
		Key: key, CertType: ssh.HostCert, KeyId: machine, ValidPrincipals: []string{machine},
		ValidBefore: ssh.CertTimeInfinity,
	}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		return "", director.Errorf(director.KindInternal, op, "the host key cannot be signed: %w", err)
	}
	return authorizedLine(cert), nil
}

// VouchedHost returns the host key that the authority vouched for as that of the machine with the id, as in
// authorized_keys. Errors: conflict for what the authority did not sign, or signed of another machine.
func (a SSHAuthority) VouchedHost(machine, certificate string) (string, error) {
	const op = "pki.ssh_vouched"
	forged := func(why string) error {
		return director.Errorf(director.KindConflict, op, "the record of the host key of %s %s", machine, why)
	}
	read, _, _, _, err := ssh.ParseAuthorizedKey([]byte(certificate))
	cert, ok := read.(*ssh.Certificate)
	if err != nil || !ok {
		return "", forged("is no certificate")
	}
	authority, _, _, _, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(a.Public)))
	if err != nil {
		return "", director.Errorf(director.KindInternal, op, "the SSH authority cannot be read: %w", err)
	}
	if cert.CertType != ssh.HostCert || !slices.Equal(cert.ValidPrincipals, []string{machine}) {
		return "", forged("is that of another machine")
	}
	if !bytes.Equal(cert.SignatureKey.Marshal(), authority.Marshal()) {
		return "", forged("was signed by another authority")
	}
	if err := (&ssh.CertChecker{}).CheckCert(machine, cert); err != nil {
		return "", forged("is not signed: " + err.Error())
	}
	return authorizedLine(cert.Key), nil
}

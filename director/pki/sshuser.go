package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
)

// SSHAuthority signs certificates of SSH users. Nodes that trust it accept a certificate of one of their principals, as
// long as it is valid.
type SSHAuthority struct {
	Private director.Secret // PEM in OpenSSH's format
	Public  string          // as in authorized_keys, without a comment
}

// SSHUser says what a certificate is good for.
type SSHUser struct {
	ID         string   // sshd writes it to its log at each login
	Principals []string // a node accepts those that its principals file names
	Until      time.Time
	// Terminal also allows a terminal, which people want. Forwarding of ports, agents and X11 is never allowed.
	Terminal bool
}

// SSHCredential is a key with its certificate.
type SSHCredential struct {
	Private     director.Secret // PEM in OpenSSH's format
	Certificate string          // as in a file that ends in -cert.pub
}

// sshBackdate is how far a node's clock may be behind the director's. The risk of a certificate is its end, so this may
// be long: a node is reached before its clock is set.
const sshBackdate = 24 * time.Hour

// NewSSHAuthority returns an authority with a new ed25519 key.
func NewSSHAuthority() (SSHAuthority, error) {
	private, signer, err := newSSHKey("pki.ssh_authority")
	if err != nil {
		return SSHAuthority{}, err
	}
	return SSHAuthority{Private: private, Public: authorizedLine(signer.PublicKey())}, nil
}

// Issue returns a new key with a certificate. The key is never the same. Errors: invalid without principals, or with an
// end that has passed.
func (a SSHAuthority) Issue(u SSHUser, now time.Time) (SSHCredential, error) {
	const op = "pki.ssh_issue"
	// a certificate without principals would be good for every account
	if len(u.Principals) == 0 || !u.Until.After(now) {
		return SSHCredential{}, director.Errorf(
			director.KindInvalid, op, "an SSH certificate needs principals and an end in the future",
		)
	}
	authority, err := ssh.ParsePrivateKey([]byte(a.Private.Reveal()))
	if err != nil {
		// the cause may quote it
		return SSHCredential{}, director.Errorf(
			director.KindInternal, op, "the key of the SSH authority cannot be read",
		)
	}
	private, signer, err := newSSHKey(op)
	if err != nil {
		return SSHCredential{}, err
	}
	var serial [8]byte
	if _, err := rand.Read(serial[:]); err != nil {
		return SSHCredential{}, director.Errorf(director.KindInternal, op, "no random numbers: %w", err)
	}
	cert := &ssh.Certificate{
		Key: signer.PublicKey(), Serial: binary.BigEndian.Uint64(
			serial[:],
		), CertType: ssh.UserCert, KeyId: u.ID, ValidPrincipals: u.Principals,
		ValidAfter:  uint64(now.Add(-sshBackdate).Unix()),
		ValidBefore: uint64(u.Until.Unix()), //nolint:gosec // long after 1970
	}
	if u.Terminal {
		cert.Extensions = map[string]string{"permit-pty": ""}
	}
	if err := cert.SignCert(rand.Reader, authority); err != nil {
		return SSHCredential{}, director.Errorf(
			director.KindInternal, op, "the SSH certificate cannot be signed: %w", err,
		)
	}
	return SSHCredential{Private: private, Certificate: authorizedLine(cert)}, nil
}

// Signer returns what a client logs in with.
func (c SSHCredential) Signer() (ssh.Signer, error) {
	const op = "pki.ssh_signer"
	key, err := ssh.ParsePrivateKey([]byte(c.Private.Reveal()))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the SSH key cannot be read")
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.Certificate))
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the SSH certificate cannot be read: %w", err)
	}
	cert, ok := public.(*ssh.Certificate)
	if !ok {
		return nil, director.Errorf(director.KindInternal, op, "the SSH certificate is none")
	}
	signer, err := ssh.NewCertSigner(cert, key)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the SSH certificate is not the key's: %w", err)
	}
	return signer, nil
}

func newSSHKey(op string) (director.Secret, ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", nil, director.Errorf(director.KindInternal, op, "no random numbers: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return "", nil, director.Errorf(director.KindInternal, op, "the SSH key cannot be encoded: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return "", nil, director.Errorf(director.KindInternal, op, "the SSH key cannot be used: %w", err)
	}
	return director.Secret(pem.EncodeToMemory(block)), signer, nil
}

func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

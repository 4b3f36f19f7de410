package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Stage is how far the change of the director's own authority is. It is read from the certificates: ca.crt holds the
// former authority and then the next one while both are trusted, and ca.key belongs to the one that signs.
type Stage string

// The stages, in their order.
const (
	StageNone  Stage = "none"  // one authority
	StageTrust Stage = "trust" // the next one is trusted, too, and signs nothing yet
	StageUse   Stage = "use"   // the next one signs, and the former one is still trusted
)

// While the authority changes, there are two files more.
const (
	fileNextKey = "next.key"
	// fileCross is the next authority's certificate, signed by the former one: who trusts that alone accepts what the
	// next one has signed, until the former one goes.
	fileCross = "cross.crt"
)

// Trusted is an authority that the director's clients are to trust.
type Trusted struct {
	Cert  *x509.Certificate
	PEM   string
	Signs bool // the director's certificate
}

// Stage returns how far the change of the authority is.
func (s *Server) Stage() Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stage
}

// Authorities returns those that clients are to trust, the newest last.
func (s *Server) Authorities() ([]Trusted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Trusted
	for _, text := range s.trusted() {
		cert, err := ParseCert(text)
		if err != nil {
			return nil, err
		}
		all = append(all, Trusted{cert, text, text == s.ca.Cert})
	}
	return all, nil
}

// trusted returns the certificates of ca.crt.
func (s *Server) trusted() []string {
	switch s.stage {
	case StageTrust:
		return []string{s.ca.Cert, s.other}
	case StageUse:
		return []string{s.other, s.ca.Cert}
	default:
		return []string{s.ca.Cert}
	}
}

// Trust makes the next authority, for clients to trust it together with the present one. It may be cut off and called
// again. Errors: conflict if the next one signs already.
func (s *Server) Trust() error {
	const op = "pki.trust"
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case StageUse:
		return director.Errorf(director.KindConflict, op, "the former authority is still trusted").
			WithHint("finish the change that is under way first: directorctl ca director drop")
	case StageTrust:
		if _, err := s.nextPair(); err == nil {
			return nil
		} // its key is lost: another one takes its place
	}
	// A name of its own: OpenSSL looks for issuers by name.
	next, err := newCA("director "+s.now().UTC().Format(time.RFC3339), s.now(), AuthorityLife)
	if err != nil {
		return err
	}
	cross, err := crossSigned(next.Cert, s.ca)
	if err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{fileNextKey, next.Key.Reveal()}, {fileCross, cross}, {fileCACert, s.ca.Cert + next.Cert},
	} {
		if err := s.write(f.name, f.text); err != nil {
			return err
		}
	}
	s.other, s.stage = next.Cert, StageTrust
	return nil
}

// nextPair returns the next authority with its key. Errors: conflict if the key is not there.
func (s *Server) nextPair() (Pair, error) {
	key, err := s.read(fileNextKey)
	next := Pair{Cert: s.other, Key: director.Secret(key)}
	if err == nil {
		err = ValidateCA(next, s.now())
	}
	if err != nil {
		return Pair{}, director.Errorf(
			director.KindConflict, "pki.use", "the key of the next authority cannot be used: %w", err,
		).WithHint("begin again with: directorctl ca director trust")
	}
	return next, nil
}

// Use has the next authority sign from now on. The key of the former one is gone then. It may be cut off and called
// again. Errors: conflict if there is no next one.
func (s *Server) Use() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case StageNone:
		return director.Errorf(director.KindConflict, "pki.use", "there is no next authority").
			WithHint("begin with: directorctl ca director trust")
	case StageUse:
		return nil
	}
	next, err := s.nextPair()
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(s.dir, fileNextKey), filepath.Join(s.dir, fileCAKey)); err != nil {
		return director.Errorf(director.KindInternal, "pki.use", "the key cannot be put in its place: %w", err).
			WithHint("check the permissions of %s", s.dir)
	}
	s.ca, s.other, s.stage = next, s.ca.Cert, StageUse
	return s.renew()
}

// Drop has the former authority trusted no more. Without a change it does nothing. Errors: conflict if the next one
// does not sign yet.
func (s *Server) Drop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case StageNone:
		return nil
	case StageTrust:
		return director.Errorf(director.KindConflict, "pki.drop", "the next authority does not sign yet").
			WithHint("first: directorctl ca director use")
	}
	if err := s.write(fileCACert, s.ca.Cert); err != nil {
		return err
	}
	s.other, s.stage = "", StageNone
	return errors.Join(s.tidy(), s.renew())
}

// tidy removes what a change has left.
func (s *Server) tidy() error {
	var errs []error
	for _, name := range []string{fileNextKey, fileCross} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// chain returns what is shown behind the certificate. While the former authority is trusted, its clients are led to the
// one that signs, which is not shown itself: OpenSSL would go no further.
func (s *Server) chain() string {
	if s.stage != StageUse {
		return s.ca.Cert
	}
	cross, err := s.read(fileCross)
	if err != nil {
		cross = ""
	}
	return cross + s.other
}

// crossSigned returns the authority's certificate as another one signs it.
func crossSigned(cert string, by Pair) (string, error) {
	const op = "pki.cross"
	c, err := ParseCert(cert)
	if err != nil {
		return "", err
	}
	parent, err := ParseCert(by.Cert)
	if err != nil {
		return "", err
	}
	signer, err := parseKey(by.Key)
	if err != nil {
		return "", err
	}
	t := &x509.Certificate{
		Subject: c.Subject, SubjectKeyId: c.SubjectKeyId, NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		KeyUsage: c.KeyUsage, BasicConstraintsValid: true, IsCA: true,
	}
	if parent.NotAfter.Before(t.NotAfter) {
		t.NotAfter = parent.NotAfter
	}
	return signFor(op, t, parent, c.PublicKey, signer)
}

// split returns the certificates of a PEM text, each as a text of its own.
func split(text string) []string {
	var all []string
	for rest := []byte(text); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			return all
		}
		if b.Type == pemCertificate {
			all = append(all, encode(pemCertificate, b.Bytes))
		}
	}
}

// adopt takes the authorities of ca.crt: the one that the key belongs to signs.
func (s *Server) adopt(text string, key director.Secret) {
	s.ca, s.other, s.stage = Pair{Cert: text, Key: key}, "", StageNone
	all := split(text)
	if len(all) != 2 {
		return
	}
	for i, cert := range all {
		if pair := (Pair{Cert: cert, Key: key}); ValidateCA(pair, s.now()) == nil {
			s.ca, s.other = pair, all[1-i]
			s.stage = []Stage{StageTrust, StageUse}[i]
			return
		}
	}
}

// shows reports whether the text of a certificate is followed by exactly the chain.
func shows(text, chain string) bool {
	const begin = "-----BEGIN CERTIFICATE-----"
	return strings.HasSuffix(text, chain) && strings.Count(text, begin) == 1+strings.Count(chain, begin)
}

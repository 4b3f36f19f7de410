package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
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

// Succession is all that directors with one authority have in common of it: the texts of the files.
type Succession struct {
	CA    string          // what clients trust
	Key   director.Secret // of the one that signs
	Next  director.Secret // key of the next one, while it is trusted only
	Cross string          // the next one as the former one signs it, while both are trusted
}

// Revision tells successions apart. It reveals no key.
func (s Succession) Revision() string {
	sum := sha256.Sum256([]byte(s.CA + fmt.Sprint(s.Next != "", s.Cross != "")))
	return hex.EncodeToString(sum[:])
}

// keptSuccession is a succession before it is sealed.
type keptSuccession struct{ CA, Key, Next, Cross string }

// Encode returns the succession with its keys in the clear, to be sealed.
func (s Succession) Encode() ([]byte, error) {
	return json.Marshal(keptSuccession{s.CA, s.Key.Reveal(), s.Next.Reveal(), s.Cross})
}

// DecodeSuccession is the inverse of Encode.
func DecodeSuccession(plain []byte) (Succession, error) {
	var k keptSuccession
	if json.Unmarshal(plain, &k) != nil { // the cause may quote a key
		return Succession{}, director.Errorf(
			director.KindInternal, "pki.succession", "the directors' authority cannot be read",
		)
	}
	return Succession{k.CA, director.Secret(k.Key), director.Secret(k.Next), k.Cross}, nil
}

// Succession returns what is there.
func (s *Server) Succession() (Succession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.succession()
}

func (s *Server) succession() (Succession, error) {
	out := Succession{CA: strings.Join(s.trusted(), ""), Key: s.ca.Key}
	for name, into := range map[string]func(string){
		fileNextKey: func(text string) { out.Next = director.Secret(text) },
		fileCross:   func(text string) { out.Cross = text },
	} {
		text, err := s.read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, director.Errorf(director.KindInternal, "pki.succession", "cannot read %s: %w", name, err)
		}
		into(text)
	}
	switch s.stage { // without what a change that was cut off has left
	case StageNone:
		out.Next, out.Cross = "", ""
	case StageUse:
		out.Next = ""
	}
	return out, nil
}

// Next returns what is there when the change is in the stage: trust makes the next authority, for clients to trust it
// together with the present one, use has it sign, and none has the former one trusted no more. It changes nothing; that
// is Follow's. Errors: conflict if another stage comes first.
func (s *Server) Next(to Stage) (Succession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch to {
	case StageTrust:
		return s.trust()
	case StageUse:
		return s.use()
	case StageNone:
		return s.drop()
	}
	return Succession{}, director.Errorf(director.KindInvalid, "pki.next", "%q is no stage", to).
		WithHint("trust, use or none")
}

func (s *Server) trust() (Succession, error) {
	switch s.stage {
	case StageUse:
		return Succession{}, director.Errorf(
			director.KindConflict, "pki.trust", "the former authority is still trusted",
		).WithHint("finish the change that is under way first: directorctl ca director drop")
	case StageTrust:
		if _, err := s.nextPair(); err == nil {
			return s.succession()
		} // its key is lost: another one takes its place
	}
	// A name of its own: OpenSSL looks for issuers by name.
	next, err := newCA("director "+s.now().UTC().Format(time.RFC3339), s.now(), AuthorityLife)
	if err != nil {
		return Succession{}, err
	}
	cross, err := crossSigned(next.Cert, s.ca)
	return Succession{CA: s.ca.Cert + next.Cert, Key: s.ca.Key, Next: next.Key, Cross: cross}, err
}

func (s *Server) use() (Succession, error) {
	switch s.stage {
	case StageNone:
		return Succession{}, director.Errorf(director.KindConflict, "pki.use", "there is no next authority").
			WithHint("begin with: directorctl ca director trust")
	case StageUse:
		return s.succession()
	}
	next, err := s.nextPair()
	if err != nil {
		return Succession{}, err
	}
	now, err := s.succession()
	now.Key, now.Next = next.Key, ""
	return now, err
}

func (s *Server) drop() (Succession, error) {
	if s.stage == StageTrust {
		return Succession{}, director.Errorf(
			director.KindConflict, "pki.drop", "the next authority does not sign yet",
		).WithHint("first: directorctl ca director use")
	}
	return Succession{CA: s.ca.Cert, Key: s.ca.Key}, nil
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

// Follow takes the succession, from whatever is there. It may be cut off and called again: at any line the key that is
// there belongs to an authority that is trusted. Nothing restarts. Errors: invalid if the key belongs to none of the
// authorities.
func (s *Server) Follow(to Succession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := Server{now: s.now}
	next.adopt(to.CA, to.Key)
	if err := ValidateCA(next.ca, s.now()); err != nil {
		return director.Errorf(director.KindInvalid, "pki.follow", "the directors' authority cannot be used: %w", err)
	}
	if to.Next != "" { // before the next one is trusted
		if err := errors.Join(s.write(fileNextKey, to.Next.Reveal()), s.write(fileCross, to.Cross)); err != nil {
			return err
		}
	}
	if next.ca != s.ca {
		if err := errors.Join(s.write(fileCross, to.Cross), s.write(fileCACert, s.ca.Cert+next.ca.Cert)); err != nil {
			return err
		}
		if err := s.write(fileCAKey, to.Key.Reveal()); err != nil {
			return err
		}
	}
	if err := s.write(fileCACert, to.CA); err != nil {
		return err
	}
	s.ca, s.other, s.stage = next.ca, next.other, next.stage
	if err := s.tidy(to); err != nil {
		return err
	}
	if c := s.load(); c != nil {
		s.cert = c
		return nil
	}
	return s.renew()
}

// tidy removes what the succession does not have.
func (s *Server) tidy(to Succession) error {
	var errs []error
	for name, text := range map[string]string{fileNextKey: to.Next.Reveal(), fileCross: to.Cross} {
		if text != "" {
			continue
		}
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

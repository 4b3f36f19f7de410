// Package signature checks who made release bundles and node images, and signs them, in the format of minisign
// (Ed25519). Without a director, check the same files with `minisign -V`.
//
// What is signed is a small text with the digests of everything else: release.yaml of a bundle, and the line that
// sha256sum wrote of an image. The trusted comment, which is signed too, says what the text is for: its kind, its
// Kubernetes version, and the name of a release, or the version of an appliance. So no kind passes for another, and no
// version for another one.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"aead.dev/minisign"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Suffix follows the name of a signed file in the name of its signature.
const Suffix = ".minisig"

// Most is how many bytes a signature, a key or the text of an image's checksum may have.
const Most = 4 << 10

const op = "signature.check"

// The kinds of what is signed.
const (
	KindRelease   = "release"
	KindImage     = "image"
	KindAppliance = "appliance"
)

// Subject is what a signature is for, as its trusted comment says.
type Subject struct {
	Kind       string
	Name       string // of a release as its release.yaml has it, the version of an appliance; empty for an image
	Kubernetes string // such as v1.37.1; empty for an appliance
	Arch       string
}

var comment = regexp.MustCompile(
	`^kaas (release name=([a-z0-9.-]{1,63})|image) kubernetes=(v[0-9A-Za-z.-]{1,40}) arch=([a-z0-9]{1,20})$`,
)

var applianceComment = regexp.MustCompile(`^kaas appliance version=([0-9A-Za-z.-]{1,63}) arch=([a-z0-9]{1,20})$`)

// Comment returns the trusted comment of a signature for s.
func (s Subject) Comment() string {
	kind := s.Kind
	if kind == KindAppliance {
		return "kaas appliance version=" + s.Name + " arch=" + s.Arch
	}
	if kind == KindRelease {
		kind += " name=" + s.Name
	}
	return "kaas " + kind + " kubernetes=" + s.Kubernetes + " arch=" + s.Arch
}

func parseComment(text string) (Subject, bool) {
	if m := applianceComment.FindStringSubmatch(text); m != nil {
		return Subject{Kind: KindAppliance, Name: m[1], Arch: m[2]}, true
	}
	m := comment.FindStringSubmatch(text)
	if m == nil {
		return Subject{}, false
	}
	kind, _, _ := strings.Cut(m[1], " ")
	return Subject{Kind: kind, Name: m[2], Kubernetes: m[3], Arch: m[4]}, true
}

// Keyring holds the keys that are trusted.
type Keyring []minisign.PublicKey

// ParseKey reads a public key as minisign writes it: its one line in base64, with or without the comment before it.
func ParseKey(text string) (minisign.PublicKey, error) {
	var key minisign.PublicKey
	if len(text) > Most {
		return key, fmt.Errorf("a public key has at most %d bytes", Most)
	}
	if err := key.UnmarshalText([]byte(strings.TrimSpace(text))); err != nil {
		return key, errors.New("it is not a public key of minisign")
	}
	return key, nil
}

// KeyID returns the key's id as minisign shows it.
func KeyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// Find checks the signature of the text and returns what it is for and the id of the key. It does not compare that with
// what is wanted: Check does. Errors: invalid if the signature is no signature, is by a key that is not trusted, or is
// not for this text.
func (k Keyring) Find(text, signature []byte) (Subject, string, error) {
	bad := func(hint, format string, args ...any) (Subject, string, error) {
		return Subject{}, "", director.Errorf(director.KindInvalid, op, format, args...).WithHint("%s", hint)
	}
	const again = "copy it again, with its signature, from where it was built"
	if len(signature) > Most {
		return bad(again, "the signature has more than %d bytes", Most)
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return bad(again, "the signature is not in minisign's format")
	}
	if s.Algorithm != minisign.HashEdDSA {
		return bad(
			"sign it with minisign 0.10 or newer, or with directorctl sign",
			"the signature is of an old form that is not taken",
		)
	}
	i := slices.IndexFunc(k, func(p minisign.PublicKey) bool { return p.ID() == s.KeyID })
	if i < 0 {
		return bad(
			"name the key in trustedKeys of the director's configuration if you trust it, or sign with one that is "+
				"there",
			"it is signed with the key %s, which is not trusted", KeyID(s.KeyID),
		)
	}
	// Several keys may have one id: the creator of a key chooses its id.
	if !slices.ContainsFunc(k, func(p minisign.PublicKey) bool { return minisign.Verify(p, text, signature) }) {
		return bad(again, "the signature does not match: this is not what was signed with the key %s", KeyID(s.KeyID))
	}
	subject, ok := parseComment(s.TrustedComment)
	if !ok {
		return bad("sign it with directorctl sign", "the trusted comment of the signature does not say what was signed")
	}
	return subject, KeyID(s.KeyID), nil
}

// Check returns the id of the key that signed the text as what is wanted. Errors: those of Find, and invalid if it was
// signed as something else.
func (k Keyring) Check(text, signature []byte, want Subject) (string, error) {
	got, id, err := k.Find(text, signature)
	if err != nil {
		return "", err
	}
	if got != want {
		return "", director.Errorf(
			director.KindInvalid, op, "the signature is for another thing: it says %q, and this is %q", got.Comment(),
			want.Comment(),
		).
			WithHint("copy it again, with its signature, from where it was built")
	}
	return id, nil
}

var line = regexp.MustCompile(`^([0-9a-f]{64}) [ *][^\x00-\x1f\x7f]{1,255}\n?$`)

// Sum returns the SHA-256 in the text, which is one line of sha256sum.
func Sum(text []byte) (string, error) {
	m := line.FindSubmatch(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
	if m == nil {
		return "", director.Errorf(director.KindInvalid, op, "the signed text is not one line of sha256sum").
			WithHint("write it with: sha256sum FILE >FILE.sha256")
	}
	return string(m[1]), nil
}

// CheckImage returns the id of the key that signed the image with that checksum and Kubernetes version. Without a
// version it is that of an appliance, of any release.
func (k Keyring) CheckImage(signed director.Signed, sha256, kubernetes string) (string, error) {
	want := Subject{Kind: KindImage, Kubernetes: kubernetes, Arch: "amd64"}
	if kubernetes == "" {
		got, _, err := k.Find([]byte(signed.Text), []byte(signed.Signature))
		if err != nil {
			return "", err
		}
		want = Subject{Kind: KindAppliance, Name: got.Name, Arch: "amd64"}
	}
	id, err := k.Check([]byte(signed.Text), []byte(signed.Signature), want)
	if err != nil {
		return "", err
	}
	sum, err := Sum([]byte(signed.Text))
	if err != nil {
		return "", err
	}
	if sum != sha256 {
		return "", director.Errorf(
			director.KindInvalid, op, "the signature is for the file with the SHA-256 %s, and this one has %s", sum,
			sha256,
		).
			WithHint("copy the image again, with its signature, from where it was built")
	}
	return id, nil
}

// Read reads a signature or a signed line, nil if there is none. It neither waits for a FIFO nor reads more than Most.
func Read(path string) ([]byte, error) {
	text, err := confine.Read(path, Most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
